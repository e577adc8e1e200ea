"""`python -m tests.recovery.mutations [--seeds N] [--only ID …]`: prints the table of docs/internals/protocol.md."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.prove import DID_NOT_RUN, judged
from tests.recovery.mutations.rules import MUTATIONS, Mutation
from tests.scratch import Replacement, ScratchCopy

_INVALID = re.compile(rf"^({DID_NOT_RUN}|AttributeError)\b.*", re.M)
"""The line of a traceback that names such an error. An attribute that does not exist is one here: the simulation reports broken
rules as violations, so it comes from the text of the mutation."""


def search(copy: ScratchCopy, mutation: Mutation, seeds: int, timeout_s: int = 300) -> tuple[str | None, str]:
    """Break one rule in a copy and look for the damage. Answer: where it was found and what was seen; None: not found."""
    with copy.broken(Replacement(mutation.file, mutation.old, mutation.new)):
        try:
            return _test(copy, mutation.test, timeout_s) if mutation.test else _simulate(copy, seeds, timeout_s)
        except subprocess.TimeoutExpired:
            return None, "time is over"


def _simulate(copy: ScratchCopy, seeds: int, timeout_s: int) -> tuple[str | None, str]:
    outcome = copy.folder / "result.json"
    outcome.unlink(missing_ok=True)
    done = copy.python(timeout_s, "-m", "chaos", "simulate", "--seeds", str(seeds), "--json", str(outcome))
    if not outcome.exists():
        return raised(done.stderr)
    result = json.loads(outcome.read_text())
    failure = result["failure"]
    return (None, "") if failure is None else (str(result["seeds"]), failure["violation"])


def raised(stderr: str) -> tuple[str | None, str]:
    """Judge a simulation that ended without a result. A mutation that cannot run was not found: it breaks no rule."""
    if invalid := _INVALID.search(stderr):
        return None, "the mutation cannot run: " + invalid[0][:120]
    last = (stderr.strip().splitlines() or ["nothing"])[-1]
    return "0", "the simulation itself raised: " + last[:120]


def _test(copy: ScratchCopy, test: str, timeout_s: int) -> tuple[str | None, str]:
    code, output = copy.pytest(timeout_s, "-q", "-x", "--no-header", test)
    outcome, _ = judged(code, output)
    if outcome == "invalid":
        raise SystemExit(f"{test} did not run:\n{output[-4_000:]}")
    return ("a test", f"`{test.rpartition('::')[2]}` fails") if outcome == "caught" else (None, "")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if not options.only or mutation.id in options.only]
    missed = 0
    print("| rule | broken as | seeds needed | seen as |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        copy = ScratchCopy(Path(folder))
        for mutation in chosen:
            found, what = search(copy, mutation, options.seeds * (5 if mutation.rare else 1))
            missed += found is None
            print(f"| {mutation.rule} | `{mutation.id}` | {found or 'NOT FOUND'} | {what[:110]} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
