"""The epochs of one term, in place of those that Spark runs: each is tried until a try is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from chaos.simulation.checks import WatchedCheckpoints
from chaos.simulation.faults import Crash
from chaos.simulation.model import Epoch, Snapshot, key_groups
from chaos.simulation.plan import SINKS, UNKEYED
from chaos.simulation.target import INLINE
from chaos.simulation.tasks import Host, SimTasks
from tidegate.checkpoint.effects import Steps
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.output.committables import channel
from tidegate.connectors.sink import Committable
from tidegate.core.ids import AttemptId, EpochId
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.term import RunningTerm
from tidegate.runtime.checkpoints.term_effects import TermSteps
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.state.port import VersionMissing

LATE_LOOP = 0.2
"""How often the next epoch begins before the loop has seen the end of the last one."""


@dataclass
class RunningEpoch:
    """An epoch from its beginning to the try that is accepted."""

    id: EpochId
    work: CheckpointWork
    is_empty: bool
    """Whether it has no rows."""
    tries: int = 0

    @property
    def announced(self) -> int | None:
        return None if self.work.early is None else self.work.early.checkpoint_id


class SimEpochs:
    """Those of one term. The driver runs one at a time."""

    def __init__(
        self,
        host: Host,
        term: RunningTerm,
        tasks: SimTasks,
        checkpoints: WatchedCheckpoints,
        number: int,
        message: Callable[[TermSteps[None]], Steps[None]],
        may_begin: Callable[[], bool],
    ) -> None:
        """`number`: that of the last epoch of the term before. `message` carries out a message to the term."""
        self.world = host.world
        self.plan = host.plan
        self.width = host.width
        self.head: Epoch | None = None
        """The last accepted epoch."""
        self.running: RunningEpoch | None = None
        self.number = number
        self.ran = False
        """Whether an epoch with rows was accepted since the last restore."""
        self.moved: EpochId | None = None
        """The last one that changed something since the last restore, as the product counts it."""
        self._term = term
        self._store = term.owned.store
        self._tasks = tasks
        self._checkpoints = checkpoints
        self._message = message
        self._may_begin = may_begin
        self._attempt = 0

    def restore(self, snapshot: Snapshot | None, base: CheckpointRef | None) -> None:
        """Begin with what the term returns to. Raises what a task raises that cannot restore its state."""
        self.head = None
        self.ran = False
        self.moved = None
        self.number += 1
        self._tasks.restore(snapshot, base, EpochId(self._store.term, self.number))
        if snapshot is not None:
            self.head = snapshot.epoch

    def give_up(self) -> None:
        """The job goes back: the epoch that runs will not end."""
        self.running = None
        self._checkpoints.epoch_ends()

    def begin(self) -> None:
        """Unless one runs already: the loop may be late, or a try was thrown away."""
        if self.running is None and self._may_begin():
            self._start_epoch(empty=False)

    def _start_epoch(self, empty: bool) -> RunningEpoch:
        work = self._tasks.begin_epoch(empty)
        self.number += 1
        epoch = EpochId(self._store.term, self.number)
        self.running = running = RunningEpoch(epoch, work, empty)
        self._checkpoints.epoch_begins(epoch)
        if running.announced is not None:
            self._checkpoints.announce(running.announced, epoch, self._term.checkpointer.pending)
        return running

    def try_epoch(self, running: RunningEpoch) -> Steps[bool]:
        """Return whether its tasks found the versions to start from. If not, the job goes back."""
        world, rng, store = self.world, self.world.rng, self._store
        running.tries += 1
        epoch = running.id
        start = 0 if self.head is None else self.head.end
        if self.plan.real_state and world.chance(world.odds.rewind):
            world.hosts.lose_one()
        try:
            touched, marks = self._tasks.run_epoch(epoch, running.tries, running.work)
        except VersionMissing:
            return False
        except Crash:
            world.tally.events["tasks that died"] += 1
            return True  # the epoch is tried again
        committables = self._stage(epoch)
        if world.chance(world.odds.rewind):
            world.tally.events["epochs thrown away"] += 1
            return True  # the attempt is discarded; its files are orphans, and the epoch is tried again
        self.head = Epoch(
            id=epoch,
            parent=self.head,
            lineage=store.entry.lineage,
            start=start,
            end=start + 1 + rng.randrange(9),
            touched=frozenset(touched),
            output=tuple(channel(each) for each in committables),
            marks=marks,
        )
        self.ran = True
        world.tally.events["epochs"] += 1
        yield from self._finish_epoch(running, tuple(committables))
        return True

    def run_empty_epoch(self) -> Steps[None]:
        """An epoch without rows: uploads, or output that tasks publish, wait for one."""
        running = self._start_epoch(empty=True)
        self._tasks.run_empty_epoch(running.work)
        running.tries = 1
        end = 0 if self.head is None else self.head.end
        lineage = self._store.entry.lineage
        self.head = Epoch(running.id, self.head, lineage, end, end, frozenset(), ())
        self.world.tally.events["epochs without rows"] += 1
        yield from self._finish_epoch(running, ())

    def _finish_epoch(self, running: RunningEpoch, committables: tuple[Committable, ...]) -> Steps[None]:
        """The epoch was accepted."""
        world, epoch = self.world, running.id
        world.use_epoch(self._store.entry.lineage, epoch)
        snapshot = self._tasks.accept(EpochSnapshot(epoch, {}, None, Path(), Clocks(), running.announced))
        self.running = None
        self._checkpoints.epoch_ends()
        self._term.uploads.ended(snapshot, sum(len(each.payload) for each in committables))
        report = EpochReport(
            epoch=epoch,
            rows_in=0 if running.is_empty else 1,
            tries=running.tries,
            duration_ms=self.plan.epoch_ms,
            plan_ms=0,
            job_ms=0,
            operators={},
            hosts={},
            committables=committables,
        )
        if world.rng.random() < LATE_LOOP:
            world.tally.events["epochs begun before the end of the last was seen"] += 1
            self.begin()
        moved = not running.is_empty
        self.moved = epoch if moved else self.moved
        yield from self._message(self._term.checkpointer.on_epoch(report, snapshot, moved, output=True, drains=False))

    def _stage(self, epoch: EpochId) -> list[Committable]:
        """Stage output of some slots."""
        world, rng = self.world, self.world.rng
        committables: list[Committable] = []
        some = sorted(rng.sample(range(self.width), min(self.width, 3)))
        for sink, partition in product(SINKS, some):
            of_slot = key_groups(partition, self.width, self.plan.groups)
            groups = range(self.plan.groups) if sink == UNKEYED else of_slot
            if of_slot and rng.random() < 0.4:
                paths = [INLINE] if rng.random() < 0.3 else []  # Few rows are in the committable.
                attempts = 2 if world.chance(world.odds.second_attempt) else 1
                for _ in range(0 if paths else attempts):
                    self._attempt += 1
                    path = self.plan.layout.staged(epoch, sink, AttemptId(self._attempt), world.serial("rows"))
                    world.storage.apply_put(path, b"rows")
                    paths.append(path)
                made = Committable(
                    lineage=self._store.entry.lineage,
                    sink=sink,
                    slot=partition,
                    epoch=epoch,
                    payload=paths[-1].encode(),
                    staged=() if paths[-1] == INLINE else (paths[-1],),
                    size_bytes=1,
                )
                world.keys[channel(made), epoch] = frozenset(rng.choices(groups, k=2))
                committables.append(made)
        return committables

    @property
    def are_contained(self) -> bool:
        """Whether the latest checkpoint contains all epochs that changed something."""
        base = self._store.entry.base
        if self.head is None or not self.ran:
            return True
        for epoch in self.head.chain():
            if base is not None and epoch.id == base.epoch:
                return True
            if epoch.end > epoch.start:
                return False
        return True
