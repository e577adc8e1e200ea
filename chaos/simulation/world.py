"""The world: clock, storage, target, processes that can crash and sleep, and an eye on everything that is written."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from chaos.simulation.clock import Clock
from chaos.simulation.faults import CALM, Crash, Odds, Violation
from chaos.simulation.model import Epoch, Snapshot, StateFile
from chaos.simulation.storage import SimStorage
from chaos.simulation.target import SimTarget
from chaos.simulation.watch import JobWatch
from tidegate.checkpoint.effects import (
    Commit,
    CommitFailed,
    Create,
    Delete,
    Effect,
    Get,
    GetMany,
    ListFolders,
    ListNames,
    Put,
    Sleep,
    Steps,
    Sweep,
)
from tidegate.checkpoint.files.contents import CheckpointContents, UnreadOutput, contents_of
from tidegate.checkpoint.job_log.entry import CheckpointRef, LogCorrupt
from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import CheckpointMetadata, checksum_in, decode
from tidegate.checkpoint.output.committables import Channel
from tidegate.connectors.outcome import ForeignOutput
from tidegate.core import faults
from tidegate.core.errors import StorageError, TidegateError
from tidegate.core.history import History
from tidegate.core.ids import EpochId, Lineage, TaskId, Term
from tidegate.runtime.checkpoints.owned_term import staged_by
from tidegate.state.version import VersionId
from tidegate.storage.routed import name_below

if TYPE_CHECKING:
    from chaos.simulation.hosts import SimHosts

MAX_PAUSE_MS = 6_000
_TWIN_SERIAL = 500_000_000_000
"""The names in a copy of the storage are counted from here on."""


@dataclass(eq=False)
class Process:
    """One driver process."""

    name: str
    job: str = ""
    alive: bool = True
    paused_until_ms: float = 0.0
    history: History | None = None
    """What its driver knows of the job's history, once it has claimed the job."""
    wall_offset_ms: int = 0
    """How wrong the wall clock of its machine is. It is set again while the process runs."""
    pin: str | None = None
    """Of a fork: the pin on its origin that its driver holds, and has to remove."""
    on_exit: Callable[[str], None] = lambda how: None


@dataclass(eq=False)
class Thread:
    process: Process
    steps: Steps[Any]
    main: bool


@dataclass
class Tally:
    """What a run tried."""

    crashes: Counter[str] = field(default_factory=Counter)
    pauses: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.crashes.update(other.crashes)
        self.pauses.update(other.pauses)
        self.events.update(other.events)


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.folder_rng = random.Random(f"folders of {seed}")
        """Sizes of the folders of logs. The other faults of a seed stay as they are."""
        self.clock = Clock()
        self.storage = SimStorage(self.clock, self.rng)
        self.targets: dict[str, SimTarget] = {}
        self.hosts: SimHosts
        """Of seeds whose tasks are real."""
        self.tally = Tally()
        self.snapshots: dict[str, Snapshot] = {}
        """What is in checkpoints and savepoints, by checksum."""
        self.modelled: dict[tuple[TaskId, VersionId, bytes], tuple[tuple[StateFile, str], ...]] = {}
        """If state is modelled: the files that a task has stored for a version, by a digest of its list."""
        self.acks: dict[str, Term] = {}
        """The term of the task that stored an acknowledgement, by its name."""
        self._decoded: dict[bytes, CheckpointMetadata] = {}
        self.keys: dict[tuple[Channel, EpochId], frozenset[int]] = {}
        """The key groups of which there are rows in some output."""
        self.watches: dict[str, JobWatch] = {}
        self.removed_pins: set[str] = set()
        """Pins of forks that have been removed."""
        self.left_pins: set[str] = set()
        """Those that no term holds: it ended first or never began, or storage placed them again, late."""
        self.lost_names: set[str] = set()
        """Files of histories that were lost when a job was restored from a backup."""
        self.restores = 0
        """How often a job was restored from a backup."""
        self._epochs: dict[tuple[Lineage, EpochId], int] = {}
        self.term_rng = random.Random(f"terms of {seed}")
        self.epoch_rng = random.Random(f"epochs of {seed}")
        """When epochs begin in the middle of a message. The other draws stay as they are."""
        self.start_rng = random.Random(f"starts of {seed}")
        """Whether the tasks of a rescaled job can start. The other draws stay as they are."""
        self.trace: list[tuple[float, str, str]] = []
        self.odds = CALM
        self.crash_at: tuple[str, int] | None = None
        """(step, how many times it is reached before): one crash that does not depend on chance."""
        self.crashed_ms = 0.0
        """When that one came."""
        self._current: Process | None = None
        self._twin: World | None = None
        self._serial = 0
        self.storage.on_write = self._written
        self.storage.on_delete = self._deleted

    def twin(self) -> World:
        """Another place, into which everything that is stored is copied. Time, chance and targets are the same."""
        other = copy.copy(self)
        other.storage = SimStorage(self.clock, self.rng)
        other.storage.odds = self.storage.odds
        other.storage.on_write = other._written
        other.storage.on_delete = other._deleted
        objects = {path: data for path, data in self.storage.objects.items() if "/pins/" not in path}
        other.storage.replace_below("", objects)
        other.watches = {}
        other.lost_names = set()
        other._serial = _TWIN_SERIAL
        self._twin = other
        return other

    def set_odds(self, odds: Odds) -> None:
        self.odds = self.storage.odds = odds
        if self._twin is not None:
            self._twin.set_odds(odds)

    def target(self, job: str) -> SimTarget:
        """Each job writes to a place of its own."""
        found = self.targets.setdefault(job, SimTarget(self.rng, self.clock, self.keys))
        found.odds = self.odds
        return found

    def chance(self, odds: float) -> bool:
        return odds > 0.0 and self.rng.random() < odds

    def serial(self, prefix: str) -> str:
        self._serial += 1
        return f"{prefix}-{self._serial:012d}"

    def note(self, who: str, what: str) -> None:
        self.trace.append((self.clock.now_ms, who, what))

    def watch(self, layout: JobLayout) -> JobWatch:
        found = self.watches.get(layout.root)
        if found is None:
            found = JobWatch(layout, self.storage, self.read_now, self.files_of, self.target(layout.job).shows)
            self.watches[layout.root] = found
        return found

    def metadata(self, data: bytes) -> CheckpointMetadata:
        found = self._decoded.get(data)
        if found is None:
            found = self._decoded[data] = decode(data)
        return found

    def snapshot(self, data: bytes) -> Snapshot:
        """What is in a `_metadata` with this content."""
        return self.snapshots[checksum_in(data)]

    def read_now(self, path: str, data: bytes) -> CheckpointContents:
        """Read all, as it is stored at this moment. Raises `MetadataError`."""
        contents = contents_of(path, self.metadata(data), staged_by)
        unread = contents.output
        return unread.complete(self.storage.objects) if isinstance(unread, UnreadOutput) else contents

    def files_of(self, data: bytes) -> frozenset[str]:
        """All that a checkpoint needs besides rows that wait."""
        snapshot = self.snapshot(data)
        stored = {name_below(snapshot.root, each.path) for each in self.metadata(data).stored_output}
        return snapshot.paths.union(stored)

    # processes

    def spawn(self, process: Process, steps: Steps[Any], main: bool = False) -> None:
        self._advance(Thread(process, steps, main), None, None)

    def reached(self, point: str, **context: Any) -> None:
        """Called by the product at every numbered step."""
        process = self._current
        if process is None and self._twin is not None:
            self._twin.reached(point, **context)
            return
        self.tally.events["steps reached"] += 1
        if process is None:
            return
        if self._is_chosen(point) or self.chance(self.odds.crash_at_step):
            self.tally.crashes[point] += 1
            self.note(process.name, f"crashes at {point}")
            raise Crash
        if self.chance(self.odds.pause_at_step * (3 if point.startswith(("clean", "sweep")) else 1)):
            self.tally.pauses[point] += 1
            self._pause(process, f"sleeps at {point}")

    def about_to(self, what: str) -> None:
        """A driver may die before it does something at its edge."""
        if self._is_chosen(what) or self.chance(self.odds.crash_at_io):
            self.tally.crashes[what] += 1
            raise Crash

    def _is_chosen(self, point: str) -> bool:
        """Whether this is the one crash that does not depend on chance."""
        if self.crash_at is not None and self.crash_at[0] == point:
            self.crash_at = (point, self.crash_at[1] - 1)
        chosen = self.crash_at is not None and self.crash_at[1] == 0
        if chosen:
            self.crash_at, self.crashed_ms = None, self.clock.now_ms
        return chosen

    @contextmanager
    def acting(self, process: Process) -> Iterator[None]:
        """A process that is no driver reaches steps."""
        before, self._current = self._current, process
        try:
            yield
        finally:
            self._current = before

    def _pause(self, process: Process, why: str) -> None:
        ms = self.rng.uniform(200, MAX_PAUSE_MS)
        process.paused_until_ms = self.clock.now_ms + ms
        self.note(process.name, f"{why} for {ms:.0f} ms")

    def kill(self, process: Process, how: str) -> None:
        if process.alive:
            process.alive = False
            self.leave_pin(process)
            self.note(process.name, f"ends: {how}")
            process.on_exit(how)

    def leave_pin(self, process: Process) -> None:
        """The term of a driver ends, and with it what it knew of its pin."""
        if process.pin is not None:
            self.left_pins.add(process.pin)
            process.pin = None

    def _advance(self, thread: Thread, answer: Any, error: Exception | None) -> None:
        process = thread.process
        if not process.alive:
            return
        if process.paused_until_ms > self.clock.now_ms:
            delay = process.paused_until_ms - self.clock.now_ms
            self.clock.after(delay, lambda: self._advance(thread, answer, error))
            return
        self._current = process
        try:
            effect = thread.steps.send(answer) if error is None else thread.steps.throw(error)
        except StopIteration as end:
            if thread.main:
                self.kill(process, str(end.value))
        except Crash:
            self.kill(process, "crash")
        except TidegateError as trouble:
            if isinstance(trouble, ClaimLost) and trouble.winner.owner.partition(".")[0] == process.name:
                raise Violation(f"{process.name} believes that it lost the job to itself") from trouble
            if isinstance(trouble, LogCorrupt):
                raise Violation(
                    f"{process.name} says that somebody damaged the log, and nobody did: {trouble}"
                ) from trouble
            if thread.main or isinstance(trouble, ClaimLost | ForeignOutput):
                self.kill(process, f"{trouble.code}: {trouble}")
        else:
            self._issue(thread, effect)
        finally:
            self._current = None

    def _issue(self, thread: Thread, effect: Effect) -> None:
        process = thread.process
        if isinstance(effect, Sleep):
            self.clock.after(effect.ms, lambda: self._advance(thread, None, None))
            return
        if self.chance(self.odds.crash_at_io):
            self.tally.crashes["between two requests"] += 1
            self.kill(process, "crash before a request")
            return
        if self.chance(self.odds.pause_at_io):
            self.tally.pauses["between two requests"] += 1
            self._pause(process, f"sleeps before {type(effect).__name__}")
        if process.paused_until_ms > self.clock.now_ms:
            delay = process.paused_until_ms - self.clock.now_ms
            self.clock.after(delay, lambda: self._send(thread, effect))
            return
        self._send(thread, effect)

    def _send(self, thread: Thread, effect: Effect) -> None:
        """The request is on its way: it will be applied even if its sender dies now."""
        if not thread.process.alive:
            return
        delay = self.rng.uniform(200, 2_000) if self.chance(self.odds.slow_request) else self.rng.uniform(0.5, 8)
        self.clock.after(delay, lambda: self._apply(thread, effect))

    def _apply(self, thread: Thread, effect: Effect) -> None:
        try:
            answer, error = self._do(thread.process, effect), None
        except (StorageError, CommitFailed, ForeignOutput) as trouble:
            answer, error = None, trouble
        if not isinstance(effect, Get | GetMany | ListNames | ListFolders):
            what = getattr(effect, "path", None) or getattr(effect, "paths", None) or effect
            said = type(error).__name__ if error else type(answer).__name__ if answer is not None else "ok"
            self.note(thread.process.name, f"{type(effect).__name__} {what} -> {said}")
        self.clock.after(self.rng.uniform(0.5, 8), lambda: self._advance(thread, answer, error))

    def _do(self, process: Process, effect: Effect) -> Any:
        if isinstance(effect, Get):
            return self.storage.get(effect.path)
        if isinstance(effect, GetMany):
            found = ((path, self.storage.get(path)) for path in effect.paths)
            return {path: data for path, data in found if data is not None}
        if isinstance(effect, Create):
            return self.storage.create(effect.path, effect.data)
        if isinstance(effect, Put):
            return self.storage.put(effect.path, effect.data)
        if isinstance(effect, Delete):
            return self.storage.delete(effect.paths)
        if isinstance(effect, ListNames):
            return self.storage.list(effect.prefix)
        if isinstance(effect, ListFolders):
            return self.storage.folders(effect.prefix)
        if isinstance(effect, Sweep):
            return None  # a write is applied as a whole or not at all
        assert isinstance(effect, Commit)
        return self.target(process.job).commit(effect, self.storage, process.history)

    # history

    def _written(self, path: str, data: bytes) -> None:
        if path in self.lost_names and any(folder in path for folder in ("/shared/", "/taskowned/", "/acks/")):
            raise Violation(f"{path} has the name of a file that a lost history wrote")
        if path in self.removed_pins:
            self.left_pins.add(path)
        watch = self.watches.get(path.partition("/")[0])
        if watch is not None:
            watch.written(path, data)

    def use_epoch(self, lineage: Lineage, epoch: EpochId) -> None:
        """An epoch was run. No history may use the id of another one."""
        if self._epochs.setdefault((lineage, epoch), self.restores) != self.restores:
            raise Violation(f"epoch {epoch.name} of {lineage} was run before the job was restored, and again after it")

    def _deleted(self, path: str) -> None:
        for watch in self.watches.values():
            watch.deleted(path)

    def arm(self) -> None:
        faults.arm(self.reached)

    def epoch_of(self, ref: CheckpointRef) -> Epoch:
        return self.snapshots[ref.checksum].epoch

    def fail(self, what: str) -> NoReturn:
        raise Violation(what)
