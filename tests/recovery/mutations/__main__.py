"""`python -m tests.recovery.mutations [--seeds N] [--only ID …]`: prints the table of docs/internals/protocol.md."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.recovery.mutations.rules import MUTATIONS, Mutation

ROOT = Path(__file__).parents[3]


def seeds_needed(mutation: Mutation, seeds: int, timeout_s: int = 300) -> tuple[int | None, str]:
    """Break one rule in a copy and simulate. Answer: the seeds it took and what was seen; None: not found."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("src", "chaos"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / mutation.file
        text = file.read_text()
        if text.count(mutation.old) != 1:
            raise SystemExit(f"mutation {mutation.id}: its text is {text.count(mutation.old)} times in {mutation.file}")
        file.write_text(text.replace(mutation.old, mutation.new))
        command = [
            sys.executable,
            "-m",
            "chaos",
            "simulate",
            "--seeds",
            str(seeds),
            "--json",
            str(copy / "result.json"),
        ]
        environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return None, "time is over"
        if not (copy / "result.json").exists():
            return 0, "the simulation itself raised: " + done.stderr.strip().splitlines()[-1][:120]
        result = json.loads((copy / "result.json").read_text())
        failure = result["failure"]
        return (None, "") if failure is None else (result["seeds"], failure["violation"])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    missed = 0
    print("| rule | broken as | seeds needed | seen as |\n|---|---|---|---|")
    for mutation in MUTATIONS:
        if options.only and mutation.id not in options.only:
            continue
        found, what = seeds_needed(mutation, options.seeds * (5 if mutation.rare else 1))
        missed += found is None
        print(
            f"| {mutation.rule} | `{mutation.id}` | {'NOT FOUND' if found is None else found} | {what[:110]} |",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
