"""`python -m tests.tiers TIER …`

fast [pytest's arguments]           tests that need no JVM and no server
ci [--all] [pytest's arguments]     what the change reaches and a quarter of the rest; with `--all` everything
ci --parts NAME,… [arguments]       single parts of it, with every test
affected [pytest's arguments]       what your change reaches, compared with the main branch or with `TIDEGATE_BASE`
record [--beside-other-work]        keep the times of the last run of `ci` in `tests/tiers/times.jsonl`
nightly [PART …]                    what takes hours
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.tiers import nightly, times
from tests.tiers.change import BASE
from tests.tiers.parts import CI, FAST
from tests.tiers.run import ROOT, Tier, run_parts
from tests.tiers.selection import TURNS, current_selection

ARTIFACTS = ROOT / "artifacts"


def main(words: list[str]) -> int:
    match words:
        case ["ci", "--parts", names, *more]:
            chosen = [part for part in CI if part.name in names.split(",")]
            return run_parts(Tier("ci", ARTIFACTS, CI, more), chosen)
        case ["ci", "--all", *more]:
            return run_parts(Tier("ci", ARTIFACTS, CI, more), CI)
        case ["ci", *more]:
            return run_parts(Tier("ci", ARTIFACTS, CI, more, _selected()), CI)
        case ["affected", *more]:
            os.environ.setdefault(BASE, "main")
            return run_parts(Tier("ci", ARTIFACTS, CI, more, _selected(turns=0)), CI)
        case ["fast", *more]:
            return run_parts(Tier("fast", ARTIFACTS, FAST, more), FAST)
        case ["record", *beside] if beside in ([], ["--beside-other-work"]):
            print(times.record(alone=not beside))
            return 0
        case ["nightly", *more]:
            return nightly.main(more)
    print(__doc__, file=sys.stderr)
    return 2


def _selected(turns: int = TURNS) -> Path:
    """Write the selection down, and say how much it is."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    file = ARTIFACTS / "selection.json"
    selection = current_selection(turns)
    selection.write(file)
    print(f"-- {selection.summary()} ({file.relative_to(ROOT)})", flush=True)
    return file


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
