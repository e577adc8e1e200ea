"""A history that comes back, and deaths around it: `chaos run --histories`.

*Storage rolled back*: the checkpoint directory is backed up, the job continues and dies, and the backup is put back in its
place. A plain start must be refused, because the target has output that the directory does not know. The user then continues
in one of the two documented ways, and somebody dies meanwhile.

*Storage copied*: the job is started from a copy of its directory while the original runs, is killed and is restarted. The
start must be refused. The user then starts the copy as another job, or as a new line of history, and its driver dies meanwhile.

What is exact at the end follows from the names of the files, which say to which history a row belongs. A restored job has
every row once. What a lost history has written stands next to that, unchanged. A fork has every row since its checkpoint once.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import tidegate as tg
from chaos.matrix import Victim
from chaos.moved import NAME, OUT
from chaos.served import Served
from chaos.tally import Counted, Verdict, verify
from chaos.torment import ARRIVAL_S, RECOVERY_S, Hang, names_of_entries, read_entry, say
from tests.servers.process import free_ports
from tests.waiting import remove
from tidegate.checkpoint.job_log.start import DirectoryMoved
from tidegate.connectors.outcome import ForeignOutput
from tidegate.testing.faults import VARIABLE, FaultOrders
from tidegate.testing.processes import descendants, send, wait_gone

JOB = "counted"
REFUSED = 3
"""The exit code of a start that was refused."""
SUBMITTED = "Job has been submitted"
"""What a start prints that was not refused."""
MOST_UNSEEN = 600
"""A restored job and a fork read again what came since their checkpoint. A busy machine should not take long for that."""
KNOWN_ROWS = 60
"""A backup has counted at least so many rows: its state and its output must continue, too."""
LOST_ROWS = 60
"""A history has written at least so many rows since the backup before it is lost."""
ARRIVAL_AFTER_START_S = ARRIVAL_S + 90.0
"""How long a driver that is started may take to reach a step. A busy machine takes a minute until it claims."""
RANDOM_DELAY_S = 12.0
"""The driver dies up to so long after it was started: while it starts, claims, restores, or runs."""


class Move(StrEnum):
    ACCEPT = "storage rolled back, output accepted"
    RESTART = "storage rolled back, new line of history"
    FORK = "storage copied, fork by name"
    BRANCH = "storage copied, new line of history"

    @property
    def is_copy(self) -> bool:
        return self in (Move.FORK, Move.BRANCH)


class State(StrEnum):
    """Of the job when its directory is backed up."""

    FROZEN = "frozen"
    """As a file system takes a snapshot of one moment."""
    STOPPED = "stopped"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class HistoryCell:
    """A move, and the step at which somebody dies when the user continues."""

    move: Move
    point: str
    victim: Victim

    def __str__(self) -> str:
        return f"{self.move} / {self.point} / {self.victim}"


_STARTING = ("claim.2-decided", "claim.3-won", "recover.2-learnt", "publish.1-metadata", "publish.2-entry")
"""Of a driver that starts, until its first checkpoint. After the first of them, nothing is written yet."""
_ENDING = ("epoch.2-collected", "epoch.4-recorded", "publish.1-metadata", "publish.2-entry", "release.2-committed")
"""Of a driver that runs."""
_IN_TASKS = {
    "task.1-located": Victim.PYTHON_WORKER,
    "files.2-renamed": Victim.PYTHON_WORKER,
    "upload.1-begun": Victim.EXECUTOR,
}


def history_cells() -> Iterator[HistoryCell]:
    """The driver dies at each step of its start and of its first output. After a restore, tasks die, too: a host may have state
    of the lost history on its disk."""
    for move in Move:
        yield from (HistoryCell(move, point, Victim.DRIVER) for point in (*_STARTING, "release.2-committed"))
        if not move.is_copy:
            yield from (HistoryCell(move, point, victim) for point, victim in _IN_TASKS.items())


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy of the checkpoint directory."""

    directory: Path
    base: Path
    """The checkpoint from which a plain start would continue, as a path below the directory."""
    counted: Counted
    entries: frozenset[str]
    """The log entries of the job."""


@dataclass(slots=True)
class Fork:
    """A job that was started from a copy, and has ended."""

    out: Path
    lineage: str
    counted: Counted
    """Where it began."""
    sent: int
    """It was stopped when it had published so many rows of the feed, those of before included."""


class Histories(Served):
    """A job whose checkpoint directory is restored and copied."""

    def __init__(self, cluster: Any, orders: Any, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(cluster, orders, folder, options)
        self.most_unseen = MOST_UNSEEN
        self._chance = random.Random(options.seed)
        self._moves = itertools.cycle(self._chance.sample(list(Move), len(Move)))
        self._number = itertools.count(1)
        self._directory = folder / "checkpoints"
        # The driver of a fork reaches the same steps as the original's.
        self._orders_of_fork = FaultOrders(folder / "orders-of-fork")
        self._rows: dict[Path, list[dict[str, Any]]] = {}
        """The rows of each published file. It appears whole and never changes."""
        self._lost: dict[Path, str] = {}
        """The files of lost histories, with their digests."""
        self._forks: list[Fork] = []
        self._wrong: list[str] = []
        self.refused: Counter[str] = Counter()

    def run_command(self, directory: Path, port: int, start: list[str]) -> list[str]:
        # A busy machine takes longer to stop a job than the default allows.
        return [*super().run_command(directory, port, start), "--stop-within", "3 min"]

    # -- one move and one death ----------------------------------------------------------------------------------------

    def strike(self, cell: HistoryCell) -> bool:  # type: ignore[override]
        return self._make(cell.move, cell)

    def at_random(self) -> None:
        """The driver that continues dies at no particular moment."""
        self._make(next(self._moves), None)

    def _make(self, move: Move, cell: HistoryCell | None) -> bool:
        name = f"{move} / at random / {Victim.DRIVER}" if cell is None else str(cell)
        self._await_known_rows()
        self._await_checkpoint(self._slots(), RECOVERY_S)
        begun = time.monotonic()
        try:
            reached = self._copy(move, cell) if move.is_copy else self._roll_back(move, cell)
        finally:
            self.most_unseen = MOST_UNSEEN
            self._hold.clear()
            self.orders.clear()
            self._orders_of_fork.clear()
        self.outcomes[str(move)] += 1
        if not reached:
            say(f"  {name}: not reached")
            return False
        self.hits[name] += 1
        say(f"  {name}: all of it took {time.monotonic() - begun:.1f} s")
        return True

    def _await_known_rows(self) -> None:
        latest = time.monotonic() + RECOVERY_S
        while self.visible() < KNOWN_ROWS:
            if time.monotonic() > latest:
                raise Hang(f"the job has not published {KNOWN_ROWS} rows within {RECOVERY_S:g} s")
            time.sleep(0.1)

    # -- storage rolled back -------------------------------------------------------------------------------------------

    def _roll_back(self, move: Move, cell: HistoryCell | None) -> bool:
        """Back up, run on, die, restore; be refused; continue, and die again."""
        self._hold.set()
        state = self._chance.choice(list(State))
        backup = self._back_up(state)
        self.outcomes[f"backup of a {state} job"] += 1
        self._await_lost_rows(backup)
        self._kill_at_step()
        self._note_lost(backup)
        remove(self._directory)
        # A worker of the killed driver may still acknowledge a checkpoint, also between these two lines.
        shutil.copytree(backup.directory, self._directory, dirs_exist_ok=True)
        self._expect_refusal(ForeignOutput.code, self.launch, [self._directory, self.folder / "out"])
        return self._continue(move, cell, backup)

    def _continue(self, move: Move, cell: HistoryCell | None, backup: Backup) -> bool:
        """Start the restored job as the user decides, while somebody dies, and bring it back with a plain start."""
        decision = {
            Move.ACCEPT: ["--accept-foreign-output"],
            Move.RESTART: ["--fresh", "-s", str(self._directory / backup.base)],
        }[move]
        begun = time.monotonic()
        order = None if cell is None else self.orders.give(cell.point, _death(cell.victim))
        self.start = decision
        self.driver = self.launch()
        reached = self._dies(self.driver, self.orders, order)
        victim = Victim.DRIVER if cell is None else cell.victim
        if reached and victim is Victim.DRIVER:
            if self._has_new_entries(JOB, backup, self._directory):
                self.driver = self.launch()
            else:
                # The decision died with the driver that was told.
                self._expect_refusal(ForeignOutput.code, self.launch, [self._directory, self.folder / "out"])
                self.start = decision
                self.driver = self.launch()
        if reached:
            self.kills[f"{victim} SIGKILL"] += 1
        self._await_well(self.driver, self._directory / JOB)
        self.recovery_s[str(move)].append(round(time.monotonic() - begun, 2))
        return reached

    def _back_up(self, state: State) -> Backup:
        """The job runs afterwards."""
        assert self.driver is not None
        directory = self.folder / "backups" / str(next(self._number))
        match state:
            case State.FROZEN:
                self._snapshot(directory)
            case State.STOPPED:
                below = self._below()
                self._end(self.driver)
                self._await_nobody(below)
                shutil.copytree(self._directory, directory)
                self.driver = self.launch()
            case State.KILLED:
                self._kill_at_step()
                shutil.copytree(self._directory, directory)
                self.driver = self.launch()
        return read_backup(directory)

    def _snapshot(self, directory: Path) -> None:
        """Copy the checkpoint directory while every process of the job is frozen."""
        assert self.driver is not None
        processes = [self.driver.pid, *descendants(self.driver.pid)]
        send(processes, signal.SIGSTOP)
        try:
            for worker in self.cluster.workers:
                self.cluster.pause(worker.index)
            shutil.copytree(self._directory, directory)
        finally:
            for worker in self.cluster.workers:
                self.cluster.resume(worker.index)
            send(processes, signal.SIGCONT)

    def _await_lost_rows(self, backup: Backup) -> None:
        """Wait until the job has published rows that the backup does not know."""
        latest = time.monotonic() + RECOVERY_S
        while sum(map(len, self._after(backup.counted).values())) < LOST_ROWS:
            if not self.is_up() or time.monotonic() > latest:
                raise Hang("after a backup, the job did not publish more rows")

    def _note_lost(self, backup: Backup) -> None:
        """What the target has of the history that is lost now. Its rows are there once, as those of any other."""
        lost = self._after(backup.counted)
        for path, rows in lost.items():
            if any(backup.counted.has(row) for row in rows):
                self._wrong.append(f"{path.name} has rows of before and after a backup")
        numbers = Counter((row["k"], row["n"]) for rows in self._current().values() for row in rows)
        repeated = sum(times - 1 for times in numbers.values())
        if repeated:
            self._wrong.append(f"{repeated} rows were in the target twice before a restore")
        self._lost |= {path: digest(path) for path in lost}

    def _after(self, counted: Counted) -> dict[Path, list[dict[str, Any]]]:
        """The files of the current history with rows that a checkpoint has not counted."""
        found = self._current().items()
        return {path: rows for path, rows in found if not all(counted.has(row) for row in rows)}

    # -- storage copied ------------------------------------------------------------------------------------------------

    def _copy(self, move: Move, cell: HistoryCell | None) -> bool:
        """Copy the directory of the running job, start the copy and be refused; then fork it, and die. The original is killed and
        restarted meanwhile, and no more than that happens to it."""
        number = next(self._number)
        directory = self.folder / "copies" / str(number)
        self._snapshot(directory)
        backup = read_backup(directory)
        original = self.driver
        order = self.orders.give(self._chance.choice(_ENDING), "kill")
        self._expect_refusal(DirectoryMoved.code, lambda: self._launch_copy(directory, []), [directory])
        if not self.arrived(order):
            raise Hang("the original did not reach a step of a running job while a copy of it was refused")
        self.kills["driver of the original SIGKILL"] += 1
        self._await_restarted(original)
        # Both read at the same speed: the fork would never catch up.
        self.most_unseen = 0
        reached = self._fork(move, cell, backup, number)
        self.most_unseen = MOST_UNSEEN
        self._await_checkpoint(self._slots(), RECOVERY_S)
        return reached

    def _fork(self, move: Move, cell: HistoryCell | None, backup: Backup, number: int) -> bool:
        """Start a job from the checkpoint of a copy, kill its driver, start it again, and stop it when it has caught up."""
        is_named = move is Move.FORK
        name, out = (f"forked-{number}", f"out-{number}") if is_named else (JOB, "out")
        origin = ["-s", str(backup.directory / backup.base)]
        decision = origin if is_named else ["--fresh", *origin]

        def launch(start: Sequence[str]) -> subprocess.Popen[bytes]:
            return self._launch_copy(backup.directory, start, name, out)

        begun = time.monotonic()
        order = None if cell is None else self._orders_of_fork.give(cell.point, "kill")
        driver = launch(decision)
        reached = self._dies(driver, self._orders_of_fork, order)
        if reached:
            self.kills["driver of a fork SIGKILL"] += 1
            if self._has_new_entries(name, backup, backup.directory):
                driver = launch([])
            else:
                if not is_named:
                    self._expect_refusal(DirectoryMoved.code, lambda: launch([]), [backup.directory])
                driver = launch(decision)
        self._await_well(driver, backup.directory / name)
        self.recovery_s[str(move)].append(round(time.monotonic() - begun, 2))
        lineage = str(newest_entry(backup.directory / name)["lineage"])
        fork = Fork(self.folder / out, lineage, backup.counted, len(self.feed.rows))
        self._forks.append(fork)
        self._await_caught_up(fork, driver)
        self._end(driver)
        return reached

    def _launch_copy(
        self, directory: Path, start: Sequence[str], name: str = JOB, out: str = "out"
    ) -> subprocess.Popen[bytes]:
        (port,) = free_ports(1)
        further = {NAME: name, OUT: out, VARIABLE: str(self._orders_of_fork.directory)}
        return self.spawn(self.run_command(directory, port, list(start)), further)

    def _await_restarted(self, killed: subprocess.Popen[bytes] | None) -> None:
        """The supervisor has started the original again, and it is well."""
        latest = time.monotonic() + RECOVERY_S
        while self.driver is killed:
            if time.monotonic() > latest:
                raise Hang("the original was not started again")
            time.sleep(0.1)
        self._await_checkpoint(self._slots(), RECOVERY_S)

    def _await_caught_up(self, fork: Fork, driver: subprocess.Popen[bytes]) -> None:
        """Wait until the fork has published what was sent when it was well, or publishes nothing more. What is missing then is
        lost."""
        due = fork.sent - sum(fork.counted.rows.values())
        found = 0
        latest = time.monotonic() + RECOVERY_S
        while found < due and time.monotonic() < latest:
            before, found = found, sum(map(len, self._files_of(fork).values()))
            if found > before:
                latest = time.monotonic() + RECOVERY_S
            if driver.poll() is not None:
                raise Hang(f"a fork ended by itself: {self._last_words(driver)}")
            time.sleep(0.5)

    # -- starts and deaths ---------------------------------------------------------------------------------------------

    def _expect_refusal(
        self, code: str, launch: Callable[[], subprocess.Popen[bytes]], untouched: Sequence[Path]
    ) -> None:
        """Start the job, which must be refused with that error and leave the directories as they are."""
        before = [contents(directory) for directory in untouched]
        begun = time.monotonic()
        driver = launch()
        while driver.poll() is None:
            if SUBMITTED in self.log_of(driver) or time.monotonic() - begun > RECOVERY_S:
                raise Hang(f"a start that should be refused with {code} was not: {self._last_words(driver)}")
            time.sleep(0.1)
        if driver.returncode != REFUSED or f"{code}:" not in self.log_of(driver):
            raise Hang(f"a start ended with code {driver.returncode} instead of {code}: {self._last_words(driver)}")
        for directory, files in zip(untouched, before, strict=True):
            now = contents(directory)
            changed = sorted({path for path, _ in files.items() ^ now.items()})
            if changed:
                raise Hang(f"a start that was refused with {code} changed {', '.join(changed[:5])}")
        self.refused[code] += 1
        self.recovery_s[f"until refused with {code}"].append(round(time.monotonic() - begun, 2))
        say(f"  refused with {code} after {time.monotonic() - begun:.1f} s")

    def _end(self, driver: subprocess.Popen[bytes]) -> None:
        """Stop a job gracefully: its output is published, and it takes a last checkpoint."""
        driver.send_signal(signal.SIGTERM)
        try:
            code = driver.wait(RECOVERY_S)
        except subprocess.TimeoutExpired:
            raise Hang("a job that was asked to stop is still there") from None
        if code:
            raise Hang(f"a job that was asked to stop ended with code {code}: {self._last_words(driver)}")

    def _dies(self, driver: subprocess.Popen[bytes], orders: FaultOrders, order: str | None) -> bool:
        """Wait until somebody dies as ordered; without an order, kill the driver at any moment. Return whether it happened."""
        if order is None:
            with suppress(subprocess.TimeoutExpired):
                driver.wait(self._chance.uniform(0, RANDOM_DELAY_S))
            if driver.poll() is not None:
                raise Hang(f"a start ended with code {driver.returncode}: {self._last_words(driver)}")
            driver.kill()
            driver.wait(60)
            return True
        latest = time.monotonic() + ARRIVAL_AFTER_START_S
        while not (pids := orders.obeyed(order)):
            if driver.poll() not in (None, -signal.SIGKILL):
                raise Hang(f"a start ended with code {driver.returncode}: {self._last_words(driver)}")
            if time.monotonic() > latest:
                orders.clear()
                return False
            time.sleep(0.05)
        if pids[0] == driver.pid:
            driver.wait(60)
        return True

    def _kill_at_step(self) -> None:
        """Kill the driver at a step of a running job, and wait until no process of the job is left."""
        below = self._below()
        order = self.orders.give(self._chance.choice(_ENDING), "kill")
        if not self.arrived(order):
            raise Hang("a running job did not reach a step of every checkpoint")
        self._await_nobody(below | self._below())
        self.await_gone()
        self.orders.clear()
        self.kills["driver SIGKILL"] += 1

    def _below(self) -> set[int]:
        """Executors and Python workers. Tasks publish files, so a lost history ends only with the last of them."""
        daemons = [worker.daemon for worker in self.cluster.workers]
        return {pid for daemon in daemons if daemon is not None for pid in descendants(daemon.pid)}

    def _await_nobody(self, processes: set[int]) -> None:
        try:
            wait_gone(processes, 60)
        except TimeoutError as error:
            raise Hang(f"executors outlive their driver: {error}") from None

    def _has_new_entries(self, name: str, backup: Backup, directory: Path) -> bool:
        """Whether a driver has claimed the job before it died."""
        before = backup.entries if name == JOB else frozenset()
        return not before.issuperset(names_of_entries(directory / name))

    def _await_well(self, driver: subprocess.Popen[bytes], job: Path) -> None:
        """Wait until a driver has completed a checkpoint."""
        first = _newest_slot(job)
        latest = time.monotonic() + RECOVERY_S
        while not any(self._is_checkpoint(job, slot) for slot in range(first + 1, _newest_slot(job) + 1)):
            if driver.poll() is not None:
                raise Hang(f"a driver that should continue ended: {self._last_words(driver)}")
            if time.monotonic() > latest:
                raise Hang(f"no checkpoint was completed for {RECOVERY_S:g} s")
            time.sleep(0.1)

    def _is_checkpoint(self, job: Path, slot: int) -> bool:
        entry = read_entry(job, f"{slot:012d}")
        with suppress(ValueError):  # it is being written
            return entry is not None and json.loads(entry)["kind"] == "checkpoint"
        return False

    def _last_words(self, driver: subprocess.Popen[bytes]) -> str:
        return self.log_of(driver)[-600:]

    # -- who counts ----------------------------------------------------------------------------------------------------

    def _read(self, path: Path) -> list[dict[str, Any]]:
        if path not in self._rows:
            self._rows[path] = [json.loads(line) for line in path.read_text().splitlines()]
        return self._rows[path]

    def _current(self) -> dict[Path, list[dict[str, Any]]]:
        """The files in the target that are of the job's current history."""
        branches = {fork.lineage for fork in self._forks}
        found = (self.folder / "out").glob("*.json")
        return {path: self._read(path) for path in found if path not in self._lost and lineage_in(path) not in branches}

    def _files_of(self, fork: Fork) -> dict[Path, list[dict[str, Any]]]:
        return {path: self._read(path) for path in fork.out.glob("*.json") if lineage_in(path) == fork.lineage}

    def visible(self) -> int:
        return sum(map(len, self._current().values()))

    def verdict(self) -> Verdict:
        """The current history has every row once. Each fork has every row since its checkpoint once. Lost histories are as they
        were."""
        current = [row for rows in self._current().values() for row in rows]
        found = [verify(self.feed.rows, current)]
        for fork in self._forks:
            own = [row for rows in self._files_of(fork).values() for row in rows]
            found.append(judge_fork(fork, self.feed.rows, current, own))
        changed = [path.name for path, before in self._lost.items() if not path.exists() or digest(path) != before]
        wrong = [*self._wrong, *(f"a file of a lost history has changed: {name}" for name in changed)]
        return Verdict(
            expected=found[0].expected,
            lost=sum(each.lost for each in found),
            duplicated=sum(each.duplicated for each in found),
            wrong=(*wrong, *(text for each in found for text in each.wrong)),
        )

    def findings(self) -> dict[str, Any]:
        return {
            "refused": dict(self.refused),
            "rows_of_lost_histories": sum(len(self._rows[path]) for path in self._lost),
            "rows_of_forks": sum(len(rows) for fork in self._forks for rows in self._files_of(fork).values()),
        }


def judge_fork(
    fork: Fork,
    fed: Sequence[tuple[int, int, int]],
    original: Sequence[dict[str, Any]],
    own: Sequence[dict[str, Any]],
) -> Verdict:
    """Compare what a fork has published with the rows that its checkpoint had not counted. Those that were sent while it was
    being stopped may be missing."""
    before = {row["i"] for row in original if fork.counted.has(row)}
    seen = {row["i"] for row in own}
    due = [row for place, row in enumerate(fed) if row[1] not in before and (place < fork.sent or row[1] in seen)]
    found = verify(due, own, fork.counted)
    wrong = tuple(f"in a fork, {text}" for text in found.wrong)
    return Verdict(found.expected, found.lost, found.duplicated, wrong)


def read_backup(directory: Path) -> Backup:
    base = Path(newest_entry(directory / JOB)["base"]["metadata"]).parent
    saved = tg.Savepoint.open(directory / base)
    rows = {entry.key: entry.value for entry in saved.state("number", "n").entries()}
    counts = {entry.key: entry.value for entry in saved.state("add", "m").entries()}
    totals = {entry.key: entry.value for entry in saved.state("add", "total").entries()}
    sums = {bucket: (count, totals[bucket]) for bucket, count in counts.items()}
    return Backup(directory, base, Counted(rows, sums), frozenset(names_of_entries(directory / JOB)))


def newest_entry(job: Path) -> dict[str, Any]:
    entry = read_entry(job, f"{_newest_slot(job):012d}")
    assert entry is not None
    return dict(json.loads(entry))


def _newest_slot(job: Path) -> int:
    return max(map(int, names_of_entries(job)), default=0)


def lineage_in(path: Path) -> str:
    """The line of history that has written a file, as its name says."""
    return unquote(path.name.removeprefix("part-").partition("~")[0])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(directory: Path) -> dict[str, str]:
    """Every file below a directory, with its digest."""
    return {str(path.relative_to(directory)): digest(path) for path in sorted(directory.rglob("*")) if path.is_file()}


def _death(victim: Victim) -> str:
    return "kill-executor" if victim is Victim.EXECUTOR else "kill"
