"""Whether a periodic checkpoint is taken of the last epoch, or announced to the next one. Pure.

The uploads of a checkpoint of the last epoch begin with the tasks of the next one, and are acknowledged at its end. If it is
announced to the next epoch instead, it completes at the same time and contains that epoch, too. Without this, a checkpoint that
began late would make the one after it late, and so on: none is announced while another one is in progress.
"""

from __future__ import annotations

from tidegate.core.clock import Instant, MonotonicMs

_SHORT_EPOCH_MS = 5_000
_SOON_MS = 400
"""How long a checkpoint waits for an epoch. If none comes, an empty one is run for the uploads, but not sooner than this."""


class NextEpoch:
    """What is known about the epoch that follows the last one."""

    def __init__(self) -> None:
        self._by_ms: MonotonicMs | None = None
        """Until when it is expected to begin; None: it is not waited for."""
        self._is_awaited = False
        self._was_late = False
        """Whether the last checkpoint completed after another epoch had ended."""
        self._passed_by = False
        """Whether the last epoch began without the announcement of the checkpoint that waited for it."""

    def follows(self, is_announced: bool, took_ms: int | None, now: Instant) -> None:
        """An epoch has ended, which took this long; None: uploads need not wait for another one. After a long one nothing
        waits: acknowledgements are stored before such an epoch ends. `is_announced`: a checkpoint was announced to it."""
        self._passed_by, self._is_awaited = self._is_awaited and not is_announced, False
        self._by_ms = now.plus(_SOON_MS) if took_ms is not None and took_ms <= _SHORT_EPOCH_MS else None

    def completed(self, late: bool) -> None:
        """A checkpoint has completed; `late`: another epoch had ended meanwhile. Only then does the next checkpoint wait: the
        epoch that it waits for may be slow."""
        self._was_late = late

    def waited_for_until(self, now: Instant) -> MonotonicMs | None:
        """Return until when a periodic checkpoint waits for it; None: it is taken of the last one, now. It does not wait for a
        second epoch if the first began too early."""
        if not self._was_late or self._passed_by or self._by_ms is None or now.monotonic_ms >= self._by_ms:
            return None
        self._is_awaited = True
        return self._by_ms
