"""A fast path for the common case: fixed event-time windows that fire at their end, and rows that are not late.

Per-record code. The regular path calls the trigger and maintains a context for it, 5 to 6 µs for each row; this one skips
everything already known: it adds the row, and a window that is new to the attempt gets its timers. Rows that are late for
any of their windows take the regular path.

If windows also end when they fire, and hold one value each, thousands that are due fire together: their values are read at
once, 45 µs for each window before and 20 µs now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.core.times import TimeDomain, moment
from tidegate.operators.port import RowCall
from tidegate.operators.sessions import Sessions
from tidegate.operators.window_contents import FoldedContents

if TYPE_CHECKING:
    from tidegate.state.keys.key_scope import KeyScope

EVENT = TimeDomain.EVENT_TIME


def quick_path(  # noqa: PLR0913 per batch: locals instead of attributes
    own_way: RowCall,
    *,
    assign: Callable[[Any, int], Any],
    add: Callable[[Any, int, int], None],
    scope: KeyScope,
    window_scope: KeyScope,
    register: Callable[..., None],
    armed: set[Any],
    side: int,
    lateness_ms: int,
) -> RowCall:
    """Return the function called with each row, in place of `own_way`."""

    def process(row: Any, ctx: Any) -> Iterable[Any] | None:
        timestamp = ctx.row_time
        if timestamp is None:
            return own_way(row, ctx)
        watermark = ctx.timer_service().watermark_ms
        windows = assign(row, timestamp)
        # Late for one window is enough: the regular path decides for each window whether its lateness allows the row.
        for _, end in windows:
            if end - 1 <= watermark:
                return own_way(row, ctx)
        key = scope.key
        window_scope.key_group = scope.key_group
        for window in windows:
            window_scope.key = name = (key, window)
            add(row, timestamp, side)
            # Registering a timer again changes nothing but costs time, so each window of the attempt does it once.
            if name not in armed:
                armed.add(name)
                last = window[1] - 1
                register(EVENT, last, key, scope.key_group, window)
                if lateness_ms:
                    register(EVENT, last + lateness_ms, key, scope.key_group, window)
        return None

    return process


def fire_many(
    contents: FoldedContents, sessions: Sessions | None, armed: set[Any], columns: bool
) -> Callable[[Sequence[Any]], list[Any]]:
    """Return the function called with timers that are due, in place of `on_timer` for each. `columns`:
    rows also have key and window.
    """

    def fire(timers: Sequence[Any]) -> list[Any]:
        names = stored = [(key, window) for _, key, _, window in timers]
        armed.difference_update(names)
        if sessions is not None:
            timers, stored = sessions.retire_many(timers)
            names = [(key, window) for _, key, _, window in timers]
        # Taken and not only read: these windows end as they fire, so nobody needs their contents any more.
        results = contents.take_results(stored, [group for _, _, group, _ in timers])
        if not columns:
            return [result for result in results if result is not None]
        # Many keys share few windows, so their bounds are converted once.
        bounds = {window: (moment(window[0]), moment(window[1])) for window in {window for _, window in names}}
        if names and isinstance(names[0][0], tuple):
            return [
                (*key, *bounds[window], *values) for (key, window), values in zip(names, results) if values is not None
            ]
        return [(key, *bounds[window], *values) for (key, window), values in zip(names, results) if values is not None]

    return fire
