"""The lock of a job's epochs: one epoch at a time, and none while the job returns to a checkpoint."""

from __future__ import annotations

import threading
import time
from types import TracebackType


class EpochLock:
    """Batches arrive on a Spark thread, empty epochs run on one of ours, and a third thread supervises both."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: int | None = None

    def __enter__(self) -> None:
        self._lock.acquire()
        self._holder = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # While the lock is still held: after the release another thread may have set its own.
        self._holder = None
        self._lock.release()

    def yield_for(self, seconds: float) -> None:
        """Let another thread take the lock that this one holds, for at least so long, and take it back afterwards."""
        self.__exit__(None, None, None)
        time.sleep(seconds)
        self.__enter__()

    def is_held(self) -> bool:
        return self._lock.locked()

    def is_held_here(self) -> bool:
        """Whether the caller runs within an epoch, for example in a user callback."""
        return self._holder == threading.get_ident()
