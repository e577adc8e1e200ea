"""`python -m tests.prove [ID …]`: breaks each proven capability as `tests/capabilities.toml` says, and runs its tests.

Every mutation is applied to a scratch copy of the project, which the driver and Spark's workers load instead of the installed
package. A mutation is caught if a marked test fails, and survives if all of them pass. One that keeps its tests from running
at all (an import that fails, a name that does not exist) proves nothing, and is reported as invalid.

With `--quick` only mutations whose tests need no JVM; `--rotate N` runs one N-th of the chosen ones, another with every commit.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.features import Mutation, report
from tests.scratch import ROOT, ScratchCopy, StaleMutation
from tests.tiers import jvms

TIMEOUT_S = 400
Numbered = tuple[str, int, Mutation]
"""(id, number from 1, mutation)"""
DID_NOT_RUN = "NameError|ImportError|ModuleNotFoundError|SyntaxError|IndentationError|UnboundLocalError"
"""Errors of a mutation whose own text is wrong: it breaks nothing that it was to break."""
_INVALID = re.compile(rf"^E +({DID_NOT_RUN})", re.M)
_WHERE = """
import tidegate
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
def where(rows):
    import tidegate, pyarrow
    for _ in rows:
        yield pyarrow.RecordBatch.from_pydict({"file": [tidegate.__file__]})
print(tidegate.__file__)
print(spark.range(1).mapInArrow(where, "file string").first()[0])
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one mutation."""

    id: str
    number: int
    file: str
    outcome: str
    """caught, survived or invalid"""
    seconds: float
    said: str


def chosen(ids: Sequence[str], quick: bool) -> list[Numbered]:
    """The mutations of the capabilities named, or of all."""
    known = report().capabilities
    if unknown := [id for id in ids if id not in known]:
        raise SystemExit(f"tests/capabilities.toml has no {', '.join(unknown)}.")
    return [
        (capability.id, number, mutation)
        for capability in known.values()
        for number, mutation in enumerate(capability.mutations, 1)
        if (not ids or capability.id in ids) and not (quick and mutation.needs_jvm)
    ]


def rotated(trials: Sequence[Numbered], share: int, first: int) -> list[Numbered]:
    """Every `share`-th one from the `first` on."""
    return list(trials[first % share :: share])


def verify_loaded(copy: ScratchCopy) -> None:
    """Raise unless driver and workers load the copy."""
    done = copy.python(120, "-c", _WHERE)
    places = done.stdout.split()
    if len(places) != 2 or not all(Path(place).is_relative_to(copy.folder) for place in places):
        raise SystemExit(f"The scratch copy is not what Spark's workers load: {places}\n{done.stderr[-2_000:]}")


def verify_passing(copy: ScratchCopy, tests: Sequence[str]) -> None:
    """Raise unless all tests pass while nothing is broken: otherwise a mutation would be caught by accident."""
    done = copy.python(3_600, "-m", "pytest", "-q", "--no-header", "-m", "", *tests)
    if done.returncode:
        raise SystemExit(f"Not all tests pass before anything is broken:\n{done.stdout[-6_000:]}")


def attempt(copy: ScratchCopy, id: str, number: int, mutation: Mutation) -> Trial:
    begun = time.monotonic()
    try:
        with copy.broken(mutation.replacement):
            outcome, said = judged(*_run_tests(copy, mutation))
    except subprocess.TimeoutExpired:
        outcome, said = "caught", f"no result within {TIMEOUT_S} s"
    except StaleMutation as stale:
        outcome, said = "invalid", str(stale)
    return Trial(id, number, mutation.replacement.file, outcome, round(time.monotonic() - begun, 1), said)


def _run_tests(copy: ScratchCopy, mutation: Mutation) -> tuple[int, str]:
    arguments = ("-q", "-x", "--no-header", "-m", "", "--tb=short", *mutation.tests)
    if not mutation.needs_jvm:
        return copy.pytest(TIMEOUT_S, *arguments)
    done = copy.python(TIMEOUT_S, "-m", "pytest", *arguments)
    return done.returncode, done.stdout


def judged(code: int, output: str) -> tuple[str, str]:
    """(outcome, what pytest said) of a run of the marked tests."""
    told = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
    last = (told or output.strip().splitlines() or [""])[-1][:200]
    if code == 0:
        return "survived", ""
    if code != 1 or _INVALID.search(output):
        return "invalid", last
    return "caught", last


def _trials(picked: Sequence[Numbered], jobs: int, unchecked: bool) -> Iterator[Trial]:
    """Make all trials, in `jobs` processes, each with a copy of its own."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    shares = [share for n in range(jobs) if (share := picked[n::jobs])]
    workers = [context.Process(target=_work, args=(share, unchecked, results.put)) for share in shares]
    for worker in workers:
        worker.start()
    ended = 0
    while ended < len(workers):
        found: Trial | str | None = results.get()
        if isinstance(found, str):
            raise SystemExit(found)
        if found is None:
            ended += 1
        else:
            yield found


def _work(share: Sequence[Numbered], unchecked: bool, tell: Callable[[Trial | str | None], None]) -> None:
    try:
        with tempfile.TemporaryDirectory() as folder:
            copy = ScratchCopy(Path(folder))
            if any(mutation.needs_jvm for _, _, mutation in share):
                verify_loaded(copy)
            if not unchecked:
                verify_passing(copy, sorted({test for _, _, mutation in share for test in mutation.tests}))
            for id, number, mutation in share:
                tell(attempt(copy, id, number, mutation))
        tell(None)
    except BaseException as error:
        tell(f"{type(error).__name__}: {error}")


def _commits() -> int:
    count = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return int(count.stdout or 0)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.prove", description="Break each capability, and run its tests."
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these capabilities")
    parser.add_argument("--quick", action="store_true", help="only what needs no JVM")
    parser.add_argument("--rotate", type=int, default=1, metavar="N", help="one N-th, another with every commit")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests on the whole copy first")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes side by side")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    options = parser.parse_args()
    picked = rotated(chosen(options.ids, options.quick), options.rotate, _commits())
    os.environ.setdefault("JAVA_TOOL_OPTIONS", jvms.options())
    trials: list[Trial] = []
    begun = time.monotonic()
    for trial in _trials(picked, options.jobs, options.unchecked):
        trials.append(trial)
        name = f"{trial.id}.{trial.number}"
        print(
            f"{len(trials):>4}/{len(picked)} {name:<6} {trial.outcome:<8} {trial.seconds:5.1f} s  {trial.said}",
            flush=True,
        )
    return _conclude(trials, time.monotonic() - begun, options.json)


def _conclude(trials: Sequence[Trial], seconds: float, file: Path | None) -> int:
    of = {outcome: [t for t in trials if t.outcome == outcome] for outcome in ("caught", "survived", "invalid")}
    lines = {trial.id for trial in trials}
    proven = lines - {trial.id for trial in (*of["survived"], *of["invalid"])}
    if file is not None:
        counts = {outcome: len(some) for outcome, some in of.items()}
        result = {
            "lines": len(lines),
            "proven": len(proven),
            "mutations": len(trials),
            **counts,
            "seconds": round(seconds),
        }
        file.write_text(json.dumps({**result, "trials": [asdict(trial) for trial in trials]}, indent=2) + "\n")
    for outcome in ("survived", "invalid"):
        for trial in of[outcome]:
            print(f"{outcome.upper()} {trial.id}.{trial.number} in {trial.file}: {trial.said}")
    print(
        f"{len(lines)} capabilities, {len(trials)} mutations: {len(of['caught'])} caught, {len(of['survived'])} survived, "
        f"{len(of['invalid'])} invalid, in {seconds:.0f} s"
    )
    return 0 if len(of["caught"]) == len(trials) else 1


if __name__ == "__main__":
    sys.exit(main())
