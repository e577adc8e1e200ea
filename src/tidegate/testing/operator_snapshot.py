"""Operator state in a snapshot of the harness, and its redistribution to another parallelism: planned as in a job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    ElementCount,
    OperatorInfo,
    SnapshotKind,
    StateInfo,
    StateNumber,
    TaskState,
)
from tidegate.checkpoint.metadata.operators import describe_node, with_undeclared_states
from tidegate.checkpoint.task.assignment import RestoreTarget, UnclaimedState, plan_restore
from tidegate.checkpoint.task.operator_shares import OperatorShares
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid
from tidegate.core.times import MIN_WATERMARK
from tidegate.graph.model import Process, Transform
from tidegate.graph.state_ids import assign
from tidegate.graph.states import Distribution, StateSpec
from tidegate.savepoint.compatibility import JobInHarness
from tidegate.savepoint.renames import DeclaredNames, carried_over
from tidegate.savepoint.restore_compatibility import Fitted, check_names, converter, fit
from tidegate.state.accessors.operator_states import element_entries, read_elements
from tidegate.state.keys.key_groups import range_of_slot
from tidegate.state.port import StateStore
from tidegate.state.version import VersionId

_EPOCH = EpochId(Term(1), 1)


class Held(dict[int, tuple[bytes, ...]]):
    """The operator state of one instance, by state id. Reads like the store it came from."""

    @staticmethod
    def of(store: StateStore, specs: Sequence[StateSpec], ids: Mapping[tuple[Uid, str], int], uid: Uid) -> Held:
        numbers = [ids[uid, spec.name] for spec in specs if not spec.keyed]
        found = {number: read_elements(store, number) for number in numbers}
        return Held({number: tuple(elements) for number, elements in found.items() if elements is not None})

    def reader(self) -> _Reader:
        return _Reader(dict(entry for id, elements in self.items() for entry in element_entries(elements, id)))


class _Reader:
    """The part of a store that restoring lists needs."""

    def __init__(self, entries: Mapping[bytes, bytes]) -> None:
        self._entries = entries

    def get(self, key: bytes) -> bytes | None:
        return self._entries.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._entries.get(key) for key in keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All state of a function at one moment, restorable with any parallelism."""

    max_parallelism: int
    """The number of key groups."""
    described: OperatorInfo
    """The operator and its states, as a snapshot of a job has them."""
    state_ids: Mapping[tuple[Uid, str], int]
    """The number under which each state is stored."""
    entries: tuple[tuple[bytes, bytes], ...]
    """All entries of keyed state, as stored."""
    watermark_ms: int = MIN_WATERMARK
    """The watermark at that moment."""
    clock_ms: int = 0
    """The processing time at that moment."""
    operator: tuple[Held, ...] = ()
    """Operator state of each instance."""


@dataclass(frozen=True)
class FittedSnapshot:
    """A snapshot in the names and types of the operator that restores it: judged and converted as when a job starts."""

    snapshot: Snapshot
    stored: CheckpointMetadata
    state_ids: Mapping[tuple[Uid, str], int]
    fitted: Fitted

    @staticmethod
    def of(
        snapshot: Snapshot,
        node: Process | Transform,
        uid: Uid,
        earlier_uids: Sequence[str],
        drop_state: Collection[str],
        renamed_fields: Mapping[str, Mapping[str, str]],
    ) -> FittedSnapshot:
        """Raises `RestoreError` if a job would not start from such a snapshot."""
        numbers = tuple(StateNumber(owner, name, id) for (owner, name), id in snapshot.state_ids.items())
        stored = _metadata(snapshot.max_parallelism, 1, operators=(snapshot.described,), state_numbers=numbers)
        names = {spec.name: spec.renamed_from for spec in node.states}
        stored = carried_over(stored, DeclaredNames({uid: names}, {uid: tuple(earlier_uids)}))
        known = {(number.uid, number.name): number.id for number in stored.state_numbers}
        ids = assign(known, [(uid, spec.name) for spec in node.states])
        # Parallelism and backend are not compared: both may change with any start.
        now = describe_node(node, uid, 1, 1, "", ids)
        renames = {(str(uid), state): fields for state, fields in renamed_fields.items()}
        job = JobInHarness((now,), renames=renames, drops={(str(uid), name) for name in drop_state})
        check_names(stored, job)
        fitted = fit(stored, job, False)
        if not fitted.compatibility.compatible:
            raise UnclaimedState(tuple(sorted({verdict.uid for verdict in fitted.compatibility.refusals})))
        return FittedSnapshot(snapshot, stored, ids, fitted)

    def with_undeclared_states(self, now: OperatorInfo) -> OperatorInfo:
        """Add the states that the operator does not declare any more and that it keeps."""
        (described,) = with_undeclared_states([now], self.stored, self.fitted.compatibility.dropped)
        return described

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of keyed state."""
        # A key begins with two bytes of key group and two bytes of state id.
        dropped = {id.to_bytes(2, "big") for id in self.fitted.dropped}
        converts = {id.to_bytes(2, "big"): convert for id, convert in self.converts.items()}
        for key, value in self.snapshot.entries:
            if key[2:4] not in dropped:
                convert = converts.get(key[2:4])
                yield key, value if convert is None else convert(value)

    @cached_property
    def converts(self) -> Mapping[int, Callable[[bytes], bytes]]:
        return {each.old.id: converter(each) for each in self.fitted.migrations}

    def dealt_out(self, specs: Sequence[StateSpec], uid: Uid, parallelism: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield, for each new instance, its initial entries of operator state."""
        held, limit = self.snapshot.operator, self.snapshot.max_parallelism
        return dealt_out(held, specs, self.state_ids, uid, parallelism, limit, self.converts)


def dealt_out(
    held: Sequence[Held],
    specs: Sequence[StateSpec],
    ids: Mapping[tuple[Uid, str], int],
    uid: Uid,
    parallelism: int,
    max_parallelism: int,
    converts: Mapping[int, Callable[[bytes], bytes]],
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield, for each new instance, its initial entries of operator state."""
    # Described as a checkpoint of a job describes it, so that the planner of restores decides who gets which elements.
    states = tuple(
        StateInfo(
            name=spec.name,
            id=ids[uid, spec.name],
            kind=str(spec.kind),
            value={},
            map_key=None,
            namespace=None,
            distribution=spec.distribution,
        )
        for spec in specs
        if not spec.keyed
    )
    lists = {s.id for s in states if s.distribution is not Distribution.BROADCAST}
    tasks = tuple(
        TaskState(
            task=TaskId(1, Slot(slot)),
            key_groups=range_of_slot(slot, len(held), max_parallelism),
            backend="",
            version=VersionId(_EPOCH, AttemptId(slot)),
            elements=tuple(ElementCount(id, len(elements)) for id, elements in each.items() if id in lists),
        )
        for slot, each in enumerate(held)
    )
    info = OperatorInfo(uid=uid, level=1, parallelism=len(held), backend="", key=None, states=states)
    snapshot = _metadata(max_parallelism, len(held), operators=(info,), tasks=tasks)
    for plan in plan_restore(snapshot, RestoreTarget(max_parallelism, parallelism, {uid: 1})):
        shares = OperatorShares(plan, converts)
        for source in plan.sources:
            shares.take(held[source.slot].reader(), source)
        yield list(shares.entries())


def _metadata(max_parallelism: int, parallelism: int, **contents: Any) -> CheckpointMetadata:
    return CheckpointMetadata(
        job="harness",
        lineage=Lineage("harness"),
        checkpoint_id=1,
        term=Term(1),
        epoch=_EPOCH,
        kind=SnapshotKind.CHECKPOINT,
        triggered_ms=0,
        completed_ms=0,
        tidegate_version="",
        spark_version="",
        max_parallelism=max_parallelism,
        parallelism=parallelism,
        clock_ms=0,
        **contents,
    )
