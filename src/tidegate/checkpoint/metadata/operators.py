"""The description of a job's operators in a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorInfo, StateInfo
from tidegate.core.ids import Uid
from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph, Input, Process, Transform
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
        describe_node(node, node.uid, levels[node.uid], parallelism, backend, numbers)
        for node in graph.stateful
        if node.states and node.uid is not None
    )


def describe_node(
    node: Process | Transform,
    uid: Uid,
    level: int,
    parallelism: int,
    backend: str,
    numbers: Mapping[tuple[Uid, str], int],
) -> OperatorInfo:
    """Return one operator, as currently declared."""
    return OperatorInfo(
        uid=uid,
        level=level,
        parallelism=parallelism,
        backend=backend,
        key=_key(node.input) if isinstance(node, Process) else None,
        states=tuple(_state(numbers[uid, spec.name], spec) for spec in node.states),
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
        renamed_from=spec.renamed_from,
    )


def with_undeclared_states(
    now: Iterable[OperatorInfo], before: CheckpointMetadata | None, dropped: Collection[tuple[str, str]] = ()
) -> tuple[OperatorInfo, ...]:
    """Add to the operators of `now` the states that they no longer declare but whose entries are still in their files.

    A state that is declared again finds these entries, so their description must be kept. Those of `dropped`, which are pairs
    of uid and name, were not restored.
    """
    old = {} if before is None else {operator.uid: operator for operator in before.operators}
    merged = []
    for operator in now:
        known = {state.name for state in operator.states}
        # Only of operators that still exist. What operators that are gone had is not restored at all (`-n`).
        sleeping = [
            replace(state, declared=False)
            for state in (old[operator.uid].states if operator.uid in old else ())
            if state.name not in known and (operator.uid, state.name) not in dropped
        ]
        merged.append(replace(operator, states=(*operator.states, *sleeping)))
    return tuple(merged)
