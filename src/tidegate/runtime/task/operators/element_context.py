"""What a keyed function sees with each row and timer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.core.errors import GraphError
from tidegate.core.times import TimeDomain
from tidegate.runtime.task.operators.spans import Span
from tidegate.runtime.task.operators.timer_service import KeyTimerService
from tidegate.state.keys.entry_keys import Namespace
from tidegate.state.keys.key_scope import KeyScope


class KeyedElementContext:
    """The context of a keyed function while it processes a row or a timer."""

    __slots__ = ("_scope", "_service", "_sides", "domain", "namespace", "row_time", "span")

    def __init__(
        self, scope: KeyScope, sides: dict[str, list[Any]], service: KeyTimerService, span: Callable[[str], Span]
    ) -> None:
        self._scope = scope
        self.span = span
        """Measures the time of a block: `with ctx.span("parse"):`."""
        self._sides = sides
        self._service = service
        self.row_time: int | None = None
        self.domain = TimeDomain.EVENT_TIME
        self.namespace: Namespace = None
        """The namespace of the timer that fires."""

    def timestamp(self) -> int | None:
        """Event time of the row, or the time of the timer, in milliseconds."""
        return self.row_time

    def timer_service(self) -> KeyTimerService:
        return self._service

    def time_domain(self) -> TimeDomain:
        return self.domain

    def get_current_key(self) -> Any:
        return self._scope.key

    def output(self, tag: str, row: Any) -> None:
        """Send a row to a side output."""
        try:
            self._sides[tag].append(row)
        except KeyError:
            declared = ", ".join(sorted(self._sides)) or "none"
            raise GraphError(
                f"There is no side output {tag!r}; declared are: {declared}. "
                f"Declare it: process(…, side_outputs={{{tag!r}: 'column type, …'}})."
            ) from None
