"""Runs the parts of a tier, two at a time, and says how long each took, which tests were slowest, and what failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.tiers import jvms, selection
from tests.tiers.budgets import VARIABLE
from tests.tiers.parts import Part, left_out, next_part
from tests.tiers.summary import Summary
from tests.tiers.times import NOTABLE_S, Kind, RunTimes

ROOT = Path(__file__).resolve().parents[2]
SIDE_BY_SIDE = 2
"""As many parts as the machine of CI has cores."""
PROGRESS_S = 60.0
_MARKED = {"fast": "not slow and not large", "ci": "not slow"}
NO_TESTS = 5
"""pytest's exit code when every test was deselected."""


@dataclass(slots=True)
class Running:
    """A part whose pytest process runs."""

    part: Part
    process: subprocess.Popen[bytes]
    log: Path
    junit: Path
    begun: float

    def percent(self) -> str:
        """How far pytest says it is."""
        text = self.log.read_text(errors="replace")[-2000:]
        found = [word for word in text.replace("[", " ").replace("]", " ").split() if word.endswith("%")]
        return found[-1] if found else "begins"


@dataclass(frozen=True, slots=True)
class Tier:
    """What a run of parts shares."""

    name: str
    artifacts: Path
    all_parts: tuple[Part, ...]
    """Also those that do not run: a path of one is left out of the others."""
    more: Sequence[str] = ()
    """Arguments for pytest."""
    selection: Path | None = None
    """The file that says which tests run (`tests/tiers/selection.py`). None: all of them."""

    def kind(self, parts: Sequence[Part]) -> Kind:
        if {*parts} != {*self.all_parts} or self.more:
            return Kind.SOME_PARTS  # pytest's arguments may narrow every part
        left_out = [] if self.selection is None else json.loads(self.selection.read_text())["left_out"]
        return Kind.SELECTED if left_out else Kind.WHOLE


def run_parts(tier: Tier, parts: Sequence[Part]) -> int:
    """Run these parts. Returns 0 if every test passed. The last line printed is a closing line in pytest's form."""
    tier.artifacts.mkdir(parents=True, exist_ok=True)
    waiting = list(parts)
    running: list[Running] = []
    failed: list[Running] = []
    part_seconds: dict[str, float] = {}
    summary = Summary()
    begun, busy, told = time.monotonic(), _cpu(), time.monotonic()
    try:
        while waiting or running:
            while len(running) < SIDE_BY_SIDE and (part := next_part(waiting, [each.part for each in running])):
                waiting.remove(part)
                running.append(_start(tier, part))
            time.sleep(0.2)
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                fine = _ended(each, summary)
                part_seconds[each.part.name] = time.monotonic() - each.begun
                if not fine:
                    failed.append(each)
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                where = ", ".join(f"{each.part.name} {each.percent()}" for each in running)
                print(f"   {told - begun:5.0f} s: {where}; {len(waiting)} parts to come", flush=True)
    finally:
        for each in running:
            each.process.terminate()
    for each in failed:
        print(f"\n-- what failed in {each.part.name} ({each.log.relative_to(ROOT)})", flush=True)
        print(_failures(each.log))
    took = time.monotonic() - begun
    print(f"-- the cores were idle for {100 * _idle_share(busy, _cpu()):.0f} % of {took:.0f} s; the slowest tests:")
    for name, seconds in summary.slowest(10):
        print(f"   {seconds:6.1f} s  {name}")
    for name in summary.failed:
        print(name)
    print(summary.closing_line(took), flush=True)
    run = RunTimes(
        date=time.strftime("%Y-%m-%d"),
        commit=_commit(),
        kind=tier.kind(parts),
        passed=not failed,
        took_s=round(took),
        parts={name: round(seconds) for name, seconds in part_seconds.items()},
        tests={name: round(seconds) for name, seconds in summary.slowest(1000) if seconds > NOTABLE_S},
    )
    # For `python -m tests.tiers record`.
    (tier.artifacts / f"{tier.name}-times.json").write_text(json.dumps(asdict(run), indent=1))
    return 1 if failed else 0


def _commit() -> str:
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def _start(tier: Tier, part: Part) -> Running:
    stem = part.name.replace(" ", "-")
    log = tier.artifacts / f"{tier.name}-{stem}.log"
    junit = tier.artifacts / f"{tier.name}-{stem}.xml"
    junit.unlink(missing_ok=True)
    ignored = [f"--ignore={path}" for path in left_out(part, tier.all_parts)]
    command = [
        sys.executable, "-u", "-m", "pytest", "-m", _MARKED[tier.name], *part.paths, *ignored, f"--junitxml={junit}",
        "-o", "junit_duration_report=total", *tier.more,
    ]  # fmt: skip
    environment = {"JAVA_TOOL_OPTIONS": jvms.options(), **os.environ, VARIABLE: tier.name}
    if tier.selection is not None:
        environment[selection.VARIABLE] = str(tier.selection)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    return Running(part, process, log, junit, time.monotonic())


def _ended(ended: Running, summary: Summary) -> bool:
    code = ended.process.returncode
    # Pytest writes its report last. A process that something else has ended has none, whatever its code says.
    whole = ended.junit.exists()
    fine = whole and code in (0, NO_TESTS)
    if whole:
        summary.add(ended.junit)
    else:
        summary.outcomes["error"] += 1
        summary.failed.append(f"ERROR {ended.part.name}: pytest ended with {code} before it was done")
    took = time.monotonic() - ended.begun
    print(f"-- {ended.part.name:<12} {'ok' if fine else 'FAILED':<6} {took:5.0f} s", flush=True)
    return fine


def _failures(log: Path) -> str:
    """What pytest says about failures, without its list of dots."""
    text = log.read_text(errors="replace")
    begins = max(text.find("= FAILURES ="), 0) or max(text.find("= ERRORS ="), 0)
    return text[begins:][-20_000:]


def _cpu() -> tuple[int, int]:
    """Idle and all ticks of the machine's cores."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return 0, 1
    return ticks[3] + ticks[4], sum(ticks)


def _idle_share(before: tuple[int, int], after: tuple[int, int]) -> float:
    return (after[0] - before[0]) / max(1, after[1] - before[1])
