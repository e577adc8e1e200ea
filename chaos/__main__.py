"""`python -m chaos <what> [options]`.

Each kind of chaos is a module with `SUMMARY`, `arguments(parser)` and `run(options)`.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

KINDS = {
    "simulate": "chaos.simulate",
    "run": "chaos.run",
    "soak": "chaos.soak",
    "import": "chaos.imports",
    "showcase": "chaos.showcase",
}
"""Sub-command → module. Imported only when asked for."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Try to break tidegate on purpose.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    chosen = next((word for word in argv if word in KINDS), None)
    for kind, module in KINDS.items():
        sub = kinds.add_parser(kind)
        if kind == chosen:
            loaded = import_module(module)
            sub.description = loaded.SUMMARY
            loaded.arguments(sub)
    options = parser.parse_args(argv)
    return int(import_module(KINDS[options.kind]).run(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
