"""The description of a job's operators in a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorInfo, StateInfo
from tidegate.core.ids import Uid
from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph, Input, Process
from tidegate.graph.states import StateSpec


def declared(graph: Graph) -> list[tuple[Uid, str]]:
    """Return every state of the job, as the uid of its operator and its name."""
    return [(node.uid, spec.name) for node in graph.stateful if node.uid for spec in node.states]


def levels_of(graph: Graph, plan: Plan) -> Mapping[Uid, int]:
    """Return the level of every operator that may have state."""
    where = {node: level.index for level in plan.levels for node in level.nodes}
    return {node.uid: where[node.id] for node in graph.stateful if node.uid is not None}


def describe(
    graph: Graph, plan: Plan, parallelism: int, backend: str, numbers: Mapping[tuple[Uid, str], int]
) -> tuple[OperatorInfo, ...]:
    """Return every operator with state, as currently declared."""
    levels = levels_of(graph, plan)
    return tuple(
        OperatorInfo(
            uid=node.uid,
            level=levels[node.uid],
            parallelism=parallelism,
            backend=backend,
            key=_key(node.input) if isinstance(node, Process) else None,
            states=tuple(_state(numbers[node.uid, spec.name], spec) for spec in node.states),
        )
        for node in graph.stateful
        if node.states and node.uid is not None
    )


def _key(input: Input) -> Mapping[str, object]:
    return {"columns": [input.schema.fields[input.schema.index(name)].type.ddl() for name in input.key]}


def _state(number: int, spec: StateSpec) -> StateInfo:
    described = spec.describe()
    return StateInfo(
        name=spec.name,
        id=number,
        kind=str(described["kind"]),
        value=described["value"],
        map_key=described.get("map_key"),
        namespace=described.get("namespace"),
        distribution=spec.distribution,
        ttl_ms=None if spec.ttl is None else spec.ttl.ttl_ms,
    )


def with_undeclared_states(now: Iterable[OperatorInfo], before: CheckpointMetadata | None) -> tuple[OperatorInfo, ...]:
    """Add to the operators of `now` the states that they no longer declare but whose entries are still in their files.

    A state that is declared again finds these entries, so their description must be kept.
    """
    old = {} if before is None else {operator.uid: operator for operator in before.operators}
    merged = []
    for operator in now:
        known = {state.name for state in operator.states}
        sleeping = (
            [state for state in old[operator.uid].states if state.name not in known] if operator.uid in old else []
        )
        merged.append(replace(operator, states=(*operator.states, *sleeping)))
    return tuple(merged)
