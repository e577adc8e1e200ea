"""What a function sees before its first row."""

from __future__ import annotations

from tidegate.core.ids import EpochId
from tidegate.runtime.task.operators.spans import SpanTimes


class FunctionContext:
    """The context of a function in `open`."""

    def __init__(
        self, name: str, subtask: int, parallelism: int, epoch: EpochId | None = None, spans: SpanTimes | None = None
    ) -> None:
        self.epoch = epoch
        self.spans = SpanTimes() if spans is None else spans
        self.span = self.spans.span
        """Measures the time of a block: `with ctx.span("parse"):`."""
        self._name = name
        self._subtask = subtask
        self._parallelism = parallelism

    def get_task_name(self) -> str:
        return self._name

    def get_index_of_this_subtask(self) -> int:
        return self._subtask

    def get_number_of_parallel_subtasks(self) -> int:
        return self._parallelism
