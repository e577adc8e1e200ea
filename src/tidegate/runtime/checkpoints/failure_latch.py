"""Holds why a job cannot continue as it is, if there is a reason."""

from __future__ import annotations

import threading

from tidegate.core.errors import CheckpointError


class CheckpointsFailed(CheckpointError):
    """More checkpoints failed than are tolerated."""

    code = "CHECKPOINTS_FAILED"
    retryable = True


class FailureLatch:
    """Holds the error that ends the attempt. Several threads set it; any thread may read it and wait for it."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.event = threading.Event()

    def set(self, error: BaseException, over: tuple[type[BaseException], ...] = (BaseException,)) -> None:
        """Set the error. It replaces an earlier one only if that is of a type in `over`."""
        if self.error is None or isinstance(self.error, over):
            self.error = error
        self.event.set()

    def clear(self, kind: type[BaseException]) -> None:
        """Clear an error of this type, because the job has returned to a checkpoint."""
        if isinstance(self.error, kind):
            self.error = None
            self.event.clear()

    def check(self) -> None:
        if self.error is not None:
            raise self.error
