"""Metrics of sampled accesses to keyed state, under Flink's names. They appear if `state.latency-track.*` or `state.size-track.*`
switches them on."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.metrics.metric import Kind, Metric, Scope

_ACCESSES = {
    "valueStateGet": "a read of a ValueState",
    "valueStateUpdate": "a write of a ValueState",
    "listStateGet": "reading a ListState, without what the function does with its elements",
    "listStateAdd": "adding to a ListState",
    "listStateAddAll": "adding many elements to a ListState",
    "listStateUpdate": "replacing a ListState",
    "mapStateGet": "a read of an entry of a MapState",
    "mapStatePut": "a write of an entry of a MapState",
    "mapStatePutAll": "writing many entries of a MapState",
    "mapStateRemove": "removing an entry of a MapState",
    "mapStateContains": "looking for an entry of a MapState",
    "mapStateIsEmpty": "looking whether a MapState is empty",
    "mapStateEntriesInit": "`items()` of a MapState, up to the first entry",
    "mapStateKeysInit": "`keys()` of a MapState, up to the first key",
    "mapStateValuesInit": "`values()` of a MapState, up to the first value",
    "mapStateIteratorInit": "iterating over a MapState, up to the first key",
    "mapStateIteratorNext": "each further step of an iteration over a MapState",
    "reducingStateGet": "a read of a ReducingState",
    "reducingStateAdd": "adding to a ReducingState",
    "aggregatingStateGet": "a read of an AggregatingState",
    "aggregatingStateAdd": "adding to an AggregatingState",
    "stateClear": "clearing a state",
}
_SIZED = (
    *("valueStateGet", "valueStateUpdate", "listStateAdd", "mapStateGet", "mapStatePut"),
    *("reducingStateGet", "reducingStateAdd", "aggregatingStateGet", "aggregatingStateAdd"),
)


def _metric(name: str, unit: str, help: str) -> Metric:
    return Metric(name, Scope.STATE, Kind.GAUGE, unit=unit, help=help, labels=("quantile",))


STATE_ACCESS: Mapping[str, Metric] = {
    **{f"{a}Latency": _metric(f"{a}Latency", "ns", f"Time of {text}.") for a, text in _ACCESSES.items()},
    **{f"{a}KeySize": _metric(f"{a}KeySize", "bytes", f"Size of the key in {_ACCESSES[a]}.") for a in _SIZED},
    **{f"{a}ValueSize": _metric(f"{a}ValueSize", "bytes", f"Size of the value in {_ACCESSES[a]}.") for a in _SIZED},
}
MEASURED = Metric(
    "numAccessesMeasured",
    Scope.STATE,
    Kind.COUNTER,
    unit="",
    help="Accesses that were measured, one in `sample-interval`.",
    labels=("access",),
)
MEASURED_TOTAL = Metric(
    "measuredSum",
    Scope.STATE,
    Kind.COUNTER,
    unit="",
    help="Sum of what was measured, in nanoseconds or bytes. Divided by `numAccessesMeasured` it is the mean.",
    labels=("access",),
)
QUANTILES = ("0.5", "0.99", "1")
"""The label `quantile`. Each value is that of the slowest task, or of the one with the largest entries."""
