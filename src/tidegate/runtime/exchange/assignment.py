"""The assignment of the tasks of a level for one epoch: the program to run, the versions to start from, their checkpoint work."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.checkpoint.task.version_restore import RestoreOrder
from tidegate.checkpoint.task.version_upload import EarlyUpload, UploadOrder
from tidegate.connectors.sink import Committable
from tidegate.core.errors import ALL_FUNCTIONS
from tidegate.core.history import History
from tidegate.core.ids import EpochId, HostId, Lineage, Slot, TaskId, Term, Uid
from tidegate.core.measuring import MEASURING, Measuring
from tidegate.core.times import NO_TIME, EpochTime
from tidegate.runtime.exchange.program import LevelProgram
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.state.version import VersionId


@dataclass(frozen=True, slots=True)
class Archive:
    """The location of the job's checkpoints, with what is needed to open it."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of `open_storage`, complete. They may hold secrets and are never printed."""


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """Output of a sink that one task commits, in this order."""

    sink: Uid
    lane: int
    """The slot whose output it is, perhaps one of an older parallelism; `ALL_SLOTS` for a sink whose slots are not stable."""
    committables: tuple[Committable, ...] = field(repr=False)
    compares: bool = False
    """Compare the markers of all slots with the job's history first: nobody could ask the target when the job started."""

    @property
    def end(self) -> tuple[EpochId, Slot]:
        """Two orders of one lane with the same end are for the same output."""
        return self.committables[-1].epoch, self.committables[-1].slot


ALL_SLOTS = -1


@dataclass(frozen=True, slots=True, order=True)
class CheckpointNotice:
    """What became of a checkpoint, for functions that want to know. In the order in which functions are notified."""

    checkpoint_id: int
    """The id that `snapshot_state` got in the last epoch that the checkpoint contains."""
    complete: bool
    """False: it was aborted. A later checkpoint may contain the same epoch, and complete."""


@dataclass(frozen=True, slots=True)
class HostUploads:
    """`CheckpointWork.every_upload` as it is sent: the orders of the tasks on each host, which the first task of a worker process
    opens. They are the same for all tasks of an epoch."""

    epoch: EpochId
    packed: Mapping[HostId, bytes] = field(repr=False)

    def on(self, host: HostId) -> tuple[tuple[TaskId, UploadOrder], ...]:
        data = self.packed.get(host)
        return () if data is None else pickle.loads(zlib.decompress(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWork:
    """What the tasks of one level do for checkpoints in one epoch, besides its rows. Sequences have an item for each slot."""

    uploads: Sequence[tuple[UploadOrder, ...]] = ()
    every_upload: tuple[tuple[TaskId, UploadOrder], ...] = ()
    """The orders for all tasks of the job. The first task on a host starts those of tasks that wait for a core or a level."""
    host_uploads: HostUploads | None = None
    """What a task gets instead of `every_upload`."""
    keep: Sequence[tuple[VersionId, ...]] = ()
    """Versions that local clean-up must keep, besides the one to start from."""
    records: tuple[tuple[Term, int], ...] = ()
    """Checkpoints (term, id) whose upload records are still needed."""
    restores: Sequence[RestoreOrder | None] = ()
    """In the epoch that restores state: where the state of each slot comes from."""
    wait_ms: int = 0
    """How long a task may wait at its end for an upload or a commit to finish."""
    commits: Sequence[tuple[CommitOrder, ...]] = ()
    """Output that the tasks commit."""
    early: EarlyUpload | None = None
    announced: int = 0
    """The checkpoint that was announced last, if the driver does not know yet what became of it. Its uploads continue even if no
    order names them."""
    stores_acks: bool = False
    """Whether results of uploads are stored for the driver as soon as they exist: no epoch takes them there soon."""
    truncated: Sequence[VersionId | None] = ()
    """With a changelog: the version up to which no checkpoint needs the changes of a slot."""
    notices: tuple[CheckpointNotice, ...] = ()
    """Notices that functions get before the first row. Empty if no function of the level wants to know."""
    inline_output_bytes: int = 0
    """How many bytes of output each task may send with its acknowledgement instead of storing them."""

    def of(self, slot: Slot) -> tuple[tuple[UploadOrder, ...], tuple[VersionId, ...], RestoreOrder | None]:
        return (
            self.uploads[slot] if self.uploads else (),
            self.keep[slot] if self.keep else (),
            self.restores[slot] if self.restores else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssignment:
    """The work of the tasks of one level in one epoch. The driver has that of all slots; a task gets its own (`task_parts`)."""

    job: str
    lineage: Lineage
    epoch: EpochId
    parallelism: int
    max_parallelism: int
    program: bytes
    """A pickled LevelProgram. Unpickled for every attempt, so that a failed attempt leaves nothing behind in a function."""
    slots: tuple[Slot, ...]
    """The slot of each partition of this level."""
    salts: tuple[int, ...]
    """For each slot of the next level, the integer that Spark's hash maps to its partition. Empty for the last level."""
    versions: Sequence[VersionId | None]
    """The state version of each slot to start from."""
    backend: str
    backend_options: Mapping[str, Any]
    local_dir: str | None
    senders: int | None
    """The number of tasks of the level above that send barriers; None if only Spark knows (the
    source stage), 0 if it sends none.
    """

    archive: Archive | None = None
    work: CheckpointWork = CheckpointWork()
    time: EpochTime = NO_TIME
    wake: Sequence[bool] = ()
    """Slots whose timers are due or unknown: their tasks open their state even if no row arrives."""
    measuring: Measuring = MEASURING
    history: History | None = None
    """What tasks that commit output compare the markers in their target with."""
    mark_every_ms: int = 0
    """How often the tasks of an epoch that takes long leave a mark for the driver. 0: never."""

    def unpickle(self) -> LevelProgram:
        try:
            program = pickle.loads(self.program)
        except (ImportError, AttributeError) as error:
            # Nobody knows which function needed the module.
            raise FunctionFailed(ALL_FUNCTIONS, _not_importable(error)) from error
        assert isinstance(program, LevelProgram)
        return program


def _not_importable(error: Exception) -> Exception:
    if isinstance(error, ModuleNotFoundError):
        # What to do about it is the same as for an import inside a function (`user_code`).
        return ImportError(f"the functions of the job cannot be loaded on an executor: {error}.")
    return ImportError(
        f"the functions of the job cannot be loaded on an executor: {error}. Modules that are not sent with them "
        "must be importable there: install them, or add them with spark.submit.pyFiles or spark.addArtifact(…, "
        "pyfile=True)."
    )
