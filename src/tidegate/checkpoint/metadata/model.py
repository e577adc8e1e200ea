"""The one in-memory model of `_metadata`. Every format ever written is converted to it; only it is used elsewhere.

Unordered collections are sorted when a model is created, so equal checkpoints have equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, TypeVar

from tidegate.checkpoint.metadata.files import FileList
from tidegate.checkpoint.metadata.stored_list import AnyFileList
from tidegate.checkpoint.metadata.stored_output import StoredOutput
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Lineage, TaskId, Term, Uid
from tidegate.graph.states import Distribution as Distribution
from tidegate.state.version import VersionId

Json = Mapping[str, Any]
"""A JSON object, such as the tree returned by `tidegate.core.types.schema_of`."""

MAX_INLINE_BYTES = 1 << 20
"""Maximum size of an inlined file, whatever the threshold: metadata is read as a whole."""

_T = TypeVar("_T")


class SnapshotKind(StrEnum):
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateInfo:
    """One state of one operator, as declared when the snapshot was taken. Schemas are JSON trees."""

    name: str
    id: int
    """The number that represents (uid, name) in key bytes. Never reused."""
    kind: str
    value: Json
    map_key: Json | None = None
    namespace: Json | None = None
    distribution: Distribution = Distribution.KEYED
    ttl_ms: int | None = None
    renamed_from: tuple[str, ...] = ()
    """Earlier names that the job declared. The state has what they held: a later start does not take them again."""
    declared: bool = True
    """False: the operator did not declare it any more, and its entries were kept."""


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """An operator that owns state, where it ran and what it declared."""

    uid: Uid
    level: int
    parallelism: int
    backend: str
    key: Json | None = None
    states: tuple[StateInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class StateNumber:
    """The number of a state in key bytes, kept for the life of the lineage, even while the state is not declared."""

    uid: Uid
    name: str
    id: int


@dataclass(frozen=True, slots=True)
class InlineFile:
    """A file small enough for its bytes to be in the metadata; otherwise like `StateFile`."""

    name: str
    origin: VersionId
    data: bytes


@dataclass(frozen=True, slots=True)
class ElementCount:
    """How many elements a task holds of an operator state with distribution SPLIT or UNION."""

    state: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """The state of one task: a version, and where each of its files is."""

    task: TaskId
    key_groups: tuple[int, int]
    """First and last key group, inclusive."""
    backend: str
    version: VersionId
    files: AnyFileList = field(default_factory=FileList)
    inline: tuple[InlineFile, ...] = ()
    elements: tuple[ElementCount, ...] = ()

    @property
    def size_bytes(self) -> int:
        return self.files.size_bytes + sum(len(file.data) for file in self.inline)

    def delta_bytes(self, checkpoint_id: int) -> int:
        """Return the bytes that the checkpoint wrote for this task: uploaded files, and inlined bytes, which are
        written each time."""
        return self.files.size_since(checkpoint_id) + sum(len(file.data) for file in self.inline)


@dataclass(frozen=True, slots=True)
class QueryFile:
    """A file of the streaming query's directory, such as `offsets/17`, kept verbatim."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The position of one source: opaque lines of JSON, and for file-like sources the `sources/` files it needs."""

    uid: Uid
    lines: tuple[str, ...]
    files: FileList = field(default_factory=FileList)


@dataclass(frozen=True, slots=True)
class SplitTime:
    """The greatest event time seen in one split of a source (for Kafka: a partition)."""

    source: Uid
    split: str
    event_time_ms: int


@dataclass(frozen=True, slots=True)
class CommittedMark:
    """Everything of (lineage, sink, slot) up to and with `epoch` is known to be committed.

    COMMITTED records hold these fields as JSON, so their names never change.
    """

    lineage: Lineage
    sink: Uid
    partition: int
    """The slot."""
    epoch: EpochId


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata:
    """A whole checkpoint or savepoint. Raises ValueError if a task, uid, split or mark occurs twice."""

    job: str
    lineage: Lineage
    checkpoint_id: int
    term: Term
    epoch: EpochId
    kind: SnapshotKind
    triggered_ms: int
    completed_ms: int
    tidegate_version: str
    spark_version: str
    max_parallelism: int
    parallelism: int
    clock_ms: int
    """Processing time of the epoch. The clock of a restored job never goes below it."""
    watermark_ms: int | None = None
    savepoint_format: str | None = None
    operators: tuple[OperatorInfo, ...] = ()
    state_numbers: tuple[StateNumber, ...] = ()
    tasks: tuple[TaskState, ...] = ()
    positions: tuple[SourcePosition, ...] = ()
    query: tuple[QueryFile, ...] = ()
    splits: tuple[SplitTime, ...] = ()
    committables: tuple[Committable, ...] = ()
    """Uncommitted output that is in the metadata itself, in the order of commit within each (lineage, sink, slot)."""
    stored_output: tuple[StoredOutput, ...] = ()
    """The rest of it. `contents.read_contents` reads both; never a part of a savepoint, which needs no object of the job."""
    committed: tuple[CommittedMark, ...] = ()

    def __post_init__(self) -> None:
        for name, key in _ORDER.items():
            object.__setattr__(self, name, _sorted(name, getattr(self, name), key))
        ordered = sorted(self.committables, key=lambda c: (c.lineage, c.sink, c.slot, c.epoch))
        object.__setattr__(self, "committables", tuple(ordered))
        if self.stored_output and self.kind is SnapshotKind.SAVEPOINT:
            raise ValueError("A savepoint contains its uncommitted output; it never refers to objects of the job.")
        for task in self.tasks:
            for file in task.inline:
                if len(file.data) > MAX_INLINE_BYTES:
                    raise ValueError(
                        f"File {file.name!r} of {task.task} has {len(file.data)} bytes; at most {MAX_INLINE_BYTES} may "
                        "be inlined into metadata. Upload it instead."
                    )

    @property
    def waiting_count(self) -> int:
        """The number of committables that it carries."""
        return len(self.committables) + sum(stored.waiting_count for stored in self.stored_output)

    @property
    def full_size_bytes(self) -> int:
        """The bytes that a restore reads."""
        return sum(task.size_bytes for task in self.tasks) + sum(p.files.size_bytes for p in self.positions)

    @property
    def delta_size_bytes(self) -> int:
        """The bytes that this checkpoint wrote: Flink's "Checkpointed Data Size"."""
        of_tasks = sum(task.delta_bytes(self.checkpoint_id) for task in self.tasks)
        return of_tasks + sum(p.files.size_since(self.checkpoint_id) for p in self.positions)


_ORDER: dict[str, Callable[[Any], Any]] = {
    "operators": lambda o: o.uid,
    "state_numbers": lambda n: (n.uid, n.name),
    "tasks": lambda t: t.task,
    "positions": lambda p: p.uid,
    "query": lambda q: q.name,
    "splits": lambda s: (s.source, s.split),
    "committed": lambda m: (m.lineage, m.sink, m.partition),
}


def _sorted(name: str, items: tuple[_T, ...], key: Callable[[_T], Any]) -> tuple[_T, ...]:
    ordered = sorted(items, key=key)
    for before, after in pairwise(ordered):
        if key(before) == key(after):
            raise ValueError(f"Checkpoint metadata names {key(after)} twice under {name!r}.")
    return tuple(ordered)
