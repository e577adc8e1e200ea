"""Which sessions each key has. Sessions that touch are merged.

For each key, one value lists start and end of every session, and start and end of the window its contents are stored under: a
session that grows does not move its contents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.graph.states import StateKind, StateSpec
from tidegate.operators.window import Window
from tidegate.state.keys.entry_keys import TimeWindow

if TYPE_CHECKING:
    from tidegate.state.accessors.value_accessor import ValueAccessor

SESSIONS = StateSpec(name="window.sessions", kind=StateKind.VALUE, value=list[tuple[int, int, int, int]])
Entry = tuple[int, int, int, int]
Merge = Callable[[TimeWindow, TimeWindow, Sequence[Entry]], None]
"""Called with the merged window, the one its contents are stored under, and the sessions that became part of it."""


class Sessions:
    """The sessions of the current key that may still merge."""

    def __init__(self, state: ValueAccessor) -> None:
        self.state = state

    def stored_under(self, window: Window) -> TimeWindow | None:
        for start, end, stored_start, stored_end in self.state.value() or ():
            if (start, end) == window:
                return TimeWindow(stored_start, stored_end)
        return None

    def retire(self, window: Window) -> None:
        left = [entry for entry in self.state.value() or () if (entry[0], entry[1]) != window]
        if left:
            self.state.update(left)
        else:
            self.state.clear()

    def add(self, window: Window, merge: Merge) -> tuple[TimeWindow, TimeWindow]:
        """Return the window that a new one has become part of, and the one its contents are stored under."""
        assert isinstance(window, TimeWindow)
        new = window
        known = self.state.value() or []
        # Windows that only touch are one session, too, as in Flink.
        touching = [entry for entry in known if entry[0] <= new.end_ms and new.start_ms <= entry[1]]
        if not touching:
            self.state.update([*known, (*new, *new)])
            return new, new
        merged = TimeWindow(
            min(new.start_ms, *(entry[0] for entry in touching)), max(new.end_ms, *(entry[1] for entry in touching))
        )
        stored = TimeWindow(*touching[0][2:])
        if len(touching) == 1 and TimeWindow(*touching[0][:2]) == merged:
            return merged, stored  # Most rows fall into a session without making it longer: nothing to write.
        rest = [entry for entry in known if entry not in touching]
        self.state.update([*rest, (*merged, *stored)])
        merge(merged, stored, touching)
        return merged, stored

    def retire_many(self, timers: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Retire the sessions of many timers. Return the timers whose session still exists, and for each (key, window its
        contents are stored under)."""
        # Several sessions of one key may end together, and its list is written once. So each is taken out of what was read.
        groups = {key: group for _, key, group, _ in timers}
        known = dict(zip(groups, self.state.read_many(list(groups), list(groups.values()))))
        ended: list[Any] = []
        names: list[Any] = []
        for timer in timers:
            for entry in known[timer.key] or ():
                if entry[:2] == timer.namespace:
                    ended.append(timer)
                    names.append((timer.key, TimeWindow(*entry[2:])))
                    known[timer.key] = [other for other in known[timer.key] if other is not entry] or None
                    break
        self.state.write_many(list(groups), list(groups.values()), list(known.values()))
        return ended, names
