"""Operator state in a snapshot of the harness, and its redistribution to another parallelism: planned as in a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidegate.checkpoint.assignment import RestoreTarget, plan_restore
from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    ElementCount,
    OperatorInfo,
    SnapshotKind,
    StateInfo,
    TaskState,
)
from tidegate.checkpoint.operator_shares import OperatorShares
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid
from tidegate.graph.states import Distribution, StateSpec
from tidegate.state.key_groups import range_of_slot
from tidegate.state.operator_states import element_entries, read_elements
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


def dealt_out(
    held: Sequence[Held], specs: Sequence[StateSpec], ids: Mapping[tuple[Uid, str], int], uid: Uid, parallelism: int,
    max_parallelism: int,
) -> Iterator[list[tuple[bytes, bytes]]]:  # fmt: skip
    """Yield, for each new instance, its initial entries of operator state."""
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
    snapshot = CheckpointMetadata(
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
        parallelism=len(held),
        clock_ms=0,
        operators=(OperatorInfo(uid=uid, level=1, parallelism=len(held), backend="", key=None, states=states),),
        tasks=tasks,
    )
    for plan in plan_restore(snapshot, RestoreTarget(max_parallelism, parallelism, {uid: 1})):
        shares = OperatorShares(plan)
        for source in plan.sources:
            shares.take(held[source.slot].reader(), source)
        yield list(shares.entries())
