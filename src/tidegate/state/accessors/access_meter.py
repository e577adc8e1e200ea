"""Measures accesses to keyed state: how long they take, and how large keys and values are. One access in many is measured.

An operator that is not measured has none of this: its accessors are bound as they are. If it is measured, functions get a
`MeasuredAccessor` in place of each accessor, whose methods count down to the next access to measure. Per-record code: the
counter is a variable of a closure.

Flink's names of accesses. A scan of a map is measured as a whole: the time to its first entry is that of the access
(`mapStateEntriesInit`), the time to each further one is `mapStateIteratorNext`. `listStateGet` is the time to read the elements,
without the time that the function takes between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Any

from tidegate.core.errors import StateError
from tidegate.core.measuring import Measuring
from tidegate.graph.states import StateKind, StateSpec

Record = Callable[[int], None]

# A kind without an entry here works, and is not measured.
_CALLS: dict[StateKind, dict[str, str]] = {
    StateKind.VALUE: {"value": "valueStateGet", "update": "valueStateUpdate", "clear": "stateClear"},
    StateKind.LIST: {
        "add": "listStateAdd",
        "add_all": "listStateAddAll",
        "update": "listStateUpdate",
        "clear": "stateClear",
    },
    StateKind.MAP: {
        "get": "mapStateGet",
        "__getitem__": "mapStateGet",
        "put": "mapStatePut",
        "put_all": "mapStatePutAll",
        "remove": "mapStateRemove",
        "contains": "mapStateContains",
        "is_empty": "mapStateIsEmpty",
        "clear": "stateClear",
    },
    StateKind.REDUCING: {"get": "reducingStateGet", "add": "reducingStateAdd", "clear": "stateClear"},
    StateKind.AGGREGATING: {"get": "aggregatingStateGet", "add": "aggregatingStateAdd", "clear": "stateClear"},
}
_SCANS: dict[StateKind, dict[str, str]] = {
    StateKind.MAP: {
        "items": "mapStateEntriesInit",
        "keys": "mapStateKeysInit",
        "values": "mapStateValuesInit",
        "__iter__": "mapStateIteratorInit",
    },
}
# Flink has no sorted map; to its users it is one.
_CALLS[StateKind.SORTED_MAP] = _CALLS[StateKind.MAP]
_SCANS[StateKind.SORTED_MAP] = _SCANS[StateKind.MAP]
NEXT = "mapStateIteratorNext"
LIST_GET = "listStateGet"
ACCESSES = tuple(
    dict.fromkeys(name for calls in (*_CALLS.values(), *_SCANS.values()) for name in calls.values())
    | {NEXT: None, LIST_GET: None}
)
"""Every kind of access whose time is measured."""
_SIZED: dict[StateKind, tuple[str, ...]] = {
    StateKind.VALUE: ("value", "update"),
    StateKind.LIST: ("add",),
    StateKind.MAP: ("get", "put"),
    StateKind.SORTED_MAP: ("get", "put"),
    StateKind.REDUCING: ("get", "add"),
    StateKind.AGGREGATING: ("get", "add"),
}
_READS = ("value", "get")
SIZED = tuple(dict.fromkeys(_CALLS[kind][call] for kind, calls in _SIZED.items() for call in calls))
"""Every kind of access whose key and value are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessReading:
    """What was measured of one kind of access to one state in one attempt: nanoseconds or bytes."""

    state: str
    """Empty if states are not distinguished."""
    name: str
    """Such as `valueStateGetLatency`."""
    count: int
    total: int
    median: int
    p99: int
    most: int


class _Measurements:
    """Measurements of one kind of access to one state."""

    __slots__ = ("_last", "add", "count", "total")

    def __init__(self, history_size: int) -> None:
        self.count = self.total = 0
        # Median and percentile are those of the last measurements, as in Flink's histograms with a window.
        self._last: deque[int] = deque(maxlen=history_size)
        last = self._last.append

        def add(value: int) -> None:
            self.count += 1
            self.total += value
            last(value)

        self.add: Record = add

    def reading(self, state: str, name: str) -> AccessReading:
        ordered = sorted(self._last)
        return AccessReading(
            state=state,
            name=name,
            count=self.count,
            total=self.total,
            # The lower one of two in the middle: a value that was measured.
            median=ordered[(len(ordered) - 1) // 2],
            p99=ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
            most=ordered[-1],
        )


class MeasuredAccessor:
    """An accessor with some of its methods measured. Everything else is the accessor's own."""

    def __init__(self, accessor: Any) -> None:
        self._accessor = accessor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accessor, name)


class _MeasuredList(MeasuredAccessor):
    def __init__(self, accessor: Any) -> None:
        super().__init__(accessor)
        self.get: Callable[[], Iterator[Any]] = accessor.get

    def __iter__(self) -> Iterator[Any]:
        return self.get()


class _MeasuredMap(MeasuredAccessor):
    contains: Callable[[Any], bool]
    put: Callable[[Any, Any], None]
    remove: Callable[[Any], None]

    def __init__(self, accessor: Any) -> None:
        super().__init__(accessor)
        self.get_item: Callable[[Any], Any] = accessor.__getitem__
        self.iterate: Callable[[], Iterator[Any]] = accessor.__iter__

    def __contains__(self, user_key: Any) -> bool:
        return self.contains(user_key)

    def __iter__(self) -> Iterator[Any]:
        return self.iterate()

    def __getitem__(self, user_key: Any) -> Any:
        return self.get_item(user_key)

    def __setitem__(self, user_key: Any, value: Any) -> None:
        self.put(user_key, value)

    def __delitem__(self, user_key: Any) -> None:
        self.remove(user_key)


_NAMES = {"__getitem__": "get_item", "__iter__": "iterate"}
"""Python looks up these methods in the class, which calls what is set under another name."""
_CLASSES: dict[StateKind, type[MeasuredAccessor]] = {
    StateKind.LIST: _MeasuredList,
    StateKind.MAP: _MeasuredMap,
    StateKind.SORTED_MAP: _MeasuredMap,
}


class AccessMeter:
    """Measures all keyed states of one operator in one attempt."""

    def __init__(self, measuring: Measuring) -> None:
        self._latencies = measuring.latencies
        self._sizes = measuring.sizes
        self._found: dict[tuple[str, str], _Measurements] = {}

    @classmethod
    def wanted(cls, measuring: Measuring) -> AccessMeter | None:
        """Return a meter, or None if nothing is to be measured."""
        if measuring.latencies is None and measuring.sizes is None:
            return None
        return cls(measuring)

    def around(self, accessor: Any, spec: StateSpec) -> Any:
        """Return what functions use in place of the accessor."""
        made = _CLASSES.get(spec.kind, MeasuredAccessor)(accessor)
        if self._latencies is not None:
            self._time(made, accessor, spec)
        if self._sizes is not None:
            interval = self._sizes.sample_interval
            for name in _SIZED.get(spec.kind, ()):
                call, records = getattr(made, name), self._size_records(spec, _CALLS[spec.kind][name])
                sized = _sized(call, accessor, records, name in _READS)
                setattr(made, name, _sampler(spec.kind, name)(interval, call, sized))
        return made

    def readings(self) -> list[AccessReading]:
        """What was measured, the kinds of access that took longest first."""
        found = [each.reading(*name) for name, each in self._found.items() if each.count]
        return sorted(found, key=lambda reading: -reading.total)

    def _time(self, made: MeasuredAccessor, accessor: Any, spec: StateSpec) -> None:
        assert self._latencies is not None
        interval = self._latencies.sample_interval
        # Value states are read most, so they count within their own closures instead of in a wrapper.
        if spec.kind is StateKind.VALUE:
            value = _timed(accessor.value, self._latency(spec, "valueStateGet"))
            update = _timed(accessor.update, self._latency(spec, "valueStateUpdate"))
            quick = accessor.sampled(interval, value, update)
            if quick is not None:
                made.value, made.update = quick  # type: ignore[attr-defined]
        for name, access in _CALLS.get(spec.kind, {}).items():
            # Set above.
            if name in vars(made):
                continue
            call = getattr(accessor, name)
            sampled = _sampler(spec.kind, name)(interval, call, _timed(call, self._latency(spec, access)))
            setattr(made, _NAMES.get(name, name), sampled)
        for name, access in _SCANS.get(spec.kind, {}).items():
            call = getattr(accessor, name)
            steps = partial(_timed_steps, call, self._latency(spec, access), self._latency(spec, NEXT))
            setattr(made, _NAMES.get(name, name), _every(interval, call, steps))
        if isinstance(made, _MeasuredList):
            made.get = _every(
                interval, accessor.get, partial(_timed_reading, accessor.get, self._latency(spec, LIST_GET))
            )

    def _latency(self, spec: StateSpec, access: str) -> Record:
        assert self._latencies is not None
        name = spec.name if self._latencies.by_state else ""
        return self._measurements(name, f"{access}Latency", self._latencies.history_size)

    def _size_records(self, spec: StateSpec, access: str) -> tuple[Record, Record]:
        assert self._sizes is not None
        name, history = spec.name if self._sizes.by_state else "", self._sizes.history_size
        return self._measurements(name, f"{access}KeySize", history), self._measurements(
            name, f"{access}ValueSize", history
        )

    def _measurements(self, state: str, name: str, history_size: int) -> Record:
        return self._found.setdefault((state, name), _Measurements(history_size)).add


def _every(interval: int, call: Callable[..., Any], measured: Callable[..., Any]) -> Callable[..., Any]:
    """Return `call`, with `measured` in its place once in `interval` times."""
    left = interval

    def sampled(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left:
            return call(*args, **kwargs)
        left = interval
        return measured(*args, **kwargs)

    return sampled


def _every_value(interval: int, call: Callable[[], Any], measured: Callable[[], Any]) -> Callable[[], Any]:
    """The same for the reads of a value state: packing no arguments halves the cost of a call that is not measured."""
    left = interval

    def value() -> Any:
        nonlocal left
        left -= 1
        if left:
            return call()
        left = interval
        return measured()

    return value


def _every_update(interval: int, call: Callable[[Any], None], measured: Callable[[Any], None]) -> Callable[[Any], None]:
    left = interval

    def update(value: Any) -> None:
        nonlocal left
        left -= 1
        if left:
            call(value)
            return
        left = interval
        measured(value)

    return update


_QUICK: dict[tuple[StateKind, str], Callable[..., Callable[..., Any]]] = {
    (StateKind.VALUE, "value"): _every_value,
    (StateKind.VALUE, "update"): _every_update,
}


def _sampler(kind: StateKind, name: str) -> Callable[..., Callable[..., Any]]:
    return _QUICK.get((kind, name), _every)


def _timed(call: Callable[..., Any], record: Record) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        before = perf_counter_ns()
        found = call(*args, **kwargs)
        record(perf_counter_ns() - before)
        return found

    return timed


def _timed_steps(
    call: Callable[..., Iterator[Any]], first: Record, further: Record, *args: Any, **kwargs: Any
) -> Iterator[Any]:
    return _stepped(call(*args, **kwargs), first, further)


def _stepped(found: Iterator[Any], record: Record, further: Record) -> Iterator[Any]:
    while True:
        before = perf_counter_ns()
        try:
            item = next(found)
        except StopIteration:
            record(perf_counter_ns() - before)
            return
        record(perf_counter_ns() - before)
        record = further
        yield item


def _timed_reading(call: Callable[[], Iterator[Any]], record: Record) -> Iterator[Any]:
    return _read_whole(call(), record)


def _read_whole(found: Iterator[Any], record: Record) -> Iterator[Any]:
    # One access of a list is all of its steps. The time that the function takes between two steps is not part of it.
    spent: list[int] = []
    try:
        yield from _stepped(found, spent.append, spent.append)
    finally:
        record(sum(spent))


def _sized(call: Callable[..., Any], accessor: Any, records: tuple[Record, Record], reads: bool) -> Callable[..., Any]:
    of_key, of_value = records

    def sized(*args: Any, **kwargs: Any) -> Any:
        found = call(*args, **kwargs)
        # With keyword arguments, it is not known which argument is the value.
        if not kwargs:
            with suppress(StateError):  # A value of the wrong type is reported when it is written, measured or not.
                of_key(accessor.key_bytes(*(args if reads else args[:-1])))
                value_bytes = accessor.value_bytes(found if reads else args[-1])
                if value_bytes is not None:
                    of_value(value_bytes)
        return found

    return sized
