"""What must hold when a driver of the simulation is about to write a checkpoint, and while it takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from chaos.simulation.model import Epoch, Snapshot, StateFile, verify
from chaos.simulation.real_tasks import check_restore
from chaos.simulation.tasks import SMALL, TaskStorage
from chaos.simulation.world import World
from tidegate.checkpoint.coordination.failure import CheckpointFailureReason
from tidegate.checkpoint.coordination.pending import PendingCheckpoint, Stage
from tidegate.checkpoint.coordination.requests import RequestKind
from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.coordination.timing import AWAITED_MS, Cadence
from tidegate.checkpoint.files.file_lists import objects_of, with_files
from tidegate.checkpoint.files.task_part import list_digest
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import CheckpointMetadata, FileList, MetadataError, SnapshotKind, StoredFileList
from tidegate.checkpoint.output.committables import channel
from tidegate.connectors.sink import Committable
from tidegate.core.clock import Instant
from tidegate.core.ids import EpochId, Slot, TaskId


class WrittenMetadata:
    """Reads what a driver is about to store, and checks that it is the state of its own epochs, complete."""

    def __init__(self, world: World, layout: JobLayout, groups: int, real: bool) -> None:
        self._world = world
        self._layout = layout
        self._groups = groups
        self._real = real

    def look(
        self, path: str, data: bytes, head: Epoch | None, width: int, waiting: Sequence[Committable], superseded: bool
    ) -> Snapshot:
        """`head` is the driver's last epoch, `waiting` the output that it must carry. `superseded`: another driver owns the job
        by now, so files may be gone, and it cannot be completed."""
        world, metadata = self._world, self._world.metadata(data)
        root = path.rpartition("/")[0]
        if metadata.kind is SnapshotKind.CHECKPOINT:
            root = self._layout.root
        chain = () if head is None else head.chain()
        epoch = next((each for each in chain if each.id == metadata.epoch), None)
        if epoch is None:
            world.fail(f"checkpoint {metadata.checkpoint_id} is of epoch {metadata.epoch}, which was discarded")
        missing = {TaskId(1, Slot(slot)) for slot in range(width)} - {state.task for state in metadata.tasks}
        if missing:
            world.fail(
                f"checkpoint {metadata.checkpoint_id} is to be published without {sorted(map(str, missing))[:3]}"
            )
        snapshot = self._read(root, metadata, epoch, superseded)
        if not superseded:
            self._check_output(path, data, metadata.epoch, waiting)
            if self._real:
                check_restore(world, snapshot, self._groups, [world.rng.randrange(width)])
            elif width <= SMALL:
                verify(snapshot, self._groups)
        return snapshot

    def _read(self, root: str, metadata: CheckpointMetadata, epoch: Epoch, superseded: bool) -> Snapshot:
        world = self._world
        paths: set[str] = set()
        tasks: list[tuple[tuple[StateFile, str], ...]] = []
        for state in metadata.tasks:
            files: tuple[tuple[StateFile, str], ...] = ()
            try:
                listed = with_files(TaskStorage(world), root, state).files  # type: ignore[arg-type]
            except MetadataError as error:
                if not superseded:
                    world.fail(f"the list of {state.task} cannot be read: {error}")
            else:
                assert isinstance(listed, FileList)
                paths |= objects_of(root, listed, state.files)
                if not self._real and len(listed):
                    files = world.modelled[state.task, state.version, list_digest(state.files)]
            tasks.append(files)
            if isinstance(state.files, StoredFileList) and state.files.base is not None:
                world.tally.events["lists of which only the changes are stored"] += 1
        return Snapshot(
            epoch=epoch,
            metadata=metadata,
            root=root,
            paths=frozenset(paths),
            tasks=() if self._real else tasks,
        )

    def _check_output(self, path: str, data: bytes, epoch: EpochId, waiting: Sequence[Committable]) -> None:
        """A checkpoint carries what waits, each once, wherever it is."""
        try:
            contents = self._world.read_now(path, data)
        except MetadataError as error:
            self._world.fail(f"{path} is to be written, and its output cannot be read: {error}")
        carried = Counter((channel(c), c.epoch) for c in contents.committables)
        expected = Counter((channel(c), c.epoch) for c in waiting)
        if carried != expected:
            self._world.fail(
                f"a checkpoint of {epoch} carries {carried - expected} too much and lacks {expected - carried}"
            )


class WatchedCheckpoints(CheckpointStatsTracker):
    """The coordinator tells the statistics of a term what becomes of checkpoints. That is checked here."""

    def __init__(self, world: World, cadence: Cadence) -> None:
        super().__init__()
        self._world = world
        self._cadence = cadence
        self.announced: dict[int, EpochId] = {}
        """Checkpoint → the epoch that it was announced to."""
        self._running: EpochId | None = None
        """The epoch that runs."""
        self._began_ms = 0.0
        self._longest_ms = 0.0
        """How long the longest epoch took since a checkpoint was missing."""
        self._triggered_ms: dict[int, float] = {}
        self._idle_since_ms: float | None = None

    def epoch_begins(self, epoch: EpochId) -> None:
        self._running = epoch
        self._began_ms = self._world.clock.now_ms

    def epoch_ends(self) -> None:
        """Or it is given up."""
        self._running = None
        self._longest_ms = max(self._longest_ms, self._world.clock.now_ms - self._began_ms)

    def announce(self, id: int, epoch: EpochId, pending: Sequence[PendingCheckpoint]) -> None:
        """An epoch has begun with this announcement."""
        self._world.tally.events["announcements"] += 1
        if id in self.announced:
            self._world.fail(f"checkpoint {id} was announced to epoch {self.announced[id]} and to {epoch}")
        if pending:
            self._world.fail(f"checkpoint {id} was announced while {pending[0].id} was in progress")
        self.announced[id] = epoch

    def triggered(self, pending: PendingCheckpoint) -> None:
        super().triggered(pending)
        self._triggered_ms[pending.id] = self._world.clock.now_ms
        if pending.request.kind is not RequestKind.SAVEPOINT:
            self._idle_since_ms = None
        stored = self.announced.get(pending.id)
        if stored is not None and stored != pending.epoch:
            self._world.fail(
                f"checkpoint {pending.id} is of epoch {pending.epoch}; tasks of {stored} have stored files for it"
            )
        if stored is not None:
            self._world.tally.events["checkpoints stored early"] += 1
        elif pending.request.kind is RequestKind.PERIODIC and self._running is not None:
            self._world.fail(f"checkpoint {pending.id} began while epoch {self._running} was running")

    def failed(
        self, pending: PendingCheckpoint, now: Instant, reason: CheckpointFailureReason, message: str = ""
    ) -> None:
        super().failed(pending, now, reason, message)
        age_ms = self._world.clock.now_ms - self._triggered_ms[pending.id]
        if reason is CheckpointFailureReason.CHECKPOINT_EXPIRED and age_ms < self._cadence.timeout_ms - 1:
            self._world.fail(f"checkpoint {pending.id} expired after {age_ms:.0f} ms")

    def check_cadence(self, now_ms: float, pending: Sequence[PendingCheckpoint], saved: bool) -> None:
        """After a tick: nothing has outlived its timeout, and what is due has begun, whatever the wall clock shows and
        whatever savepoint is under way, unless it ends the job. A checkpoint that is due may wait for one more epoch. `saved`:
        the latest checkpoint has the last epoch."""
        cadence = self._cadence
        period_ms = max(cadence.interval_ms or 0, cadence.min_pause_ms) + cadence.min_pause_ms
        longest_ms = period_ms + max(AWAITED_MS, self._longest_ms)
        for each in pending:
            age_ms = now_ms - self._triggered_ms[each.id]
            if each.stage is not Stage.COMPLETING and age_ms > cadence.timeout_ms + 1:
                self._world.fail(f"checkpoint {each.id} is {age_ms:.0f} ms old and has not expired")
        busy = any(each.request.kind is not RequestKind.SAVEPOINT for each in pending)
        if saved or busy:
            self._idle_since_ms = None
            self._longest_ms = 0.0
        elif self._idle_since_ms is None:
            self._idle_since_ms = self._world.clock.now_ms  # A process that slept in the middle of a tick begins here.
        elif now_ms - self._idle_since_ms > longest_ms + 1:
            self._world.fail(f"no checkpoint began for {now_ms - self._idle_since_ms:.0f} ms although epochs finished")
