"""Rows that Spark SQL has combined, added to sessions many at a time: for sessions that fire once, at their end, and hold one
value.

The rows of a key arrive in several batches of an epoch. They are kept until all have arrived, or until there are many, so
that the sessions of a key are read, merged and written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate.core.times import TimeDomain
from tidegate.operators.folds import Fold
from tidegate.operators.port import CombinedRows, Taken
from tidegate.operators.sessions import Entry
from tidegate.state.keys.entry_keys import TimeWindow

if TYPE_CHECKING:
    from tidegate.state.accessors.timers import TimerState
    from tidegate.state.accessors.value_accessor import ValueAccessor

EVENT = TimeDomain.EVENT_TIME


class _GrownSession(NamedTuple):
    """A session of a key after rows were added to it, or not."""

    key: Any
    group: int
    window: TimeWindow
    before: list[Entry]
    """The sessions that became part of it."""
    added: Any
    """The value of the rows added, or None."""

    @property
    def stored(self) -> TimeWindow:
        """The window that its contents are stored under."""
        return TimeWindow(*self.before[0][2:]) if self.before else self.window

    @property
    def is_new(self) -> bool:
        """Whether no session had this window before."""
        return not self.before or self.before[0][:2] != self.window


class SessionColumns:
    """Adds combined rows to sessions. `take` is that of the port; what it took is in the state
    after `finish`."""

    KEPT = 200_000
    """Combined rows that are kept at most."""

    def __init__(
        self,
        gap_ms: int,
        sessions: ValueAccessor,
        contents: ValueAccessor,
        fold: Fold,
        timers: TimerState,
        armed: set[Any],
    ) -> None:
        self._gap = gap_ms
        self._sessions = sessions
        self._contents = contents
        self._fold = fold
        self._timers = timers
        self._armed = armed
        self._kept: dict[Any, list[Any]] = {}
        self._groups: dict[Any, int] = {}
        self._count = 0

    def take(self, combined: CombinedRows) -> Taken:
        keys, groups, starts, rows, watermark_ms = combined
        kept, of_keys = self._kept, self._groups
        left: list[int] = []
        gap, of_parts = self._gap, self._fold.of_parts
        for place, (key, group, start, row) in enumerate(zip(keys, groups, starts, rows)):
            if start is None or start + gap - 1 <= watermark_ms:
                left.append(place)
                continue
            part = (start, start + row[3] + gap, None, of_parts(row[2]))
            if key in kept:
                kept[key].append(part)
            else:
                kept[key], of_keys[key] = [part], group
        self._count += len(keys) - len(left)
        if left or self._count > self.KEPT:
            # A late row may belong to a session of this epoch.
            self.finish()
        return [], left

    def finish(self) -> list[Any]:
        """Add all that was taken to the state. Emits nothing: sessions do when they end."""
        parts, keys, groups = self._kept, list(self._groups), list(self._groups.values())
        grown: list[_GrownSession] = []
        lists: list[list[Entry]] = []
        merge = self._fold.merge
        for key, group, known in zip(keys, groups, self._sessions.read_many(keys, groups)):
            found = list(_merged(key, group, known or (), parts[key], merge))
            grown += [each for each in found if each.added is not None]
            lists.append([(*each.window, *each.stored) for each in found])
        self._sessions.write_many(keys, groups, lists)
        self._store(grown)
        self._set_timers(grown)
        self._kept.clear()
        self._groups.clear()
        self._count = 0
        return []

    def _store(self, grown: Sequence[_GrownSession]) -> None:
        """Add the new values to the contents, and move those of sessions that became part of another."""
        merge, contents = self._fold.merge, self._contents
        # A session keeps the place of the first that became part of it (`_GrownSession.stored`), so only the others move.
        gone = [(each, TimeWindow(*entry[2:])) for each in grown for entry in each.before[1:]]
        moved = contents.take_many([(each.key, window) for each, window in gone], [each.group for each, _ in gone])
        names, groups = [(each.key, each.stored) for each in grown], [each.group for each in grown]
        values = {name: each.added for name, each in zip(names, grown)}
        for (each, _), value in zip(gone, moved):
            if value is not None:
                name = (each.key, each.stored)
                values[name] = merge(values[name], value)
        for name, old in zip(names, contents.read_many(names, groups)):
            if old is not None:
                values[name] = merge(old, values[name])
        contents.write_many(names, groups, list(values.values()))

    def _set_timers(self, grown: Sequence[_GrownSession]) -> None:
        for each in grown:
            for start, end, *_ in each.before:
                window = TimeWindow(start, end)
                if window != each.window:
                    self._timers.delete(EVENT, end - 1, each.key, each.group, window)
                    self._armed.discard((each.key, window))
        new = [each for each in grown if each.is_new]
        names = [(each.window.end_ms - 1, each.key, each.window) for each in new]
        self._timers.register_many(EVENT, names, [each.group for each in new])


def _merged(key: Any, group: int, known: Sequence[Entry], parts: list[Any], merge: Any) -> Iterator[_GrownSession]:
    """Yield the sessions that those known and new parts make together, in the order of time. A part is (start, end, None,
    value)."""
    if known:
        parts = [*parts, *((entry[0], entry[1], entry, None) for entry in known)]
    if len(parts) > 1:
        parts.sort(key=_start)
    begin, until = parts[0][:2]
    before: list[Entry] = []
    added: Any = None
    for start, end, entry, value in parts:
        # Windows that only touch are one session, too, as for Flink's `TimeWindow.intersects`.
        if start > until:
            yield _GrownSession(key, group, TimeWindow(begin, until), before=before, added=added)
            begin, until, before, added = start, end, [], None
        if end > until:
            until = end
        if entry is not None:
            before.append(entry)
        else:
            added = value if added is None else merge(added, value)
    yield _GrownSession(key, group, TimeWindow(begin, until), before=before, added=added)


def _start(part: Any) -> int:
    start: int = part[0]
    return start
