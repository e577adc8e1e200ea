"""Moments in milliseconds since 1970-01-01 UTC, and the two clocks of an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from tidegate.core.errors import WrongValue

MIN_WATERMARK = -(1 << 63)
"""No event time is known to have passed."""
MAX_WATERMARK = (1 << 63) - 1
"""All event time has passed: the end of bounded input."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class TimeDomain(IntEnum):
    """Which clock a timer waits for. The numbers are in key bytes and never change."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


@dataclass(frozen=True, slots=True)
class EpochTime:
    """The clocks of one epoch, fixed by the driver before the epoch starts, so that all attempts see the same time."""

    clock_ms: int = 0
    """Processing time."""
    applied_ms: int = MIN_WATERMARK
    """The watermark while rows are processed: the one that the previous epoch applied at its end."""
    watermark_ms: int = MIN_WATERMARK
    """The watermark that each level applies after its rows."""


NO_TIME = EpochTime()
"""The clocks when none have been set."""


def time_ms(moment: int | datetime) -> int:
    """Convert a time to milliseconds. A datetime without a time zone, as in a `timestamp_ntz` column, is taken as
    UTC."""
    if isinstance(moment, datetime):
        # Division of timedeltas is exact. `timestamp()` is a float, which loses microseconds of distant years.
        return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
    # To Python a bool is an int, but True is no time.
    if isinstance(moment, bool) or not isinstance(moment, int):
        raise WrongValue(f"{moment!r} is not a time. Use a datetime, or milliseconds since 1970 as an int.")
    if not MIN_WATERMARK <= moment <= MAX_WATERMARK:
        raise WrongValue(f"{moment} ms does not fit into 64 bits. Use milliseconds since 1970.")
    return moment


def moment(ms: int) -> datetime:
    """Return the datetime, in UTC, of milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=ms)
