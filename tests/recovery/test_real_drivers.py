"""Two and three real processes that all believe to own one job, on real storage."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recovery.drivers.counter import LAYOUT, LOST, REFUSED, read
from tests.waiting import eventually
from tidegate.checkpoint.effects import perform
from tidegate.checkpoint.job_log.entry import EntryKind
from tidegate.checkpoint.job_log.log import history, newest
from tidegate.storage import LocalStorage

REPOSITORY = Path(__file__).parents[2]
PAUSES = Path(__file__).parent / "drivers" / "pausing.py"
N = 60


class Drivers:
    """Starts drivers, wakes them, and looks at what they left."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *flags: str, pause_at: str = "", times: int = 2) -> subprocess.Popen[bytes]:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        if pause_at:
            environment |= {
                "TIDEGATE_FAULTS": str(PAUSES), "PAUSE_AT": pause_at, "PAUSE_TIMES": str(times),
                "PAUSE_FOLDER": str(folder),
            }  # fmt: skip
        command = [sys.executable, "-m", "tests.recovery.drivers.counter", str(self.root), name, str(N), *flags]
        process = subprocess.Popen(command, env=environment, cwd=REPOSITORY)
        self.processes.append(process)
        return process

    def wait_paused(self, name: str) -> None:
        eventually(lambda: (self.root / name / "paused").exists())

    def wake(self, name: str) -> None:
        (self.root / name / "go").touch()

    def numbers(self) -> list[int]:
        with sqlite3.connect(self.root / "table.db") as table:
            return [n for (n,) in table.execute("select number from rows order by number")]

    def check(self) -> None:
        """Every number once; the log is whole; everything retained can be read; the next run leaves nothing else."""
        assert self.start("afterwards").wait(60) == 0
        assert self.numbers() == list(range(1, N + 1))
        storage = LocalStorage(self.root / "storage")
        last = perform(newest(LAYOUT), storage)
        assert last is not None
        entries = perform(history(LAYOUT, last.slot), storage)
        needed = set()
        for ref in entries[-1].retained:
            needed |= {ref.metadata, ref.metadata.replace("_metadata", "_committed")}
            needed |= read(ref.metadata, storage.get(ref.metadata)).files
        assert last.base is not None
        body = json.loads(storage.get(last.base.metadata))
        assert json.loads(storage.get(body["file"])) == {"sum": N * (N + 1) // 2}
        assert {o.path for o in storage.list(LAYOUT.root) if LAYOUT.parse(o.path)} <= needed

    def end(self) -> None:
        """Kill whatever runs."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def longest_silence_s(self) -> float:
        """How long an owner showed no life, also one that has not noticed yet that it was replaced."""
        files = [[float(word) for word in file.read_text().split()] for file in self.root.glob("*/silence")]
        return max(max(longest_s, time.monotonic() - shown) for longest_s, shown in files)

    def claims(self) -> list[str]:
        """Who owned the job until its work was done. Whoever asks a moment later may own it then."""
        storage = LocalStorage(self.root / "storage")
        last = perform(newest(LAYOUT), storage)
        assert last is not None
        working = itertools.takewhile(
            lambda e: e.kind is not EntryKind.END, perform(history(LAYOUT, last.slot), storage)
        )
        return [entry.owner for entry in working if entry.kind is EntryKind.CLAIM]


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    started = Drivers(tmp_path)
    yield started
    started.end()


@pytest.mark.parametrize(
    "point",
    [
        "driver.checked",  # believes to be the owner, has published nothing yet
        "publish.1-metadata",  # metadata is there, its entry is not
        "publish.2-entry",  # published, not committed
        "release.1-commit",  # committed, not recorded
        "clean.1-marked",  # knows what to delete
        "clean.2-metadata",
        "sweep.1-listed",
    ],
)
def test_a_driver_paused_at_any_step_is_replaced_and_does_no_harm_when_it_wakes(drivers: Drivers, point: str) -> None:
    old = drivers.start("old", pause_at=point)
    drivers.wait_paused("old")
    new = drivers.start("new")
    assert new.wait(60) == 0
    drivers.wake("old")
    assert old.wait(60) == LOST
    drivers.check()


def test_two_processes_that_continue_at_the_same_moment(drivers: Drivers) -> None:
    """The old one wakes while the new one is in the middle of its work."""
    old = drivers.start("old", pause_at="publish.1-metadata")
    drivers.wait_paused("old")
    new = drivers.start("new", pause_at="publish.2-entry", times=1)
    drivers.wait_paused("new")
    drivers.wake("old")
    drivers.wake("new")
    assert (old.wait(60), new.wait(60)) == (LOST, 0)
    drivers.check()


def test_three_in_turn(drivers: Drivers) -> None:
    first = drivers.start("first", pause_at="publish.2-entry")
    drivers.wait_paused("first")
    second = drivers.start("second", pause_at="clean.1-marked", times=1)
    drivers.wait_paused("second")
    third = drivers.start("third", pause_at="publish.1-metadata", times=1)
    drivers.wait_paused("third")
    drivers.wake("first")
    assert first.wait(60) == LOST
    drivers.wake("second")
    assert second.wait(60) == LOST
    drivers.wake("third")
    assert third.wait(60) == 0
    drivers.check()


def test_a_stopped_process_is_replaced_and_finds_out_when_it_continues(drivers: Drivers) -> None:
    old = drivers.start("old", pause_at="driver.checked")
    drivers.wait_paused("old")
    old.send_signal(signal.SIGSTOP)
    drivers.wake("old")
    new = drivers.start("new")
    assert new.wait(60) == 0
    old.send_signal(signal.SIGCONT)
    assert old.wait(60) == LOST
    drivers.check()


def test_two_supervised_drivers_do_not_fight(drivers: Drivers) -> None:
    """Both are started again and again, as a supervisor would; one owns the job and the other is refused each time.

    An owner whose process gets no time for longer than the patience looks dead, and is rightly replaced. Where the machine did
    that, both begin again in another place, with more patience.
    """
    root = drivers.root
    for patience_ms in (5_000, 20_000, 60_000):
        drivers.root = root / f"patience-{patience_ms}"
        drivers.root.mkdir()
        winner, refused = supervise_two(drivers, patience_ms)
        if drivers.claims() == [winner] or drivers.longest_silence_s() * 1000 < patience_ms:
            break
        drivers.end()
    assert drivers.claims() == [winner]
    assert refused > 0
    drivers.check()


def supervise_two(drivers: Drivers, patience_ms: int) -> tuple[str, int]:
    """Restart two drivers until one of them has ended its work. Return its name, and how often one was refused."""
    # Six checkpoints last longer than the patience, so the other driver is refused before the work ends.
    flags = ("--beat", "--slow", str(patience_ms * 2 // 5), "--patience", str(patience_ms))
    running = {name: drivers.start(name, *flags) for name in ("left", "right")}
    refused = 0
    while True:
        for name, process in list(running.items()):
            code = process.poll()
            if code is None:
                continue
            if code == 0:
                return name, refused
            assert code in (LOST, REFUSED)
            refused += 1
            running[name] = drivers.start(name, *flags)
        time.sleep(0.02)
