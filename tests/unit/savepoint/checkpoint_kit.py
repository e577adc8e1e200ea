"""Real checkpoints without Spark: state written by the accessors that functions use, uploaded as tasks upload it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.checkpoint.files.task_part import decode_part
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry, RunOutcome, Signature
from tidegate.checkpoint.job_log.log import path_of
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    OperatorInfo,
    SnapshotKind,
    SourcePosition,
    StateInfo,
    StateNumber,
    TaskState,
    checksum_in,
    encode,
)
from tidegate.checkpoint.task.version_upload import UploadOrder, VersionUpload
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid
from tidegate.graph.states import StateKind, StateSpec
from tidegate.schema.ddl import Parser
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.operator_states import OperatorStates
from tidegate.state.accessors.ttl import StateClock
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import KeyCodec
from tidegate.state.keys.key_groups import key_group, range_of_slot, slot_of
from tidegate.state.keys.murmur3 import hash_key
from tidegate.state.version import VersionId
from tidegate.storage import new_nonce, open_storage

NOW_MS = 1_767_225_600_000


@dataclass(frozen=True)
class Held:
    """The states of one operator in one task."""

    slot: int
    keyed: KeyedStates
    lists: OperatorStates
    group_of: Callable[[Any], int | None]
    """The key group of a key, if this task serves it."""


Contents = Mapping[str, Mapping[Any, Any]]
"""For each state: key → value, list of elements, or dict of a map."""


@dataclass(frozen=True)
class Operator:
    """An operator with state, and what it holds."""

    uid: str
    key: tuple[str, ...]
    states: tuple[StateSpec, ...]
    holds: Contents
    level: int = 1
    also: Callable[[Held], None] | None = None
    """Does more to the states of every task, after what `holds` says."""

    def info(self, ids: Mapping[tuple[str, str], int], parallelism: int, backend: str) -> OperatorInfo:
        states = []
        for spec in self.states:
            told = spec.describe()
            states.append(
                StateInfo(
                    name=spec.name,
                    id=ids[self.uid, spec.name],
                    kind=told["kind"],
                    value=told["value"],
                    map_key=told.get("map_key"),
                    namespace=told.get("namespace"),
                    distribution=spec.distribution,
                    ttl_ms=None if spec.ttl is None else spec.ttl.ttl_ms,
                )
            )
        return OperatorInfo(Uid(self.uid), self.level, parallelism, backend, {"columns": list(self.key)}, tuple(states))


def value(name: str, tp: Any) -> StateSpec:
    return StateSpec(name=name, kind=StateKind.VALUE, value=tp)


def listing(name: str, tp: Any) -> StateSpec:
    return StateSpec(name=name, kind=StateKind.LIST, value=tp)


def mapping(name: str, key: Any, tp: Any) -> StateSpec:
    return StateSpec(name=name, kind=StateKind.MAP, value=tp, map_key=key)


LINE = Lineage("line-1")


@dataclass
class History:
    """A job's directory in the making: checkpoints and the log that names them."""

    base: Path
    job: str = "orders"
    backend: str = "hashmap"
    parallelism: int = 2
    max_parallelism: int = 128
    inline: int = 0
    url: str | None = None
    """Of the checkpoint directory, if it is not below `base`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    lineage: Lineage = LINE
    refs: list[CheckpointRef] = field(default_factory=list)
    log: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.url = self.url or str(self.base / "ckpt")
        self.storage = open_storage(self.url, **self.options)
        self.layout = JobLayout(self.job)

    def checkpoint(self, id: int, *operators: Operator, **more: Any) -> str:
        """Write checkpoint `id` of these operators; its path. More fields of the metadata may be given."""
        term = Term(1)
        ids = {
            state: number
            for number, state in enumerate(((op.uid, spec.name) for op in operators for spec in op.states), 1)
        }
        levels = sorted({op.level for op in operators})
        tasks = [
            self._task(TaskId(level, Slot(slot)), id, [op for op in operators if op.level == level], ids)
            for level in levels
            for slot in range(self.parallelism)
        ]
        metadata = CheckpointMetadata(
            job=self.job,
            lineage=self.lineage,
            checkpoint_id=id,
            term=term,
            epoch=EpochId(term, id * 10),
            kind=SnapshotKind.CHECKPOINT,
            triggered_ms=1_767_225_600_000 + id,
            completed_ms=1_767_225_601_250 + id,
            tidegate_version="0.1.0",
            spark_version="4.3.0",
            max_parallelism=self.max_parallelism,
            parallelism=self.parallelism,
            clock_ms=1_767_225_599_990,
            operators=tuple(op.info(ids, self.parallelism, self.backend) for op in operators),
            state_numbers=tuple(StateNumber(Uid(uid), name, n) for (uid, name), n in ids.items()),
            tasks=tuple(tasks),
            **{"positions": (SourcePosition(Uid("clicks"), ('{"0":15}',)),), **more},
        )
        data = encode(metadata)
        name = self.layout.metadata(id)
        self.storage.put(name, data)
        self._publish(
            CheckpointRef(
                id=id,
                term=term,
                epoch=metadata.epoch,
                lineage=metadata.lineage,
                metadata=name,
                checksum=checksum_in(data),
            )
        )
        return f"{self.url}/{name.removesuffix('/_metadata')}"

    def start_fresh(self, lineage: str, in_copy: bool = False) -> None:
        """Let another driver abandon the history, and begin a new line of it from nothing. `in_copy`: it found the directory
        in another place than its last owner."""
        self.lineage = Lineage(lineage)
        mine = entries.claim(self.log[-1], self._signature(), self.lineage, None)
        self._append(entries.in_copy(mine) if in_copy else mine)

    def end(self, outcome: RunOutcome, keep: bool = True) -> None:
        self._append(entries.end(self.log[-1], self._signature(), outcome, keep))

    def _served(self, key: Any, types: Any, task: TaskId) -> int | None:
        group = key_group(hash_key(key, types), self.max_parallelism)
        return group if slot_of(group, self.parallelism, self.max_parallelism) == task.slot else None

    def _publish(self, ref: CheckpointRef) -> None:
        self.refs.append(ref)
        if not self.log:
            self._append(entries.claim(None, self._signature(), ref.lineage, None))
        self._append(entries.checkpoint(self.log[-1], self._signature(), ref, 2))

    def _signature(self) -> Signature:
        return Signature(new_nonce(), "driver-1", 1_767_225_600_000 + len(self.log))

    def _append(self, entry: Entry) -> None:
        self.storage.create(path_of(self.layout, entry), entries.to_bytes(entry), entry.nonce)
        self.log.append(entry)

    def _task(
        self, task: TaskId, id: int, operators: list[Operator], ids: Mapping[tuple[str, str], int]
    ) -> TaskState:  # fmt: skip
        version = VersionId(EpochId(Term(1), id * 10), AttemptId(task.slot + 1))
        directory = self.base / "local" / str(id) / str(task)
        groups = range_of_slot(task.slot, self.parallelism, self.max_parallelism)
        store = backend_named(self.backend).begin(directory, None, version, groups)
        elements: dict[int, int] = {}
        for op in operators:
            types = [Parser(ddl).whole_type() for ddl in op.key]
            states = KeyedStates(
                store, op.states, lambda name, uid=op.uid: ids[uid, name], KeyCodec(types), version.epoch, groups,
                StateClock(NOW_MS),
            )  # fmt: skip
            lists = OperatorStates(store, op.states, lambda name, uid=op.uid: ids[uid, name])
            for name, held in op.holds.items():
                for key, what in held.items():
                    group = key_group(hash_key(key, types), self.max_parallelism)
                    if slot_of(group, self.parallelism, self.max_parallelism) == task.slot:
                        states.scope.key, states.scope.key_group = key, group
                        _fill(states.accessors[name], what)
            if op.also is not None:
                op.also(Held(task.slot, states, lists, lambda key, types=types: self._served(key, types, task)))
            states.flush()
            lists.flush()
            elements |= lists.held()
        manifest = store.seal(elements)
        order = UploadOrder(
            checkpoint_id=id, version=version, base=None, inline_threshold=self.inline, inline_total=1 << 20
        )
        upload = VersionUpload(self.storage, self.layout, directory, task, Term(1), order)
        part = upload.run(manifest, version.attempt, lambda: True, lambda: None)
        assert part is not None
        return decode_part(part)[0]


def _fill(accessor: Any, what: Any) -> None:
    if hasattr(accessor, "put_all"):
        accessor.put_all(what)
    else:
        accessor.update(what)
