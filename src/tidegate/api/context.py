"""What a function may ask while it runs, with PyFlink's names. Protocols: runtime and test harness fill them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol


class RuntimeContext(Protocol):
    """Given to `open`: where this copy of the function runs."""

    def get_task_name(self) -> str: ...
    def get_index_of_this_subtask(self) -> int: ...
    def get_number_of_parallel_subtasks(self) -> int: ...


class TimerService(Protocol):
    """Timers of the current key. A timer registered twice for one time fires once.

    Times are datetimes, or milliseconds since 1970-01-01 UTC; what is asked for comes back in milliseconds.
    """

    def current_processing_time(self) -> int: ...
    def current_watermark(self) -> int: ...
    def register_event_time_timer(self, timestamp: int | datetime) -> None: ...
    def register_processing_time_timer(self, timestamp: int | datetime) -> None: ...
    def delete_event_time_timer(self, timestamp: int | datetime) -> None: ...
    def delete_processing_time_timer(self, timestamp: int | datetime) -> None: ...


class ProcessContext(Protocol):
    """Given to `process_element` with each row."""

    def get_current_key(self) -> Any:
        """The key of the row: the value of the key column, or a tuple of them where there are several."""
        ...

    def timestamp(self) -> int | None:
        """Event time of the row in milliseconds, if its source declares one."""
        ...

    def timer_service(self) -> TimerService: ...

    def output(self, tag: str, row: Any) -> None:
        """Send a row to a side output that the operator declares."""
        ...


class OnTimerContext(ProcessContext, Protocol):
    """Given to `on_timer`; the current key is the one that registered the timer."""

    def time_domain(self) -> Any:
        """Whether event time or processing time reached the timer."""
        ...
