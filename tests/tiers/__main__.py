"""`python -m tests.tiers fast|ci [--parts NAME,…] [pytest's arguments]` and `python -m tests.tiers nightly [PART …]`."""

from __future__ import annotations

import sys

from tests.tiers import nightly
from tests.tiers.parts import CI, FAST
from tests.tiers.run import ROOT, run_parts


def main(words: list[str]) -> int:
    match words:
        case ["ci", "--parts", names, *more]:
            chosen = [part for part in CI if part.name in names.split(",")]
            return run_parts("ci", chosen, ROOT / "artifacts", more, others=CI)
        case ["fast", *more]:
            return run_parts("fast", FAST, ROOT / "artifacts", more)
        case ["ci", *more]:
            return run_parts("ci", CI, ROOT / "artifacts", more)
        case ["nightly", *more]:
            return nightly.main(more)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
