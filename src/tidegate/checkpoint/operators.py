"""What a snapshot says about the operators of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorInfo, StateInfo
from tidegate.core.ids import Uid
from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph, Input, Process
from tidegate.graph.states import StateSpec


def declared(graph: Graph) -> list[tuple[Uid, str]]:
    """Every state of the job, by the uid of its operator and its name."""
    return [(node.uid, spec.name) for node in graph.stateful if node.uid for spec in node.states]


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
    """The operators of `now` with the states that they do not declare any more but whose entries are still in their files.

    A state that comes back finds them, so what they were must not be forgotten.
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
