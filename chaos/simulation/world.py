"""The world: clock, storage, target, processes that can crash and sleep, and an eye on everything that is written."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

from chaos.simulation.clock import Clock
from chaos.simulation.faults import CALM, Crash, Odds, Violation
from chaos.simulation.model import Epoch, Snapshot
from chaos.simulation.storage import SimStorage
from chaos.simulation.target import INLINE, SimTarget
from chaos.simulation.watch import JobWatch
from tidegate.checkpoint.committables import Channel
from tidegate.checkpoint.contents import CheckpointContents, UnreadOutput
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
from tidegate.checkpoint.entry import LogCorrupt
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.list_registry import HeldList, ListId
from tidegate.checkpoint.log import ClaimLost
from tidegate.checkpoint.output_objects import OutputObject
from tidegate.checkpoint.task_part import list_digest
from tidegate.connectors.outcome import ForeignOutput
from tidegate.core import faults
from tidegate.core.errors import StorageError, TidegateError
from tidegate.core.history import History
from tidegate.core.ids import EpochId, Lineage

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
        self.snapshots: dict[bytes, Snapshot] = {}
        self.parts: dict[bytes, Any] = {}
        """Content of stored acknowledgements: kept aside, the stored bytes are only its name."""
        self.keys: dict[tuple[Channel, EpochId], frozenset[int]] = {}
        """The key groups of which there are rows in some output."""
        self.watches: dict[str, JobWatch] = {}
        self.lost_names: set[str] = set()
        """Files of histories that were lost when a job was restored from a backup."""
        self.restores = 0
        """How often a job was restored from a backup."""
        self._epochs: dict[tuple[Lineage, EpochId], int] = {}
        self.term_rng = random.Random(f"terms of {seed}")
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
        return self.watches.setdefault(layout.root, JobWatch(layout, self.storage, self.read_now, self.files_of))

    def read(self, path: str, metadata: bytes) -> CheckpointContents:
        """The files of tasks are lists, as in the product: every other one is an object of its own. Output in objects is left
        unread."""
        snapshot = self.snapshots[metadata]
        if not snapshot.stored_output:
            return self.contents(metadata, ())

        def complete(bodies: Mapping[str, bytes]) -> CheckpointContents:
            named = zip(snapshot.output_names, snapshot.stored_output)
            return self.contents(metadata, [OutputObject.read(ref, bodies.get(name)) for name, ref in named])

        return replace(self.contents(metadata, ()), output=UnreadOutput(snapshot.output_names, complete))

    def read_now(self, path: str, metadata: bytes) -> CheckpointContents:
        """Read all, as it is stored at this moment."""
        contents = self.read(path, metadata)
        unread = contents.output
        return unread.complete(self.storage.objects) if isinstance(unread, UnreadOutput) else contents

    def contents(self, metadata: bytes, output: Sequence[OutputObject]) -> CheckpointContents:
        snapshot = self.snapshots[metadata]
        committables = (*(each for object in output for each in object.waiting), *snapshot.committables)
        staged = frozenset(c.payload.decode() for c in committables if c.payload != INLINE.encode())
        lists = tuple(HeldList(ListId(task, list_digest(files)), files) for task, files in snapshot.lists)
        files = frozenset(snapshot.output_names)
        return CheckpointContents(files, staged, committables, lists, snapshot.root, tuple(output))

    def files_of(self, metadata: bytes) -> frozenset[str]:
        """All that a checkpoint needs besides rows that wait."""
        snapshot = self.snapshots[metadata]
        return snapshot.paths.union(snapshot.output_names)

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
        if self.crash_at is not None and self.crash_at[0] == point:
            self.crash_at = (point, self.crash_at[1] - 1)
        forced = self.crash_at is not None and self.crash_at[1] == 0
        if forced:
            self.crash_at, self.crashed_ms = None, self.clock.now_ms
        if forced or self.chance(self.odds.crash_at_step):
            self.tally.crashes[point] += 1
            self.note(process.name, f"crashes at {point}")
            raise Crash
        if self.chance(self.odds.pause_at_step * (3 if point.startswith(("clean", "sweep")) else 1)):
            self.tally.pauses[point] += 1
            self._pause(process, f"sleeps at {point}")

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
            self.note(process.name, f"ends: {how}")
            process.on_exit(how)

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

    def epoch_of(self, metadata: bytes) -> Epoch:
        return self.snapshots[metadata].epoch

    def fail(self, what: str) -> NoReturn:
        raise Violation(what)
