"""The window operator: one for all kinds, as in Flink, written as a keyed function over windowed state and timers.

A window's contents, its trigger's state and its timers are stored under (key, window); the contents of a session under the
window it began with (see `sessions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from tidegate.api.aggregates import AggregateFold, ColumnAggregates
from tidegate.api.combined_columns import adding_to_windows
from tidegate.api.session_columns import SessionColumns
from tidegate.api.sessions import SESSIONS, Entry, Sessions
from tidegate.api.states import declared_states
from tidegate.api.triggers import EventTimeTrigger, Trigger, TriggerResult
from tidegate.api.window import GLOBAL, Window
from tidegate.api.window_contents import FoldedContents, WindowContents
from tidegate.api.window_function import Emitter, WindowFunction, emit_columns
from tidegate.api.window_quick_path import fire_many, quick_path
from tidegate.api.windows import EventTimeSessionWindows, WindowAssigner
from tidegate.core.errors import WrongValue
from tidegate.core.times import MAX_WATERMARK, TimeDomain
from tidegate.graph.listening import pass_hooks_on
from tidegate.graph.states import TIMERS, StateSpec
from tidegate.state.keys import Namespace, TimeWindow

EVENT, PROCESSING = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME
CONTINUE = TriggerResult.CONTINUE


class WindowOperator:
    """Turns rows into windows and windows into rows. The runtime calls it like a user function."""

    def __init__(
        self, assigner: WindowAssigner, trigger: Trigger, contents: WindowContents, emit: Emitter,
        function: WindowFunction | None = None, lateness_ms: int = 0, late_tag: str | None = None,
    ) -> None:  # fmt: skip
        self._assigner, self._trigger, self._contents, self._emit = assigner, trigger, contents, emit
        self._function = function
        self._lateness, self._late_tag = lateness_ms, late_tag
        self.late_rows_dropped = 0
        self.__name__ = f"{assigner!r}, {trigger!r}"
        """Shown by `explain`, like the class name of a function."""
        pass_hooks_on(function, self)

    def states(self) -> tuple[StateSpec, ...]:
        trigger = [
            replace(spec, name=f"trigger.{spec.name}", windowed=True)
            for spec in declared_states(self._trigger.with_state())
        ]
        own = () if self._function is None else declared_states(self._function)
        sessions = (SESSIONS,) if self._assigner.is_merging else ()
        return (*own, *self._contents.specs, *trigger, *sessions, TIMERS)

    def aggregates(self) -> ColumnAggregates | None:
        """The built-in aggregates of fixed event-time windows that fire once, at their end. None for all other windows."""
        contents = self._contents
        once = type(self._trigger) is EventTimeTrigger and not self._lateness and self._assigner.is_event_time
        if not once or not self._assigner.has_fixed_windows or not isinstance(contents, FoldedContents):
            return None
        function = contents.fold.function if isinstance(contents.fold, AggregateFold) else None
        return function if isinstance(function, ColumnAggregates) else None

    def assigns(self, window: TimeWindow) -> bool:
        """Whether rows may be assigned to this window."""
        return window in self._assigner.assign_windows(None, window.start_ms)

    def attach_states(self, states: Any) -> None:
        """Called by the runtime with all states of the operator, before `open`."""
        accessors = states.accessors
        self._scope, self._window_scope, self._timers = states.scope, states.window_scope, states.timers
        self._contents.attach(accessors)
        trigger = self._trigger.with_state()
        for spec in declared_states(trigger):
            setattr(trigger, spec.name, accessors[f"trigger.{spec.name}"])
        own = () if self._function is None else declared_states(self._function)
        attach = getattr(self._function, "attach_states", None)
        self._states_of_function = {} if attach is not None else {spec.name: accessors[spec.name] for spec in own}
        if attach is not None:
            attach(states)
        self._of_windows = [accessors[spec.name] for spec in own if spec.windowed]
        self._sessions = Sessions(accessors[SESSIONS.name]) if self._assigner.is_merging else None
        self._context: _WindowContext | None = None
        self._armed: set[tuple[Any, Namespace]] = states.timers.armed
        """Windows whose timers were registered in this attempt."""
        if type(self._trigger) is EventTimeTrigger and self._assigner.is_event_time:
            self._shorten()

    def _shorten(self) -> None:
        """Process many rows and timers at once where the trigger has no say: windows fire when event time reaches their end."""
        assigner, contents = self._assigner, self._contents
        if assigner.has_fixed_windows:
            for name, side in (("process_element", 0), ("process_element1", 0), ("process_element2", 1)):
                setattr(self, name, self._quick(getattr(self, name), contents.add, side))
            self.process_combined = self._quick(self.process_combined, contents.add_combined, 0)  # type: ignore[method-assign]
        if self._lateness or self._function is not None or not isinstance(contents, FoldedContents):
            return
        if assigner.has_fixed_windows:
            self.take_combined = adding_to_windows(
                assigner.assign_windows, contents.state, contents.fold, self._timers.register_many
            )
        elif type(assigner) is EventTimeSessionWindows:
            assert self._sessions is not None
            columns = SessionColumns(
                assigner.intervals().gap_ms,
                sessions=self._sessions.state,
                contents=contents.state,
                fold=contents.fold,
                timers=self._timers,
                armed=self._armed,
            )
            self.take_combined, self.finish_combined = columns.take, columns.finish
        else:
            return
        self.on_timers = fire_many(contents, self._sessions, self._armed, self._emit is emit_columns)

    def _quick(self, own_way: Any, add: Any, side: int) -> Any:
        return quick_path(
            own_way, self._assigner.assign_windows, add, self._scope, self._window_scope, self._timers.register,
            self._armed, side, self._lateness,
        )  # fmt: skip

    def bind_function(self) -> None:
        """Called by the runtime after `open`, as soon as there may be a key."""
        for name, accessor in self._states_of_function.items():
            setattr(self._function, name, accessor)

    def open(self, ctx: Any) -> None:
        self._contents.open()
        if self._function is not None:
            self._function.open(ctx)

    def close(self) -> None:
        if self._function is not None:
            self._function.close()

    # -- rows --------------------------------------------------------------------------------------------------------

    def process_element(self, row: Any, ctx: Any) -> Iterable[Any] | None:
        return self._process(row, ctx, 0)

    process_element1 = process_element

    def process_element2(self, row: Any, ctx: Any) -> Iterable[Any] | None:
        return self._process(row, ctx, 1)

    def process_combined(self, combined: Any, ctx: Any) -> Iterable[Any] | None:
        """Process what Spark SQL computed from several rows, none of which is late for any
        window; or from one row that may be.
        """
        return self._process(combined[1], ctx, 0, combined, combined[0])

    def _process(self, row: Any, ctx: Any, side: int, combined: Any = None, rows: int = 1) -> Iterable[Any] | None:
        service = ctx.timer_service()
        event = self._assigner.is_event_time
        timestamp = ctx.row_time if event else service.clock_ms
        if timestamp is None:
            timestamp = self._no_time(row, service)
        watermark = service.watermark_ms
        scope, window_scope = self._scope, self._window_scope
        key = scope.key
        window_scope.key_group = scope.key_group
        context = self._context or self._begin(ctx)
        out: list[Any] | None = None
        skipped = True
        for assigned in self._assigner.assign_windows(row, timestamp):
            window = stored = assigned
            if self._sessions is not None:
                window, stored = self._sessions.add(_longer(assigned, combined), self._merge)
            if event and self._cleanup_time(window) <= watermark:
                if self._sessions is not None:
                    self._sessions.retire(window)
                continue
            skipped = False
            context.enter(window, stored)
            if combined is None:
                self._contents.add(row, timestamp, side)
            else:
                self._contents.add_combined(combined, timestamp, side)
            context.enter(window)
            result = self._trigger.on_element(row, timestamp, window, context)
            if result is not CONTINUE:
                out = [*(out or ()), *self._act(result, key, context, stored)]
            self._arm(key, window)
        if skipped and event and timestamp + self._lateness <= watermark:
            if self._late_tag is not None:
                ctx.output(self._late_tag, row)
            else:
                self.late_rows_dropped += rows
        return out

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any] | None:
        scope, window_scope = self._scope, self._window_scope
        window: Window = GLOBAL if ctx.namespace is None else ctx.namespace
        window_scope.key_group = scope.key_group
        stored: Window | None = window
        if self._sessions is not None:
            stored = self._sessions.stored_under(window)
            if stored is None:
                return None  # The window has become part of another one.
        assert stored is not None
        context = self._context or self._begin(ctx)
        context.enter(window)
        event = ctx.domain is EVENT
        on_time = self._trigger.on_event_time if event else self._trigger.on_processing_time
        result = on_time(timestamp, window, context)
        out = self._act(result, scope.key, context, stored) if result is not CONTINUE else None
        if event is self._assigner.is_event_time and timestamp == self._cleanup_time(window):
            self._forget(scope.key, context, window, stored)
        return out

    def on_timer_failed(self, timestamp: int, ctx: Any) -> None:
        """Called when the function raised while the window fired and everything was rolled back: the window ends nevertheless."""
        window: Window = GLOBAL if ctx.namespace is None else ctx.namespace
        self._window_scope.key_group = self._scope.key_group
        stored = window if self._sessions is None else self._sessions.stored_under(window)
        ends = (ctx.domain is EVENT) is self._assigner.is_event_time and timestamp == self._cleanup_time(window)
        if ends and stored is not None:
            context = self._context or self._begin(ctx)
            self._forget(self._scope.key, context, window, stored)

    def _begin(self, ctx: Any) -> _WindowContext:
        """Return the context for all rows and timers: the runtime also has one for all."""
        self._context = _WindowContext(self, ctx)
        return self._context

    def _act(self, result: TriggerResult, key: Any, context: _WindowContext, stored: Window) -> Sequence[Any]:
        """Fire, purge, or both."""
        out: Sequence[Any] = ()
        window = context.window()
        context.enter(window, stored)
        if result.is_fire:
            elements = self._contents.elements(window)
            if elements:
                made = self._emit(key, context, elements)
                out = list(made) if made is not None else ()
                context.enter(window, stored)
        if result.is_purge:
            self._contents.clear()
        context.enter(window)
        return out

    def _forget(self, key: Any, context: _WindowContext, window: Window, stored: Window) -> None:
        context.enter(window, stored)
        self._contents.clear()
        context.enter(window)
        self._trigger.clear(window, context)
        if self._function is not None:
            self._function.clear(context)
            context.enter(window)
            for state in self._of_windows:
                state.clear()
        if self._sessions is not None:
            self._sessions.retire(window)
        self._armed.discard((key, _namespace(window)))

    def _merge(self, merged: TimeWindow, stored: TimeWindow, touching: Sequence[Entry]) -> None:
        """Merge several windows into one: its trigger takes over, their triggers and clean-up end, contents are combined."""
        key, context = self._scope.key, self._context
        assert context is not None
        before = [TimeWindow(entry[0], entry[1]) for entry in touching]
        context.enter(merged)
        self._trigger.on_merge(merged, before, context)
        for window in before:
            if window != merged:
                context.enter(window)
                self._trigger.clear(window, context)
                self._disarm(key, window)
        for entry in touching[1:]:
            context.enter(merged, TimeWindow(*entry[2:]))
            taken = self._contents.take()
            context.enter(merged, stored)
            self._contents.put(taken)
        context.enter(merged)

    # -- clean-up ----------------------------------------------------------------------------------------------------

    def _cleanup_time(self, window: Window) -> int:
        """Return when a window is removed. Beyond all time if it never is."""
        end = window.max_timestamp()
        return end if not self._assigner.is_event_time else min(end + self._lateness, MAX_WATERMARK)

    def _arm(self, key: Any, window: Window) -> None:
        namespace = _namespace(window)
        name = (key, namespace)
        if name not in self._armed:
            self._armed.add(name)
            time = self._cleanup_time(window)
            if time != MAX_WATERMARK:
                domain = EVENT if self._assigner.is_event_time else PROCESSING
                self._timers.register(domain, time, key, self._scope.key_group, namespace)

    def _disarm(self, key: Any, window: Window) -> None:
        self._armed.discard((key, _namespace(window)))
        domain = EVENT if self._assigner.is_event_time else PROCESSING
        self._timers.delete(domain, self._cleanup_time(window), key, self._scope.key_group, _namespace(window))

    def _no_time(self, row: Any, service: Any) -> int:
        if isinstance(self._assigner.assign_windows(row, 0)[0], type(GLOBAL)):
            clock: int = service.clock_ms
            return clock
        which = "A row" if row is None else f"The row {row!r}"
        raise WrongValue(
            f"{which} has no event time, which a window needs. Name the column where the source is declared, "
            "job.source(…, event_time='ts'), or with stream.assign_timestamps('ts'), and leave out rows where it is null."
        )


class _WindowContext:
    """The context of triggers and window functions, for one key and window at a time."""

    __slots__ = ("_ctx", "_operator", "_window")

    def __init__(self, operator: WindowOperator, ctx: Any) -> None:
        self._operator, self._ctx = operator, ctx
        self._window: Window = GLOBAL

    def enter(self, window: Window, stored: Window | None = None) -> None:
        """Enter a window, with state under it or, for the contents of sessions, under another."""
        self._window = window
        operator = self._operator
        operator._window_scope.key = (operator._scope.key, _namespace(window if stored is None else stored))

    @contextmanager
    def in_window(self, window: Window) -> Iterator[None]:
        before = self._window
        self.enter(window)
        try:
            yield
        finally:
            self.enter(before)

    def window(self) -> Window:
        return self._window

    def output(self, tag: str, row: Any) -> None:
        self._ctx.output(tag, row)

    def span(self, name: str) -> AbstractContextManager[None]:
        measured: AbstractContextManager[None] = self._ctx.span(name)
        return measured

    def current_processing_time(self) -> int:
        time: int = self._ctx.timer_service().clock_ms
        return time

    def current_watermark(self) -> int:
        time: int = self._ctx.timer_service().watermark_ms
        return time

    get_current_processing_time = current_processing_time
    get_current_watermark = current_watermark

    def register_event_time_timer(self, time: int) -> None:
        scope = self._operator._scope
        self._operator._timers.register(EVENT, time, scope.key, scope.key_group, _namespace(self._window))

    def register_processing_time_timer(self, time: int) -> None:
        scope = self._operator._scope
        self._operator._timers.register(PROCESSING, time, scope.key, scope.key_group, _namespace(self._window))

    def delete_event_time_timer(self, time: int) -> None:
        scope = self._operator._scope
        self._operator._timers.delete(EVENT, time, scope.key, scope.key_group, _namespace(self._window))

    def delete_processing_time_timer(self, time: int) -> None:
        scope = self._operator._scope
        self._operator._timers.delete(PROCESSING, time, scope.key, scope.key_group, _namespace(self._window))


def _namespace(window: Window) -> Namespace:
    return window if isinstance(window, TimeWindow) else None


def _longer(window: Window, combined: Any) -> Window:
    """Return the session of combined rows, given that of the first."""
    if combined is None or not combined[3]:
        return window
    assert isinstance(window, TimeWindow)
    return TimeWindow(window.start_ms, window.end_ms + combined[3])
