"""How a run ends, once a stop is requested. Set by the requesting thread, read by those that run epochs."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class StopRequest:
    """Empty until the job is stopped."""

    asked: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False
    """End without a last checkpoint."""
    savepoint: tuple[str | None, str] | None = None
    """The target and the format of the savepoint that ends the job, if there is one."""
    drain: bool = False
    """Let all event time pass before that savepoint."""
    _output_latest: float | None = None

    def is_asked(self) -> bool:
        return self.asked.is_set()

    def publish_within(self, seconds: float) -> None:
        """Limit the wait for targets, whatever the options say."""
        self._output_latest = time.monotonic() + seconds

    def output_timeout_s(self, configured_s: float) -> float:
        """How long the end of the job may wait for its output."""
        if self._output_latest is None:
            return configured_s
        return max(0.0, min(configured_s, self._output_latest - time.monotonic()))
