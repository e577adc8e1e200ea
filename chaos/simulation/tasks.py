"""What stands for the tasks of a term: they get the product's work with every epoch, and answer sooner or later, or never.

`model_tasks` has state that is only modelled, `real_tasks` has the product's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from chaos.simulation.model import Snapshot
from chaos.simulation.world import Process, World
from tidegate.checkpoint.effects import CommitFailed, Steps
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.output.committables import commit, marks
from tidegate.checkpoint.output.release_plan import CommitBatch
from tidegate.checkpoint.task.version_upload import UploadOrder
from tidegate.connectors.outcome import CommitOutcome, ForeignOutput, outcome_of
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Slot, TaskId, Term
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.uploads import PendingUploads
from tidegate.runtime.exchange.assignment import CheckpointWork, CommitOrder
from tidegate.runtime.exchange.messages import OutputMark, TaskCommitResult, Uploaded
from tidegate.storage import ObjectMissing

FEW_ACKS = 20
"""About how many tasks store their acknowledgement instead of sending it, at most."""
SMALL = 100
"""Up to this many tasks, all are reminded with every epoch without rows."""


class TaskStorage:
    """The simulated storage as tasks see it: writes may fail, be applied late, or lose their answer."""

    url = "sim://"

    def __init__(self, world: World) -> None:
        self._storage = world.storage

    def put(self, path: str, data: bytes) -> None:
        self._storage.put(path, data)

    def get(self, path: str) -> bytes:
        if path not in self._storage.objects:
            raise ObjectMissing.of(self.url, path)
        return self._storage.objects[path]

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self.get(path)[start : start + length]


@dataclass(frozen=True)
class Host:
    """The driver of a term, as its tasks know it."""

    world: World
    plan: Any
    process: Process
    width: int
    term: Term
    tell: Callable[[object], None]
    """Post a message to the loop of this term, which may have ended by then."""
    lowest_id: Callable[[], int]
    """The lowest id under which tasks may be storing something."""


class SimTasks(ABC):
    """The tasks of one term."""

    def __init__(self, host: Host, uploads: PendingUploads) -> None:
        self.host = host
        self.world = host.world
        self.uploads = uploads
        self.width = host.width
        self.layout = host.plan.layout
        self.groups = host.plan.groups
        self._publishing: set[tuple[object, ...]] = set()
        """What tasks are at work to publish."""

    # epochs

    @abstractmethod
    def restore(self, snapshot: Snapshot | None, base: CheckpointRef | None, target: EpochId) -> None:
        """Raises what a task raises that cannot restore its state."""

    @abstractmethod
    def run_epoch(self, epoch: EpochId, tries: int, work: CheckpointWork) -> tuple[list[int], Mapping[int, int]]:
        """Have some tasks change their state. Return their key groups, and if tasks are real the attempt of each."""

    @abstractmethod
    def run_empty_epoch(self, work: CheckpointWork) -> None:
        """No task changes its state."""

    @abstractmethod
    def accept(self, snapshot: EpochSnapshot) -> EpochSnapshot:
        """The epoch was accepted. Return its snapshot, with the versions of the tasks."""

    @abstractmethod
    def completed(self, ref: CheckpointRef, snapshot: Snapshot) -> None:
        """A checkpoint has completed."""

    # checkpoint work

    def begin_epoch(self, empty: bool = False) -> CheckpointWork:
        """Return the work of the tasks. They begin with it sooner or later."""
        work = self.uploads.work(empty)[1]
        orders = [(slot, order) for slot in range(self.width) for order in work.of(Slot(slot))[0]]
        self.upload_later(orders)
        for some in work.commits:
            for order in some:
                self._publish_later(order)
        return work

    def wants_epoch(self) -> bool:
        """Whether an epoch without rows is needed."""
        if self.width > SMALL and self.world.rng.random() < 0.7:
            return False
        return self.uploads.has_work() or self.holds

    @property
    def holds(self) -> bool:
        """Whether versions are stored, or being stored, that no checkpoint has yet."""
        return False

    def upload_later(self, orders: Sequence[tuple[int, UploadOrder]]) -> None:
        size = max(1, self.width // 50)
        for first in range(0, len(orders), size):
            some = [(slot, order, self.place(slot, order)) for slot, order in orders[first : first + size]]
            self.world.clock.after(self.world.rng.uniform(5, 600), partial(self._upload_all, some))

    def store_early(self, work: CheckpointWork, versions: Iterable[tuple[int, Any]]) -> None:
        """Each task stores the version that it has sealed, whatever becomes of its try, epoch and driver."""
        early = work.early
        if early is not None:
            self.upload_later([(slot, early.order(Slot(slot), version)) for slot, version in versions])

    @abstractmethod
    def place(self, slot: int, order: UploadOrder) -> Any:
        """Where the task is when it gets an order, or what it has there."""

    def _upload_all(self, orders: Iterable[tuple[int, UploadOrder, Any]]) -> None:
        for slot, order, place in orders:
            if self.host.process.alive or self.world.rng.random() >= 0.5:
                self.upload(slot, order, place)

    @abstractmethod
    def upload(self, slot: int, order: UploadOrder, place: Any) -> None:
        """Carry out an order, whether the driver still lives or not."""

    # what tasks report

    def fail(self, checkpoint_id: int, slot: int) -> None:
        failed = Uploaded(checkpoint_id, None, "simulated")
        self._send((TaskId(1, Slot(slot)), failed))

    def stored(self, checkpoint_id: int, slot: int, part: bytes) -> None:
        world, task = self.world, TaskId(1, Slot(slot))
        if world.rng.random() < min(0.3, FEW_ACKS / self.width):
            world.clock.after(world.rng.uniform(1, 400), lambda: self._store_ack(checkpoint_id, task, part))
            return
        self._send((task, Uploaded(checkpoint_id, part, None)))

    def _send(self, message: object) -> None:
        world = self.world
        copies = 2 if world.chance(world.odds.doubled_message) else 1
        if world.chance(world.odds.lost_message):
            copies -= 1
        for _ in range(copies):
            world.clock.after(world.rng.uniform(1, 400), partial(self.host.tell, message))

    def _store_ack(self, checkpoint_id: int, task: TaskId, part: bytes) -> None:
        """No epoch has taken it to the driver."""
        path = self.layout.ack(self.host.term, checkpoint_id, task, self.world.serial("ack"))
        self.world.acks[path] = self.host.term
        self.world.storage.apply_put(path, part)

    # output

    def _publish_later(self, order: CommitOrder) -> None:
        """A task does it in a process of its own, sooner or later, whether its driver still lives or not."""
        world, key = self.world, (order.sink, order.lane, order.end)
        if key in self._publishing:
            return
        self._publishing.add(key)
        driver = self.host.process
        task = Process(name=f"{driver.name}-S{order.lane}", job=driver.job, history=driver.history)
        task.on_exit = lambda how: self._publishing.discard(key)
        delay = world.rng.uniform(1, 4_000 if world.chance(world.odds.slow_request * 4) else 100)
        steps = self._carry_out(order)
        world.clock.after(delay, lambda: world.spawn(task, steps, main=True))

    def _carry_out(self, order: CommitOrder) -> Steps[None]:
        history = self.host.process.history if order.compares else None
        if order.compares:
            self.world.tally.events["publications that ask the target first"] += 1
        batch = CommitBatch(order.sink, order.committables, history)
        taken, error = yield from publish(batch)
        outcome = CommitOutcome.COMMITTED if error is None else outcome_of(error)
        self.host.tell(
            TaskCommitResult(
                sink=str(order.sink),
                marks=_marks(order.committables),
                outcomes={outcome.name: len(order.committables)},
                outcome=outcome.name,
                error=None if error is None else str(error),
                taken=_marks(taken),
            )
        )


def publish(batch: CommitBatch) -> Steps[tuple[tuple[Committable, ...], CommitFailed | ForeignOutput | None]]:
    """One effect for each committable: others publish, crash and sleep in between. Return what the target took, and what went
    wrong."""
    taken: list[Committable] = []
    try:
        for committable in batch.committables:
            yield from commit(replace(batch, committables=(committable,)))
            taken.append(committable)
    except (CommitFailed, ForeignOutput) as error:
        return tuple(taken), error
    return tuple(taken), None


def _marks(committables: Sequence[Committable]) -> tuple[OutputMark, ...]:
    return tuple(
        OutputMark(str(each.lineage), each.partition, each.epoch.term, each.epoch.number)
        for each in marks(committables)
    )
