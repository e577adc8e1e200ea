"""Rows that were combined before the shuffle, added to the state of their keys and windows many at a time.

Each function returned here takes a batch of combined rows. It returns the rows to emit, and the positions of the combined rows
that have to be processed one at a time: those that may be late and, for running aggregates, all if a key occurs twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.core.times import TimeDomain
from tidegate.operators.column_aggregates import ColumnAggregates
from tidegate.operators.folds import Fold
from tidegate.operators.port import CombinedRows, Taken

if TYPE_CHECKING:
    from tidegate.state.accessors.keyed_states import KeyedStates
    from tidegate.state.accessors.value_accessor import ValueAccessor

TakeCombined = Callable[[CombinedRows], Taken]
EVENT = TimeDomain.EVENT_TIME


def adding_to_windows(
    assign: Callable[[Any, int], Sequence[Any]], state: ValueAccessor, fold: Fold, register_many: Callable[..., None]
) -> TakeCombined:
    """For windows of fixed size that fire once, at their end, and hold one value."""

    def take(combined: CombinedRows) -> Taken:
        keys, groups, panes, rows, watermark_ms = combined
        # An epoch has few panes and many keys. No window boundary divides a pane, so its start stands for all of its rows.
        windows: dict[int | None, Sequence[Any]] = {None: ()}
        for pane in set(panes) - {None}:
            assert pane is not None
            found = assign(None, pane)
            # A pane that is late for one of its windows goes back to the task, which takes its rows one at a time.
            windows[pane] = () if any(end - 1 <= watermark_ms for _, end in found) else found
        values: dict[Any, Any] = {}
        of_names: dict[Any, int] = {}
        left: list[int] = []
        merge, of_parts = fold.merge, fold.of_parts
        for place, (key, group, pane) in enumerate(zip(keys, groups, panes)):
            found = windows[pane]
            if not found:
                left.append(place)
                continue
            value = of_parts(rows[place][2])
            for window in found:
                name = (key, window)
                before = values.get(name)
                values[name] = value if before is None else merge(before, value)
                of_names[name] = group

        # One sorted read, one merging pass and one write, in place of three calls for each key and window.
        names, of_all = list(values), list(of_names.values())
        stored = state.read_many(names, of_all)
        state.write_many(
            names, of_all, [new if old is None else merge(old, new) for old, new in zip(stored, values.values())]
        )
        register_many(EVENT, [(window[1] - 1, key, window) for key, window in names], of_all)
        return [], left

    return take


def adding_to_keys(state: ValueAccessor, aggregates: ColumnAggregates) -> TakeCombined:
    """For running aggregates whose rows Spark SQL has combined: every key occurs once in an epoch, and emits its new result."""

    def take(combined: CombinedRows) -> Taken:
        keys, groups = combined.keys, combined.groups
        # Only with a key once can its result be emitted now: a second row of the key would change it.
        if len(set(keys)) < len(keys):
            return [], range(len(keys))
        stored = state.read_many(keys, groups)
        merge, of_parts = aggregates.merge, aggregates.of_parts
        news = [of_parts(row[2]) for row in combined.rows]
        values = [new if old is None else merge(old, new) for old, new in zip(stored, news)]
        state.write_many(keys, groups, values)
        return _results(keys, values, aggregates), ()

    return take


class KeyColumns:
    """For running aggregates whose rows the sending tasks have combined: a key may occur several times in an epoch, and emits
    its new result once, at the end. `take` is that of the port."""

    KEPT = 200_000
    """Keys that are kept at most. Where there are more, they are added to the state, and timers remember them."""

    def __init__(self, states: KeyedStates, state: ValueAccessor, aggregates: ColumnAggregates) -> None:
        """`states` are those of the operator; `state` is the accessor of the totals."""
        self._clock = states.clock
        self._timers = states.required_timers()
        self._state = state
        self._aggregates = aggregates
        self._kept: dict[Any, Any] = {}
        self._groups: dict[Any, int] = {}
        self._timed = False

    def take(self, combined: CombinedRows) -> Taken:
        kept, of_keys = self._kept, self._groups
        merge, of_parts = self._aggregates.merge, self._aggregates.of_parts
        for key, group, row in zip(combined.keys, combined.groups, combined.rows):
            value = of_parts(row[2])
            if key in kept:
                kept[key] = merge(kept[key], value)
            else:
                kept[key], of_keys[key] = value, group
        if len(kept) > self.KEPT:
            self._add_later()
        return [], ()

    def finish(self) -> list[Any]:
        """Add all that was taken to the state. Return the rows to emit."""
        if self._timed:
            # Timers of this very moment exist for some keys and fire next. A key that was also emitted here would come twice.
            self._add_later()
            return []
        keys = list(self._kept)
        return _results(keys, self._add(), self._aggregates)

    def _add_later(self) -> None:
        """Add to the state, and let the timers of this very moment, one for each key, emit the results."""
        self._timed = True
        names = [(self._clock.now_ms, key, None) for key in self._kept]
        self._timers.register_many(TimeDomain.PROCESSING_TIME, names, list(self._groups.values()))
        self._add()

    def _add(self) -> list[Any]:
        keys, groups, merge = list(self._kept), list(self._groups.values()), self._aggregates.merge
        stored = self._state.read_many(keys, groups)
        values = [new if old is None else merge(old, new) for old, new in zip(stored, self._kept.values())]
        self._state.write_many(keys, groups, values)
        self._kept.clear()
        self._groups.clear()
        return values


def _results(keys: Sequence[Any], values: Sequence[Any], aggregates: ColumnAggregates) -> list[Any]:
    get_result = aggregates.get_result
    if keys and isinstance(keys[0], tuple):
        return [(*key, *get_result(value)) for key, value in zip(keys, values)]
    return [(key, *get_result(value)) for key, value in zip(keys, values)]
