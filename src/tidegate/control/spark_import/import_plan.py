"""What an import will do: which source of the job continues at which position, which state becomes which, and what is left. Pure.

A Spark query numbers its sources and its stateful operators. If the job has one counterpart for each, they are matched; otherwise
the user says which belongs to which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tidegate.control.spark_import.carried_state import CarriedState, FieldsOf, ImportRefused, LeftState, Verdict
from tidegate.control.spark_import.processor_state import group_states, processor_states
from tidegate.control.spark_import.sql_state import aggregate_state, seen_keys, window_state
from tidegate.core.ids import Uid
from tidegate.graph.model import Graph, Process, Source
from tidegate.graph.stateful_processing import StatefulProcessing
from tidegate.operators.deduplicate import Deduplicate
from tidegate.operators.running_aggregate import RunningAggregate
from tidegate.operators.window_operator import WindowOperator
from tidegate.runtime.sources.stopped_query import SparkOperator, StateFields, StoppedQuery

_REASONS = {
    "symmetricHashJoin": "Spark keeps the rows of both sides; an interval join keeps them with the times at which they may be "
    "forgotten, which Spark computes from the condition and does not store",
    "sessionWindowStateStoreSaveExec": "Spark stores sessions without the gap, from which tidegate computes when rows merge them",
    "dedupeWithinWatermark": "its keys expire in event time; those of deduplicate expire in processing time",
    "flatMapGroupsWithState": "it is the state of a Scala or Java function",
}


@dataclass(frozen=True, slots=True)
class SourceMatch:
    """A source of the query and the source of the job that continues from its position."""

    place: int
    source: Source


@dataclass(frozen=True, slots=True)
class ImportPlan:
    sources: tuple[SourceMatch, ...]
    states: tuple[CarriedState, ...]
    left: tuple[LeftState, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What is left, a sentence each."""
        return tuple(
            f"{state.spark_name} of operator {state.operator} is not carried over: {state.why}." for state in self.left
        )

    @property
    def questions(self) -> tuple[str, ...]:
        """What only the user can know, a sentence each."""
        return tuple(f"{state.unsure}." for state in self.states if state.unsure)


FieldsIn = Callable[[int, Mapping[str, str]], StateFields]
"""The fields of a state of the query: its operator, and the options that name it."""


def plan_import(
    query: StoppedQuery,
    graph: Graph,
    fields_in: FieldsIn,
    *,
    sources: Mapping[int, str],
    operators: Mapping[int, str],
) -> ImportPlan:
    """Decide what happens to each part of the query. `sources` and `operators` are what the user says: number → uid.

    Raises ImportRefused if the user has to say which belongs to which.
    """
    matches = _matched_sources(query, graph.sources, sources)
    nodes = [node for node in graph.stateful if isinstance(node, Process)]
    _check_numbers(operators, [operator.id for operator in query.operators], "operator")

    # An operator that the user has matched is offered to no other.
    matched = {uid: id for id, uid in operators.items()}
    verdicts: list[Verdict] = []
    for operator in query.operators:
        taker = _node_for(operator, nodes, query.operators, operators, matched)
        if isinstance(taker, str):
            verdicts.append(LeftState(operator=operator.id, spark_name=f"the state of {operator.name}", why=taker))
        else:
            verdicts += _decide(operator, taker, partial(fields_in, operator.id), query.clock_ms)
    return ImportPlan(
        matches,
        tuple(verdict for verdict in verdicts if isinstance(verdict, CarriedState)),
        tuple(verdict for verdict in verdicts if isinstance(verdict, LeftState)),
    )


def _is_processor(function: object) -> bool:
    return isinstance(function, StatefulProcessing) and not function.grouped


def _is_group_function(function: object) -> bool:
    return isinstance(function, StatefulProcessing) and function.grouped


def _aggregates(function: object) -> bool:
    return isinstance(function, RunningAggregate | WindowOperator)


def _deduplicates(function: object) -> bool:
    return isinstance(function, Deduplicate)


_TAKES_OVER: Mapping[str, Callable[[object], bool]] = {
    "transformWithStateExec": _is_processor,
    "transformWithStateInPySparkExec": _is_processor,
    "transformWithStateInPandasExec": _is_processor,
    "applyInPandasWithState": _is_group_function,
    "stateStoreSave": _aggregates,
    "dedupe": _deduplicates,
}
"""Spark's name of an operator → whether a function of a job may take over its state."""


def _decide(operator: SparkOperator, node: Process, fields_of: FieldsOf, clock_ms: int) -> list[Verdict]:
    match node.function:
        case StatefulProcessing(grouped=True):
            return group_states(operator.id, node, fields_of)
        case StatefulProcessing():
            return processor_states(operator.id, operator.properties, node, fields_of)
        case RunningAggregate():
            return aggregate_state(operator.id, node, fields_of)
        case WindowOperator():
            return window_state(operator.id, node, fields_of)
    return seen_keys(operator.id, node, fields_of, clock_ms)


def _node_for(
    operator: SparkOperator,
    nodes: Sequence[Process],
    all: Sequence[SparkOperator],
    choices: Mapping[int, str],
    matched: Mapping[str, int],
) -> Process | str:
    """Return the operator of the job that takes over the state, or why none does."""
    takes_over = _TAKES_OVER.get(operator.name)
    if takes_over is None:
        return _REASONS.get(operator.name, "tidegate does not know how Spark stores it")
    if operator.id in choices:
        # Also checked when the user is sure: bytes of another kind of state would be read as this one.
        node = next((node for node in nodes if str(node.uid) == choices[operator.id]), None)
        if node is None or not takes_over(node.function):
            raise ImportRefused(
                f"--operator {operator.id}={choices[operator.id]}: the job has no operator of this uid that does what "
                f"{operator.name} does in Spark. It has: {_uids(nodes)}."
            )
        return node

    # Unless the user says so, only a single pair is certain.
    rivals = [other for other in all if _TAKES_OVER.get(other.name) is takes_over and other.id not in choices]
    fitting = [node for node in nodes if takes_over(node.function) and str(node.uid) not in matched]
    if not fitting:
        return f"the job has no operator that does what {operator.name} does in Spark. It has: {_uids(nodes)}"
    if len(rivals) > 1 or len(fitting) > 1:
        raise ImportRefused(
            f"Operator {operator.id} of the query ({operator.name}) could be {_uids(fitting)}. Say which: --operator "
            f"{operator.id}={fitting[0].uid}."
        )
    return fitting[0]


def _matched_sources(
    query: StoppedQuery, sources: Sequence[Source], choices: Mapping[int, str]
) -> tuple[SourceMatch, ...]:
    _check_numbers(choices, range(len(query.sources)), "source")
    by_uid = {source.uid: source for source in sources}
    if not choices and len(query.sources) == len(sources) == 1:
        return (SourceMatch(0, sources[0]),)
    names = ", ".join(repr(str(uid)) for uid in by_uid)
    matches = []
    for place in range(len(query.sources)):
        if place not in choices:
            raise ImportRefused(
                f"The query reads {len(query.sources)} sources, the job {len(sources)} ({names}), and a position belongs to one "
                f"of them. Say which: --source {place}=UID for each from 0 to {len(query.sources) - 1}."
            )
        if Uid(choices[place]) not in by_uid:
            raise ImportRefused(
                f"--source {place}={choices[place]}: the job has no source of this uid. It has: {names}."
            )
        matches.append(SourceMatch(place, by_uid[Uid(choices[place])]))
    if len({match.source.uid for match in matches}) < len(matches):
        raise ImportRefused("--source: two sources of the query cannot become one source of the job.")
    return tuple(matches)


def _check_numbers(choices: Mapping[int, str], there: Sequence[int], what: str) -> None:
    unknown = [number for number in choices if number not in there]
    if unknown:
        raise ImportRefused(
            f"--{what} {unknown[0]}={choices[unknown[0]]}: the query has no {what} {unknown[0]}. It has: "
            f"{', '.join(map(str, there)) or 'none'}."
        )


def _uids(nodes: Sequence[Process]) -> str:
    return ", ".join(repr(str(node.uid)) for node in nodes) or "none"
