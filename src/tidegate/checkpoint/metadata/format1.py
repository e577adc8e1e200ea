"""Format 1 of `_metadata`: the stored names. Files with these names exist, so nothing here may change; adding a field
requires a new format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tidegate.checkpoint.metadata.committable_form import CommittableForm, epoch_of
from tidegate.checkpoint.metadata.files import FileList
from tidegate.checkpoint.metadata.model import (
    CheckpointMetadata,
    CommittedMark,
    Distribution,
    ElementCount,
    InlineFile,
    OperatorInfo,
    QueryFile,
    SnapshotKind,
    SourcePosition,
    SplitTime,
    StateInfo,
    StateNumber,
    TaskState,
)
from tidegate.checkpoint.metadata.stored_list import AnyFileList
from tidegate.checkpoint.metadata.validation import FileChecks
from tidegate.core.ids import Lineage, Slot, TaskId, Term, Uid
from tidegate.state.version import VersionId


class _StateForm(msgspec.Struct, gc=False, omit_defaults=True):
    name: str
    id: int
    kind: str
    distribution: str
    value: dict[str, Any]
    map_key: dict[str, Any] | None
    namespace: dict[str, Any] | None
    ttl_ms: int | None
    # Later than the format. Written only where they say something, and earlier versions of tidegate skip them.
    renamed_from: list[str] = []
    declared: bool = True


class _Operator(msgspec.Struct):
    uid: str
    level: int
    parallelism: int
    backend: str
    key: dict[str, Any] | None
    states: list[_StateForm]


class _Number(msgspec.Struct, gc=False):
    uid: str
    name: str
    id: int


class _InlineForm(msgspec.Struct, gc=False):
    name: str
    origin: str
    data: bytes


class _Elements(msgspec.Struct, gc=False):
    state: int
    count: int


class _TaskFront(msgspec.Struct):
    level: int
    slot: int
    key_groups: tuple[int, int]
    backend: str
    version: str
    inline: list[_InlineForm]
    elements: list[_Elements]


class _TaskForm(_TaskFront):
    files: msgspec.Raw


class _Position(msgspec.Struct):
    uid: str
    lines: list[str]
    files: msgspec.Raw


class _QueryFile(msgspec.Struct, gc=False):
    name: str
    text: str


class _Split(msgspec.Struct, gc=False):
    source: str
    split: str
    event_time_ms: int


class _Mark(msgspec.Struct, gc=False):
    lineage: str
    sink: str
    partition: int
    epoch: str


class _Front(msgspec.Struct):
    job: str
    lineage: str
    checkpoint_id: int
    term: int
    epoch: str
    kind: str
    savepoint_format: str | None
    triggered_ms: int
    completed_ms: int
    spark: str
    max_parallelism: int
    parallelism: int
    clock_ms: int
    watermark_ms: int | None
    full_size_bytes: int
    delta_size_bytes: int
    splits: list[_Split]
    positions: list[_Position]
    query: list[_QueryFile]
    committed: list[_Mark]
    committables: list[CommittableForm]
    operators: list[_Operator]
    state_numbers: list[_Number]


class _Body(_Front):
    tasks: list[_TaskForm]


# Schemas are dictionaries of any order; equal models must have equal bytes.
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(_Body).decode


def _packed(files: AnyFileList) -> bytes:
    if not isinstance(files, FileList):
        raise TypeError(f"Format 1 has no file list in an object of its own, such as {files.path}.")
    return files.packed


def _unpacked(raw: bytes, checks: FileChecks) -> AnyFileList:
    return checks.read(raw)


def from_model(model: CheckpointMetadata, pack: Callable[[AnyFileList], bytes] = _packed) -> Iterator[bytes]:
    """Yield the value of `checkpoint` in pieces: what people look for comes first, the long lists last. `pack` encodes the
    files of a task; later formats have another one.

    In pieces, because the file lists, nearly all of it, are bytes already: encoding everything at once would hold them
    in memory three times.
    """
    front = _encode(
        _Front(
            job=model.job,
            lineage=model.lineage,
            checkpoint_id=model.checkpoint_id,
            term=model.term,
            epoch=model.epoch.name,
            kind=model.kind.value,
            savepoint_format=model.savepoint_format,
            triggered_ms=model.triggered_ms,
            completed_ms=model.completed_ms,
            spark=model.spark_version,
            max_parallelism=model.max_parallelism,
            parallelism=model.parallelism,
            clock_ms=model.clock_ms,
            watermark_ms=model.watermark_ms,
            full_size_bytes=model.full_size_bytes,
            delta_size_bytes=model.delta_size_bytes,
            splits=[_Split(s.source, s.split, s.event_time_ms) for s in model.splits],
            positions=[_Position(p.uid, list(p.lines), msgspec.Raw(p.files.packed)) for p in model.positions],
            query=[_QueryFile(q.name, q.text) for q in model.query],
            committed=[_Mark(m.lineage, m.sink, m.partition, m.epoch.name) for m in model.committed],
            committables=[CommittableForm.of(c) for c in model.committables],
            operators=[_from_operator(o) for o in model.operators],
            state_numbers=[_Number(n.uid, n.name, n.id) for n in model.state_numbers],
        )
    )
    # The front is an object of its own; it is left open, and the tasks follow as its last field.
    yield front[:-1] + b',"tasks":['
    for at, task in enumerate(model.tasks):
        yield (b"," if at else b"") + _encode(_from_task(task))[:-1] + b',"files":'
        yield pack(task.files)
        yield b"}"
    yield b"]}"


def to_model(
    raw: msgspec.Raw, written_by: str, unpack: Callable[[bytes, FileChecks], AnyFileList] = _unpacked
) -> CheckpointMetadata:
    """Raises `msgspec.MsgspecError` or ValueError if the bytes do not follow the format, and UntrustedSnapshot. `unpack` reads
    the files of a task.
    """
    body, checks = _decode(raw), FileChecks()
    return CheckpointMetadata(
        job=body.job,
        lineage=Lineage(body.lineage),
        checkpoint_id=body.checkpoint_id,
        term=Term(body.term),
        epoch=epoch_of(body.epoch),
        kind=SnapshotKind(body.kind),
        savepoint_format=body.savepoint_format,
        triggered_ms=body.triggered_ms,
        completed_ms=body.completed_ms,
        tidegate_version=written_by,
        spark_version=body.spark,
        max_parallelism=body.max_parallelism,
        parallelism=body.parallelism,
        clock_ms=body.clock_ms,
        watermark_ms=body.watermark_ms,
        splits=tuple(SplitTime(Uid(s.source), s.split, s.event_time_ms) for s in body.splits),
        positions=tuple(
            SourcePosition(Uid(p.uid), tuple(p.lines), checks.read(bytes(p.files), True)) for p in body.positions
        ),
        query=tuple(QueryFile(q.name, q.text) for q in body.query),
        committed=tuple(
            CommittedMark(Lineage(m.lineage), Uid(m.sink), m.partition, epoch_of(m.epoch)) for m in body.committed
        ),
        committables=tuple(c.committable() for c in body.committables),
        operators=tuple(_to_operator(o) for o in body.operators),
        state_numbers=tuple(StateNumber(Uid(n.uid), n.name, n.id) for n in body.state_numbers),
        # Copies of the lists, so that keeping one task does not keep the whole file in memory.
        tasks=tuple(_to_task(t, unpack(bytes(t.files), checks)) for t in body.tasks),
    )


def _from_operator(operator: OperatorInfo) -> _Operator:
    states = [
        _StateForm(
            name=s.name,
            id=s.id,
            kind=s.kind,
            distribution=s.distribution.value,
            value=dict(s.value),
            map_key=_tree(s.map_key),
            namespace=_tree(s.namespace),
            ttl_ms=s.ttl_ms,
            renamed_from=list(s.renamed_from),
            declared=s.declared,
        )
        for s in operator.states
    ]
    return _Operator(
        uid=operator.uid,
        level=operator.level,
        parallelism=operator.parallelism,
        backend=operator.backend,
        key=_tree(operator.key),
        states=states,
    )


def _to_operator(o: _Operator) -> OperatorInfo:
    states = tuple(
        StateInfo(
            name=s.name,
            id=s.id,
            kind=s.kind,
            value=s.value,
            map_key=s.map_key,
            namespace=s.namespace,
            distribution=Distribution(s.distribution),
            ttl_ms=s.ttl_ms,
            renamed_from=tuple(s.renamed_from),
            declared=s.declared,
        )
        for s in o.states
    )
    return OperatorInfo(
        uid=Uid(o.uid), level=o.level, parallelism=o.parallelism, backend=o.backend, key=o.key, states=states
    )


def _from_task(t: TaskState) -> _TaskFront:
    return _TaskFront(
        level=t.task.level,
        slot=t.task.slot,
        key_groups=t.key_groups,
        backend=t.backend,
        version=str(t.version),
        inline=[_InlineForm(f.name, str(f.origin), f.data) for f in t.inline],
        elements=[_Elements(e.state, e.count) for e in t.elements],
    )


def _to_task(t: _TaskForm, files: AnyFileList) -> TaskState:
    return TaskState(
        task=TaskId(t.level, Slot(t.slot)),
        key_groups=t.key_groups,
        backend=t.backend,
        version=VersionId.parse(t.version),
        files=files,
        inline=tuple(InlineFile(f.name, VersionId.parse(f.origin), f.data) for f in t.inline),
        elements=tuple(ElementCount(e.state, e.count) for e in t.elements),
    )


def _tree(schema: Any) -> dict[str, Any] | None:
    return None if schema is None else dict(schema)
