"""The state of a StatefulProcessor, and of a function of applyInPandasWithState: the same code, names and types on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tidegate.control.spark_import.carried_state import (
    CarriedState,
    FieldsOf,
    KeyMatch,
    LeftState,
    SparkRows,
    Verdict,
)
from tidegate.graph.model import Process
from tidegate.graph.stateful_processing import GROUP_STATE, TIMERS_OF_KEY, ProcessorState, StatefulProcessing, TimeMode
from tidegate.graph.states import TIMERS, StateKind
from tidegate.savepoint.entries import StateEntry, StateLayout
from tidegate.savepoint.incoming import new_entry
from tidegate.schema.datatype import DataType
from tidegate.schema.schema import Schema
from tidegate.state.accessors.processor_states import has_structs, to_stored
from tidegate.state.accessors.ttl import Stamp

_KINDS = {"ValueState": StateKind.VALUE, "ListState": StateKind.LIST, "MapState": StateKind.MAP}
_COLUMNS = {
    StateKind.VALUE: ("key", "value"),
    StateKind.LIST: ("key", "list_element"),
    StateKind.MAP: ("key", "user_map_key", "user_map_value"),
}
_OWN = "$"
"""State variables of Spark itself begin with this: the timers."""
_TIMERS = {"readRegisteredTimers": "true"}
_TIMEOUT = "timeoutTimestamp"


def processor_states(operator: int, properties: Mapping[str, Any], node: Process, fields_of: FieldsOf) -> list[Verdict]:
    """Decide about each state variable of the processor, and its timers."""
    processing: StatefulProcessing = node.function
    variables = {each["stateName"]: each for each in properties.get("stateVariables", ())}
    verdicts: list[Verdict] = []
    for name, about in variables.items():
        if name.startswith(_OWN):
            continue
        try:
            verdicts.append(_carried(operator, node, processing.states.get(name), about, fields_of))
        except ValueError as error:
            verdicts.append(LeftState(operator=operator, spark_name=name, why=str(error)))
    if any(name.startswith(_OWN) for name in variables):
        verdicts += _timers(operator, str(properties.get("timeMode")), node, fields_of)
    return verdicts


def _carried(
    operator: int, node: Process, state: ProcessorState | None, about: Mapping[str, Any], fields_of: FieldsOf
) -> CarriedState:
    name = about["stateName"]
    kind = about["stateVariableType"]
    if state is None:
        raise ValueError(f"the processor of {str(node.uid)!r} does not declare a state of this name")
    if _KINDS.get(kind) is not state.kind:
        raise ValueError(f"it is a {kind} in Spark and {state.spec()} in {str(node.uid)!r}")
    options = {"stateVarName": name}
    fields = fields_of(options)
    columns = _COLUMNS[state.kind]
    key = KeyMatch(node, fields["key"])

    # With a time to live, Spark wraps the value in a struct with the time at which it ends.
    ttl = bool(about.get("ttlEnabled"))
    _check_types(fields[f"{columns[-1]}.value" if ttl else columns[-1]], state.schema)
    if state.map_key is not None:
        _check_types(fields[columns[1]], state.map_key)
    return CarriedState(
        operator=operator,
        spark_name=f"{name} ({kind})",
        uid=node.uid,
        spec=state.spec(),
        options=options,
        columns=columns,
        entries=_VariableEntries(key, state, ttl),
    )


class _VariableEntries:
    """Makes entries of the rows of one state variable."""

    def __init__(self, key: KeyMatch, state: ProcessorState, ttl: bool) -> None:
        self._key = key
        self._state = state
        self._ttl = ttl

    def __call__(self, layout: StateLayout, rows: SparkRows) -> Iterator[StateEntry]:
        key_of = self._key.of
        state = self._state
        ttl = self._ttl
        convert = _named_row(state)
        map_key_of = None if state.map_key is None else to_stored(state.name, state.map_key)
        lives_ms = state.ttl_ms
        for key, *map_key, value in rows:
            stamp = None
            if ttl:
                # Spark stores when an entry ends, tidegate when it was last written.
                value, ends_ms = value
                stamp = None if lives_ms is None else Stamp(False, ends_ms - lives_ms)
            inside = None if map_key_of is None else map_key_of(map_key[0])
            yield new_entry(layout, key_of(key), convert(value), inside, stamp=stamp)


def group_states(operator: int, node: Process, fields_of: FieldsOf) -> list[Verdict]:
    """Decide about the state and the timeouts of a function of applyInPandasWithState."""
    processing: StatefulProcessing = node.function
    state = processing.states[GROUP_STATE]
    fields = fields_of({})
    try:
        key = KeyMatch(node, fields["key"])
        _check_types(fields[f"value.{GROUP_STATE}"], state.schema)
    except ValueError as error:
        return [LeftState(operator=operator, spark_name=GROUP_STATE, why=str(error))]
    convert = _named_row(state)

    def values(layout: StateLayout, rows: SparkRows) -> Iterator[StateEntry]:
        return (new_entry(layout, key.of(row[0]), convert(row[1][0])) for row in rows if row[1][0] is not None)

    def timeouts(rows: SparkRows) -> Iterator[tuple[Any, int]]:
        # Spark's timeout has passed when a clock is later than it; a timer fires when the clock reaches it.
        return ((row[0], row[1][1] + 1) for row in rows if row[1][1] > 0)

    value = CarriedState(
        operator=operator,
        spark_name=GROUP_STATE,
        uid=node.uid,
        spec=state.spec(),
        options={},
        columns=("key", "value"),
        entries=values,
    )
    if all(name != _TIMEOUT for name, _ in fields["value"]):
        return [value]
    if processing.time_mode is TimeMode.NONE:
        why = f"timeoutConf of {str(node.uid)!r} is 'NoTimeout'"
        return [value, LeftState(operator=operator, spark_name="timeouts", why=why)]
    return [value, *_both_timers(operator, "timeouts", node, key, {}, ("key", "value"), timeouts)]


def _named_row(state: ProcessorState) -> Callable[[Any], Any]:
    """Return what makes a value of a row: fields by name, as a snapshot has them."""
    convert = to_stored(state.name, state.schema)
    schema = state.schema
    # Most states are flat, and take the short way.
    names = schema.names
    if not any(has_structs(field.type) for field in schema):
        return lambda row: dict(zip(names, convert(row)))
    return lambda row: {field.name: _named(value, field.type) for field, value in zip(schema, convert(row))}


def _named(value: Any, type: DataType) -> Any:
    if value is None:
        return None
    match type.kind:
        case "struct":
            return {field.name: _named(part, field.type) for field, part in zip(type.fields or (), value)}
        case "array" if type.element is not None:
            return [_named(item, type.element) for item in value]
        case "map" if type.value is not None:
            return {key: _named(item, type.value) for key, item in value.items()}
    return value


def _check_types(columns: Sequence[tuple[str, str]], declared: Schema) -> None:
    if list(columns) != [(field.name, field.type.ddl()) for field in declared]:
        there = ", ".join(f"{name} {type}" for name, type in columns)
        raise ValueError(
            f"its fields are ({there}) in Spark and ({declared}) in the job; import with the names, types and order of Spark, "
            "and change them at a later start"
        )


def _timers(operator: int, time_mode: str, node: Process, fields_of: FieldsOf) -> list[Verdict]:
    processing: StatefulProcessing = node.function
    if processing.time_mode != time_mode:
        why = f"timeMode is {time_mode!r} in Spark and {str(processing.time_mode)!r} in {str(node.uid)!r}"
        return [LeftState(operator=operator, spark_name="timers", why=why)]
    try:
        key = KeyMatch(node, fields_of(_TIMERS)["key"])
    except ValueError as error:
        return [LeftState(operator=operator, spark_name="timers", why=str(error))]
    return _both_timers(operator, "timers", node, key, _TIMERS, ("key", "expiration_timestamp_ms"), iter)


def _both_timers(
    operator: int,
    spark_name: str,
    node: Process,
    key: KeyMatch,
    options: Mapping[str, str],
    columns: tuple[str, ...],
    times: Callable[[SparkRows], Iterator[Any]],
) -> list[Verdict]:
    """Each timer is stored twice: by time, to fire, and under its key, to be listed. `times` yields keys and times."""
    domain = node.function.time_mode.domain.name

    def by_time(layout: StateLayout, rows: SparkRows) -> Iterator[StateEntry]:
        return (new_entry(layout, key.of(of), time, domain) for of, time in times(rows))

    def of_key(layout: StateLayout, rows: SparkRows) -> Iterator[StateEntry]:
        return (new_entry(layout, key.of(of), True, time) for of, time in times(rows))

    return [
        CarriedState(
            operator=operator,
            spark_name=what,
            uid=node.uid,
            spec=spec,
            options=options,
            columns=columns,
            entries=entries,
        )
        for what, spec, entries in ((spark_name, TIMERS, by_time), (f"{spark_name}, by key", TIMERS_OF_KEY, of_key))
    ]
