"""How long the driver waits for a Spark job of which it hears nothing. Pure.

There is no limit on the length of a job that makes progress. The limits are on silence: a job is interrupted if none of its
tasks has left a mark (`runtime.exchange.progress_marks`) for so long. Interrupting helps only against a Python worker that is
stopped or waits for something that never comes; everything else is slow, and slower when it is repeated. So whatever was
interrupted gets twice the time when it is tried again, and what has taken long and succeeded is given as much the next time: a
job that ends at all ends after a few tries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

UNHEARD = 6
"""A job may be silent this many times longer before its first mark: while Spark reads the sources of an epoch, no Python runs
that could leave one. The same holds for an epoch that restores state: tasks check files on their disks meanwhile."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Multiplies the limits, according to what was observed."""

    scale: float = 1.0

    def after_interruption(self) -> Tolerance:
        return Tolerance(self.scale * 2)

    def after_success(self, share: float) -> Tolerance:
        """`share` is the longest silence of a job that succeeded, as a multiple of the limit that the user chose. Forgotten by
        half with every job, so that one slow moment does not delay all further interruptions."""
        return Tolerance(max(1.0, share * 2, self.scale / 2))


@dataclass(frozen=True, slots=True)
class Silence:
    """The silence of one Spark job. Times are monotonic milliseconds."""

    limit_ms: float
    """Between two marks."""
    first_ms: float
    """Until the first one."""
    since_ms: float
    """The last mark, or the start of the job."""
    heard: bool = False
    share: float = 0.0
    """The longest silence so far, as a multiple of its limit."""

    @property
    def current_limit_ms(self) -> float:
        return self.limit_ms if self.heard else self.first_ms

    def at_mark(self, now_ms: float) -> Silence:
        return replace(self, since_ms=now_ms, heard=True, share=self.share_at(now_ms))

    def share_at(self, now_ms: float) -> float:
        return max(self.share, (now_ms - self.since_ms) / self.current_limit_ms)

    def left_ms(self, now_ms: float) -> float:
        """How long the job may still be silent. 0: it is to be interrupted."""
        return max(0.0, self.since_ms + self.current_limit_ms - now_ms)
