"""How things are measured: contestants in turn, medians with their spread, ratios taken within one round.

The machine is never quiet. So contestants run A B C A B C …, a slow minute hits all of them, and a ratio is the median
of the ratios of each round. Absolute figures of two runs are not compared.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Figure:
    """What several samples of one quantity say: the median, and the quartiles around it."""

    unit: str
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.samples) < 2:
            return self.samples[0], self.samples[0]
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, high

    def as_json(self) -> dict[str, Any]:
        low, high = self.quartiles
        return {
            "unit": self.unit,
            "median": self.median,
            "q1": low,
            "q3": high,
            "iqr": high - low,
            "samples": list(self.samples),
        }


def interleave(
    contestants: Mapping[str, Callable[[], float]], repetitions: int, *, what: str = "", unit: str = ""
) -> dict[str, Figure]:
    """Run every contestant once per round. Each call gives one sample; a raised error ends the whole benchmark."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for round_number in range(1, repetitions + 1):
        for name, measure in contestants.items():
            begin = time.monotonic()
            sample = measure()
            samples[name].append(sample)
            took = time.monotonic() - begin
            say(f"{what} {round_number}/{repetitions} {name}: {sample:,.0f} {unit} ({took:.1f} s)")
    return {name: Figure(unit, tuple(values)) for name, values in samples.items()}


def ratio(
    figures: Mapping[str, Figure],
    above: str,
    below: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> dict[str, Any] | None:
    """`above` to `below`, round by round; None when one of them did not run. At most one bound is given."""
    if above not in figures or below not in figures:
        return None
    rounds = [a / b for a, b in zip(figures[above].samples, figures[below].samples, strict=True)]
    paired = Figure("", tuple(rounds))
    low, high = paired.quartiles
    return bounded(paired.median, at_least=at_least, at_most=at_most) | {"q1": low, "q3": high, "rounds": rounds}


def bounded(value: float, *, at_least: float | None = None, at_most: float | None = None) -> dict[str, Any]:
    """A ratio with what is wanted of it, as the file has it."""
    wanted = at_least if at_most is None else at_most
    reached = None if wanted is None else value <= wanted if at_most is not None else value >= wanted
    return {"value": value, "wanted": wanted, "at_most": at_most is not None, "reached": reached}


def machine() -> dict[str, Any]:
    """Where and with what the figures were taken."""
    versions = {}
    for package in ("pyspark", "pyarrow", "rocksdict", "msgspec", "numpy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": _java(),
        "load_average": list(os.getloadavg()),
        "versions": versions,
    }


class Provenance:
    """Where a report comes from: begun before the measurement, so that the load of the machine is that which it found."""

    def __init__(self, arguments: Sequence[str], reduced: Mapping[str, Any]) -> None:
        self._arguments, self._reduced = list(arguments), dict(reduced)
        self._began, self._clock, self._load = datetime.now(UTC), time.monotonic(), os.getloadavg()

    def as_json(self) -> dict[str, Any]:
        return {
            "command": shlex.join(["python", "-m", "benchmarks", *_without_output(self._arguments)]),
            "reduced": self._reduced,
            "commit": source_commit(),
            "began": self._began.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._clock, 1),
            "load_average": {"before": list(self._load), "after": list(os.getloadavg())},
        }


def source_commit(root: Path = ROOT) -> str | None:
    """The commit that changed `src` last, with a mark if the files differ from it; None outside a repository.

    Commits that change benchmarks or pages only do not make figures old.
    """
    try:
        log = ["git", "-C", str(root), "log", "-1", "--format=%h", "--abbrev=10", "--", "src"]
        commit = subprocess.run(log, capture_output=True, text=True, check=True).stdout.strip()
        status = ["git", "-C", str(root), "status", "--porcelain", "--", "src"]
        changed = subprocess.run(status, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}, changed" if changed else commit or None


def _without_output(arguments: Sequence[str]) -> list[str]:
    """Arguments without the file that the report goes to, which says nothing about the run."""
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument != "--json" and not argument.startswith("--json="):
            kept.append(argument)
        skip = argument == "--json"
    return kept


def drop_cache(folder: Path) -> None:
    """Have the next reader of these files read them from disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def say(text: str) -> None:
    """Progress, for whoever waits."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def write(path: Path, report: Mapping[str, Any]) -> None:
    """The report as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(report, indent=2) + "\n")
    partial.replace(path)


def table(report: Mapping[str, Any]) -> str:
    """Figures and ratios of a report, for a person."""
    lines: list[list[str]] = []
    for name, figure in report.get("figures", {}).items():
        spread = f"{_number(figure['q1'])} – {_number(figure['q3'])}"
        lines.append([name, _number(figure["median"]), figure["unit"], spread, f"n={len(figure['samples'])}"])
    text = _aligned(["figure", "median", "unit", "quartiles", ""], lines)
    ratios = [
        [name, f"{r['value']:.2f}", _wanted(r), {True: "yes", False: "NO"}.get(r.get("reached"), "")]
        for name, r in report.get("ratios", {}).items()
    ]
    if ratios:
        text += "\n\n" + _aligned(["ratio", "value", "wanted", "reached"], ratios)
    for name, why in report.get("skipped", {}).items():
        text += f"\n\nskipped {name}: {why}"
    return text


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [head, *rows])


def _wanted(ratio: Mapping[str, Any]) -> str:
    wanted = ratio.get("wanted")
    return "" if wanted is None else f"{'<=' if ratio['at_most'] else '>='} {wanted:g}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    try:
        told = subprocess.run([f"{home}/bin/java" if home else "java", "-version"], capture_output=True, text=True)
    except OSError:
        return "unknown"
    return told.stderr.splitlines()[0] if told.stderr else "unknown"
