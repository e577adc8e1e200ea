"""`make nightly`: what takes hours. Interrupt it at any time; the next call continues with the parts that are left.

Every part is an ordinary command that can also be run by hand (`make nightly PARTS="simulation slow"` runs some of them).
Results are kept in `artifacts/nightly/`, one folder for each commit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tiers.budgets import VARIABLE
from tests.tiers.profiles import SIZE

ROOT = Path(__file__).resolve().parents[2]
PIPELINES = ("kafka-kafka", "kafka-postgres", "kafka-files-s3", "kafka-delta")


@dataclass(frozen=True, slots=True)
class NightlyPart:
    """One command. `command(size, report)` builds it; it writes its own result as JSON to `report`, if it can."""

    name: str
    proves: str
    command: Callable[[float, Path], list[str]]


def _module(*words: object) -> list[str]:
    return [sys.executable, "-m", *map(str, words)]


def _scaled(count: int, size: float) -> int:
    return max(1, round(count * size))


def _matrix(*more: str) -> Callable[[float, Path], list[str]]:
    """A walk through all cells of a fault matrix. What an interrupted walk has done is not done again."""

    def command(size: float, report: Path) -> list[str]:
        done = ["--after", str(report)] if report.exists() else []
        limit = ["--at-most", str(round(5_400 * size))] if size < 1 else []
        return _module("chaos", "run", *more, "--matrix", "--rounds", 0, *done, *limit, "--json", report)

    return command


def _rounds(count: int, *more: str) -> Callable[[float, Path], list[str]]:
    return lambda size, report: _module("chaos", "run", *more, "--rounds", _scaled(count, size), "--json", report)


PARTS = (
    NightlyPart(
        "properties",
        "every property test with ten times the examples of CI, fresh ones every night",
        lambda size, _: _module("pytest", "-q", "-m", "hypothesis and not slow", "tests/unit", "tests/contract/state"),
    ),
    NightlyPart(
        "everything", "every test of CI, whatever has changed", lambda size, _: _module("tests.tiers", "ci", "--all")
    ),
    NightlyPart("slow", "tests marked slow", lambda size, _: _module("pytest", "-q", "-m", "slow", "--timeout=3600")),
    NightlyPart(
        "simulation",
        "the checkpoint protocol under simulated crashes, 10,000 seeds",
        lambda size, report: _module("chaos", "simulate", "--seeds", _scaled(10_000, size), "--json", report),
    ),
    NightlyPart(
        "mutations",
        "each protocol rule broken once, and found by the simulation",
        lambda size, _: _module("tests.recovery.mutations", "--seeds", _scaled(400, max(size, 0.5))),
    ),
    NightlyPart(
        "prove",
        "each proven capability broken as tests/capabilities.toml says, and noticed by its tests",
        lambda size, report: _module("tests.prove", "--jobs", 2, "--rotate", max(1, round(1 / size)), "--json", report),
    ),
    *(
        NightlyPart(f"pipeline-{name}", f"20 faults between real servers, {name}", _rounds(20, "--pipeline", name))
        for name in PIPELINES
    ),
    NightlyPart(
        "hashmap", "20 faults on the heap backend", _rounds(20, "--backend", "hashmap", "--unique", "--seed", "8")
    ),
    *(
        NightlyPart(
            kind, f"20 faults while rows wait in the state of a {kind} for timers", _rounds(20, "--function", kind)
        )
        for kind in ("stateful-processor", "group-state")
    ),
    NightlyPart(
        "savepoints", "deaths at every step of savepoints, stops and starts from them", _matrix("--savepoints")
    ),
    NightlyPart(
        "import",
        "a query of Spark with 100,000 keys, imported and continued under kills",
        lambda size, report: _module(
            "chaos", "import", "--keys", _scaled(100_000, size), "--rounds", _scaled(10, size), "--json", report
        ),
    ),
    NightlyPart(
        "showcase",
        "the showcase, with its driver, executors, workers, broker and database killed in turn, verified row by row",
        lambda size, report: _module("chaos", "showcase", "--kills", _scaled(20, size), "--json", report),
    ),
    NightlyPart(
        "histories",
        "checkpoint directories restored from a backup and started from a copy, refused, and continued under kills",
        _matrix("--histories"),
    ),
    NightlyPart("rescales", "deaths at every step of rescales of a running job", _matrix("--in-place")),
    NightlyPart("matrix", "every cell of the fault matrix", _matrix()),
    NightlyPart(
        "soak",
        "3,000 epochs without growth",
        # A shorter one measures how the JVM warms up: 90 epochs "grew" by 23 % of memory.
        lambda size, report: _module("chaos", "soak", "--epochs", _scaled(3_000, max(size, 0.2)), "--json", report),
    ),
)


class Results:
    """What is known about the parts at one commit. Written after every part, so an interruption loses at most one."""

    def __init__(self, folder: Path, commit: str) -> None:
        self.folder, self._file = folder, folder / "nightly.json"
        folder.mkdir(parents=True, exist_ok=True)
        self.parts: dict[str, dict[str, Any]] = {}
        if self._file.exists():
            self.parts = json.loads(self._file.read_text())["parts"]
        self._commit = commit

    def passed(self, part: NightlyPart, size: float) -> bool:
        """Whether the part has passed at this commit, at this size or a larger one."""
        found = self.parts.get(part.name)
        return found is not None and found["ok"] and found["size"] >= size

    def note(self, part: NightlyPart, size: float, ok: bool, seconds: float, last_line: str) -> None:
        entry = {"ok": ok, "size": size, "seconds": round(seconds, 1), "proves": part.proves, "last_line": last_line}
        self.parts[part.name] = entry
        self._file.write_text(json.dumps({"commit": self._commit, "parts": self.parts}, indent=2) + "\n")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make nightly", description="What takes hours, in parts that can be resumed.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(part.name for part in PARTS)}")
    parser.add_argument(
        "--size", type=float, default=1.0, help="a share of the full number of rounds, seeds and epochs"
    )
    parser.add_argument("--again", action="store_true", help="also run parts that have passed at this commit")
    options = parser.parse_args(words)
    unknown = set(options.parts) - {part.name for part in PARTS}
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    chosen = [part for part in PARTS if not options.parts or part.name in options.parts]
    commit = _commit()
    results = Results(ROOT / "artifacts" / "nightly" / commit, commit)
    for part in chosen:
        if results.passed(part, options.size) and not options.again:
            print(f"-- {part.name:<22} passed before", flush=True)
            continue
        try:
            _run(part, options.size, results)
        except KeyboardInterrupt:
            print(f"\n{part.name} was interrupted. Call `make nightly` again to go on from here.")
            return 130
    return _summary(chosen, results)


def _run(part: NightlyPart, size: float, results: Results) -> None:
    log = results.folder / f"{part.name}.log"
    environment = {**os.environ, VARIABLE: "nightly", SIZE: str(size)}
    begun = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            part.command(size, results.folder / f"{part.name}.json"), cwd=ROOT, env=environment,
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # A walk that is asked to stop counts its rows and writes what it has done.
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    seconds = time.monotonic() - begun
    results.note(part, size, code == 0, seconds, lines[-1][:200] if lines else "")
    print(
        f"-- {part.name:<22} {'ok' if code == 0 else 'FAILED':<6} {seconds:6.0f} s  {log.relative_to(ROOT)}", flush=True
    )


def _summary(chosen: Sequence[NightlyPart], results: Results) -> int:
    failed = [part.name for part in chosen if not results.parts.get(part.name, {}).get("ok")]
    total = sum(results.parts[part.name]["seconds"] for part in chosen)
    print(f"\n{len(chosen) - len(failed)} of {len(chosen)} parts passed, {total / 60:.0f} minutes in all")
    for name in failed:
        print(f"FAILED {name}: {results.parts[name]['last_line']}")
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def _commit() -> str:
    told = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    dirty = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return (told.stdout.strip() or "unknown") + ("-changed" if dirty else "")
