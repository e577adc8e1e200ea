"""What a snapshot says about the operators of a job, and whether a job can go on from what a snapshot says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.checkpoint.assignment import RestoreError
from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorInfo, StateInfo
from tidegate.core.ids import Uid
from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph, Input, Process
from tidegate.graph.states import StateKind, StateSpec


class StateChanged(RestoreError):
    """A state, or the key it belongs to, is declared otherwise than when the snapshot was taken."""

    code = "STATE_CHANGED"

    def __init__(self, changes: Iterable[str]) -> None:
        super().__init__(
            f"The snapshot does not fit the job: {'; '.join(changes)}. Declare the state as it was, or give the operator a new "
            "uid and drop the old state with execution.state-recovery.ignore-unclaimed-state (-n)."
        )


def levels_of(graph: Graph, plan: Plan) -> Mapping[Uid, int]:
    """The level of every operator that may have state."""
    where = {node: level.index for level in plan.levels for node in level.nodes}
    return {node.uid: where[node.id] for node in graph.stateful if node.uid is not None}


def describe(
    graph: Graph, plan: Plan, parallelism: int, backend: str, numbers: Mapping[tuple[Uid, str], int]
) -> tuple[OperatorInfo, ...]:
    """Every operator with state, as it is declared now."""
    levels = levels_of(graph, plan)
    return tuple(
        OperatorInfo(
            node.uid,
            levels[node.uid],
            parallelism,
            backend,
            _key(node.input) if isinstance(node, Process) else None,
            tuple(_state(numbers[node.uid, spec.name], spec) for spec in node.states),
        )
        for node in graph.stateful
        if node.states and node.uid is not None
    )


def _key(input: Input) -> Mapping[str, object]:
    return {"columns": [input.schema.fields[input.schema.index(name)].type.ddl() for name in input.key]}


def _state(number: int, spec: StateSpec) -> StateInfo:
    described = spec.describe()
    return StateInfo(
        spec.name,
        number,
        str(described["kind"]),
        described["value"],
        described.get("map_key"),
        described.get("namespace"),
        spec.distribution,
        None if spec.ttl is None else spec.ttl.ttl_ms,
    )


def check_compatible(snapshot: CheckpointMetadata, now: Iterable[OperatorInfo]) -> None:
    """Raise `StateChanged` unless every state that both know is declared alike."""
    before = {operator.uid: operator for operator in snapshot.operators}
    changes: list[str] = []
    for operator in now:
        old = before.get(operator.uid)
        if old is None:
            continue
        if old.key != operator.key:
            changes.append(f"the key of {operator.uid!r} was {_shown(old.key)} and is {_shown(operator.key)}")
        known = {state.name: state for state in old.states}
        for state in operator.states:
            was = known.get(state.name)
            if was is not None and _layout(was) != _layout(state):
                changes.append(
                    f"state {state.name!r} of {operator.uid!r} was {was.distribution} {was.kind} {_shown(was.value)} and "
                    f"is {state.distribution} {state.kind} {_shown(state.value)}"
                )
    if changes:
        raise StateChanged(changes)


_SAME_LAYOUT = {StateKind.SORTED_MAP: "map", StateKind.REDUCING: "value", StateKind.AGGREGATING: "value"}


def _layout(state: StateInfo) -> tuple[object, ...]:
    """What must be equal for the entries of a state to be readable. Its time to live need not: entries say their own."""
    kind = _SAME_LAYOUT.get(state.kind, state.kind)  # type: ignore[call-overload]
    return kind, state.distribution, state.value, state.map_key


def _shown(schema: object) -> str:
    import json

    return json.dumps(schema, separators=(",", ":"))
