"""The window operator: one for all kinds, as in Flink, over windowed state and timers.

A window's contents, its trigger's state and its timers are stored under (key, window); the contents of a session under the
window it began with (see `sessions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import WrongValue
from tidegate.core.times import MAX_WATERMARK, TimeDomain
from tidegate.graph.listening import NotifiesFunction, notified_by
from tidegate.graph.states import TIMERS, StateSpec
from tidegate.operators.column_aggregates import ColumnAggregates
from tidegate.operators.combined_columns import TakeCombined, adding_to_windows
from tidegate.operators.folds import AggregateFold
from tidegate.operators.port import AttachedOperator, Capability, CombinedRows, RowCall, StatefulOperator, Taken
from tidegate.operators.session_columns import SessionColumns
from tidegate.operators.sessions import SESSIONS, Entry, Sessions
from tidegate.operators.trigger import Trigger, TriggerResult
from tidegate.operators.window import GLOBAL, Window
from tidegate.operators.window_assigner import WindowAssigner
from tidegate.operators.window_contents import ContentsKind, Folded, FoldedContents
from tidegate.operators.window_function import Emitter, TakesStates, WindowFunction, emit_columns
from tidegate.operators.window_quick_path import fire_many, quick_path
from tidegate.state.keys.entry_keys import Namespace, TimeWindow

if TYPE_CHECKING:
    from tidegate.state.accessors.keyed_states import KeyedStates
    from tidegate.state.accessors.timers import Timer

EVENT, PROCESSING = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME
CONTINUE = TriggerResult.CONTINUE


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOperator(StatefulOperator, NotifiesFunction):
    """Turns rows into windows and windows into rows. The runtime calls it like a user function."""

    assigner: WindowAssigner
    trigger: Trigger
    contents: ContentsKind
    emit: Emitter
    function: WindowFunction | None = None
    function_states: tuple[StateSpec, ...] = ()
    trigger_states: tuple[StateSpec, ...] = ()
    """As the trigger declares them."""
    lateness_ms: int = 0
    late_tag: str | None = None
    fires_at_end: bool = False
    """The trigger is exactly that of event time: it fires once event time has reached the end of the window, and then with every
    late row. Of a class derived from it nothing is known."""
    session_gap_ms: int | None = None
    """The gap, if the windows are exactly event-time sessions."""

    @property
    def __name__(self) -> str:
        """Shown by `explain`, like the class name of a function."""
        return f"{self.assigner!r}, {self.trigger!r}"

    @property
    def notified(self) -> object:
        return notified_by(self.function)

    @property
    def shows_only_its_end(self) -> bool:
        """Whether nothing happens in a window before event time has reached its end."""
        return self.fires_at_end and self.assigner.is_event_time

    def states(self) -> tuple[StateSpec, ...]:
        trigger = [replace(spec, name=f"trigger.{spec.name}", windowed=True) for spec in self.trigger_states]
        sessions = (SESSIONS,) if self.assigner.is_merging else ()
        return (*self.function_states, self.contents.spec(), *trigger, *sessions, TIMERS)

    def aggregates(self) -> ColumnAggregates | None:
        """The built-in aggregates of fixed event-time windows that fire once, at their end. None for all other windows."""
        once = self.shows_only_its_end and not self.lateness_ms
        if not once or not self.assigner.has_fixed_windows or not isinstance(self.contents, Folded):
            return None
        fold = self.contents.fold
        function = fold.function if isinstance(fold, AggregateFold) else None
        return function if isinstance(function, ColumnAggregates) else None

    def assigns(self, window: TimeWindow) -> bool:
        """Whether rows may be assigned to this window."""
        return window in self.assigner.assign_windows(None, window.start_ms)

    def attach(self, states: KeyedStates) -> AttachedWindows:
        return AttachedWindows(self, states)


class AttachedWindows(AttachedOperator):
    """The windows of a task."""

    def __init__(self, operator: WindowOperator, states: KeyedStates) -> None:
        self._operator = operator
        self._assigner = operator.assigner
        self._trigger = operator.trigger
        self._lateness = operator.lateness_ms
        self._scope = states.scope
        self._window_scope = states.window_scope
        self._timers = states.required_timers()
        self._armed: set[tuple[Any, Namespace]] = self._timers.armed
        """Windows whose timers were registered in this attempt."""
        self._contents = operator.contents.attach(states)
        self._sessions = Sessions(states.value_state(SESSIONS.name)) if operator.assigner.is_merging else None
        self._context = _WindowContext(self)
        """One for all rows and timers."""
        accessors = states.accessors
        with_state = operator.trigger.with_state()
        for spec in operator.trigger_states:
            setattr(with_state, spec.name, accessors[f"trigger.{spec.name}"])
        self._of_windows = [accessors[spec.name] for spec in operator.function_states if spec.windowed]
        self._to_bind: Mapping[str, object] = {}
        function: object = operator.function
        if isinstance(function, TakesStates):
            function.attach_states(states)
        else:
            # Not before `bind`: `open` has no key, and state that is still a declaration reports that.
            self._to_bind = {spec.name: accessors[spec.name] for spec in operator.function_states}

        # The port's own methods, which refuse: a task asks only for what `capabilities` has.
        self._take: TakeCombined = super().take_combined
        self._finish: Callable[[], list[Any]] = super().finish_combined
        self._fire: Callable[[Sequence[Timer]], list[Any]] = super().fire_together
        if operator.shows_only_its_end and not self._lateness and operator.function is None:
            self._work_in_bulk(self._contents)

    def _work_in_bulk(self, contents: object) -> None:
        """Process many combined rows and timers at once where neither the trigger nor a function has a say."""
        if not isinstance(contents, FoldedContents):
            return
        gap_ms = self._operator.session_gap_ms
        if self._assigner.has_fixed_windows:
            self.capabilities = Capability.TAKES_COMBINED | Capability.FIRES_TOGETHER
            self._take = adding_to_windows(
                self._assigner.assign_windows, contents.state, contents.fold, self._timers.register_many
            )
        elif gap_ms is not None and self._sessions is not None:
            self.capabilities = Capability.TAKES_COMBINED | Capability.HOLDS_COMBINED | Capability.FIRES_TOGETHER
            columns = SessionColumns(
                gap_ms,
                sessions=self._sessions.state,
                contents=contents.state,
                fold=contents.fold,
                timers=self._timers,
                armed=self._armed,
            )
            self._take = columns.take
            self._finish = columns.finish
        else:
            return
        self._fire = fire_many(contents, self._sessions, self._armed, self._operator.emit is emit_columns)

    def open(self, ctx: Any) -> None:
        if self._operator.function is not None:
            self._operator.function.open(ctx)

    def bind(self) -> None:
        for name, accessor in self._to_bind.items():
            setattr(self._operator.function, name, accessor)

    def close(self) -> None:
        if self._operator.function is not None:
            self._operator.function.close()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def row_calls(self, inputs: int) -> Sequence[RowCall]:
        calls = (self._process_first, self._process_second)
        return [self._quickly(call, self._contents.add, side) for side, call in enumerate(calls[:inputs])]

    def combined_call(self) -> RowCall:
        return self._quickly(self._process_combined, self._contents.add_combined, 0)

    def timer_call(self) -> RowCall:
        return self._on_timer

    def take_combined(self, combined: CombinedRows) -> Taken:
        return self._take(combined)

    def finish_combined(self) -> list[Any]:
        return self._finish()

    def fire_together(self, timers: Sequence[Timer]) -> list[Any]:
        return self._fire(timers)

    def _quickly(self, call: RowCall, add: Any, side: int) -> RowCall:
        """Return what is called in place of `call` where the trigger has no say before the end of a window."""
        if not self._operator.shows_only_its_end or not self._assigner.has_fixed_windows:
            return call
        return quick_path(
            call,
            assign=self._assigner.assign_windows,
            add=add,
            scope=self._scope,
            window_scope=self._window_scope,
            register=self._timers.register,
            armed=self._armed,
            side=side,
            lateness_ms=self._lateness,
        )

    # -- rows --------------------------------------------------------------------------------------------------------

    def _process_first(self, row: Any, ctx: Any) -> Iterable[Any] | None:
        return self._process(row, ctx, 0)

    def _process_second(self, row: Any, ctx: Any) -> Iterable[Any] | None:
        return self._process(row, ctx, 1)

    def _process_combined(self, combined: Any, ctx: Any) -> Iterable[Any] | None:
        """Process what Spark SQL computed from several rows, none of which is late for any
        window; or from one row that may be.
        """
        return self._process(combined[1], ctx, 0, combined, combined[0])

    def _process(self, row: Any, ctx: Any, side: int, combined: Any = None, rows: int = 1) -> Iterable[Any] | None:
        service = ctx.timer_service()
        event = self._assigner.is_event_time
        timestamp = ctx.row_time if event else service.clock_ms
        if timestamp is None:
            # A global window needs no event time. Any other reports the row.
            timestamp = self._no_time(row, service)
        watermark = service.watermark_ms
        scope, window_scope = self._scope, self._window_scope
        key = scope.key
        window_scope.key_group = scope.key_group
        context = self._context
        context.ctx = ctx
        out: list[Any] | None = None
        skipped = True
        for assigned in self._assigner.assign_windows(row, timestamp):
            # A session may have merged with others: its contents stay under the window that was stored first.
            window = stored = assigned
            if self._sessions is not None:
                window, stored = self._sessions.add(_longer(assigned, combined), self._merge)
            if event and self._cleanup_time(window) <= watermark:
                # Late for this window. `add` has just entered the session in the list, and no timer would take it out.
                if self._sessions is not None:
                    self._sessions.retire(window)
                continue
            skipped = False
            context.enter(window, stored)
            if combined is None:
                self._contents.add(row, timestamp, side)
            else:
                self._contents.add_combined(combined, timestamp, side)

            # The state and the timers of a trigger are those of the merged window, wherever its contents are stored.
            context.enter(window)
            result = self._trigger.on_element(row, timestamp, window, context)
            if result is not CONTINUE:
                out = [*(out or ()), *self._act(result, key, context, stored)]
            self._arm(key, window)
        # As in Flink, a row counts as late only if its own time is: an assigner may leave a row without any window.
        if skipped and event and timestamp + self._lateness <= watermark:
            if self._operator.late_tag is not None:
                ctx.output(self._operator.late_tag, row)
            else:
                self.late_rows_dropped += rows
        return out

    def _on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any] | None:
        scope, window_scope = self._scope, self._window_scope
        window: Window = GLOBAL if ctx.namespace is None else ctx.namespace
        window_scope.key_group = scope.key_group
        stored: Window = window
        if self._sessions is not None:
            kept_under = self._sessions.stored_under(window)
            if kept_under is None:
                return None  # The window has become part of another one.
            stored = kept_under
        context = self._context
        context.ctx = ctx
        context.enter(window)
        event = ctx.domain is EVENT
        on_time = self._trigger.on_event_time if event else self._trigger.on_processing_time
        result = on_time(timestamp, window, context)
        out = self._act(result, scope.key, context, stored) if result is not CONTINUE else None
        # As in Flink, the timer at the end of a window both fires and removes it, in this order: without lateness, a window is
        # removed at the moment in which it fires.
        if event is self._assigner.is_event_time and timestamp == self._cleanup_time(window):
            self._forget(scope.key, context, window, stored)
        return out

    def on_timer_failed(self, timestamp: int, ctx: Any) -> None:
        # The window ends nevertheless. Its only clean-up timer has fired, so its state would stay for good.
        window: Window = GLOBAL if ctx.namespace is None else ctx.namespace
        self._window_scope.key_group = self._scope.key_group
        stored = window if self._sessions is None else self._sessions.stored_under(window)
        ends = (ctx.domain is EVENT) is self._assigner.is_event_time and timestamp == self._cleanup_time(window)
        if ends and stored is not None:
            self._context.ctx = ctx
            self._forget(self._scope.key, self._context, window, stored)

    def _act(self, result: TriggerResult, key: Any, context: _WindowContext, stored: Window) -> Sequence[Any]:
        """Fire, purge, or both."""
        out: Sequence[Any] = ()
        window = context.window()
        context.enter(window, stored)
        if result.is_fire:
            elements = self._contents.elements(window)
            if elements:
                made = self._operator.emit(key, context, elements)
                # A generator runs here, while the scope still points to this window.
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
        if self._operator.function is not None:
            self._operator.function.clear(context)
            context.enter(window)
            for state in self._of_windows:
                state.clear()
        if self._sessions is not None:
            self._sessions.retire(window)
        self._armed.discard((key, _namespace(window)))

    def _merge(self, merged: TimeWindow, stored: TimeWindow, touching: Sequence[Entry]) -> None:
        """Merge several windows into one: its trigger takes over, their triggers and clean-up end, contents are combined."""
        key = self._scope.key
        context = self._context
        before = [TimeWindow(entry[0], entry[1]) for entry in touching]
        context.enter(merged)
        self._trigger.on_merge(merged, before, context)

        # Only now: `on_merge` reads the triggers' state of the windows that end here.
        for window in before:
            if window != merged:
                context.enter(window)
                self._trigger.clear(window, context)
                self._disarm(key, window)

        # The contents of the first session stay where they are. Those of the others move to them.
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
        if not self._assigner.is_event_time:
            return end
        # A global window ends with time itself, so lateness must not lead beyond it. Flink guards against the overflow here.
        return min(end + self._lateness, MAX_WATERMARK)

    def _arm(self, key: Any, window: Window) -> None:
        namespace = _namespace(window)
        name = (key, namespace)
        # Registering a timer again would change nothing: `armed` only saves the call, and may be lost with the attempt.
        if name not in self._armed:
            self._armed.add(name)
            time = self._cleanup_time(window)
            # A window that is never removed needs no timer, which would never fire.
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

    __slots__ = ("_operator", "_window", "ctx")

    def __init__(self, operator: AttachedWindows) -> None:
        self._operator = operator
        self._window: Window = GLOBAL
        self.ctx: Any = None
        """What the task calls the operator with."""

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
        self.ctx.output(tag, row)

    def span(self, name: str) -> AbstractContextManager[None]:
        measured: AbstractContextManager[None] = self.ctx.span(name)
        return measured

    def current_processing_time(self) -> int:
        time: int = self.ctx.timer_service().clock_ms
        return time

    def current_watermark(self) -> int:
        time: int = self.ctx.timer_service().watermark_ms
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
