"""Durations and sizes as people write them: `"10 s"`, `"1 day"`, `"64 mb"`, or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from tidegate.core.errors import GraphError

_UNITS_MS = {
    unit: float(ms)
    for ms, units in (
        (1e-6, ("ns",)),
        (1e-3, ("us", "µs")),
        (1, ("", "ms", "milli", "millis", "millisecond", "milliseconds")),
        (1000, ("s", "sec", "secs", "second", "seconds")),
        (60_000, ("m", "min", "mins", "minute", "minutes")),
        (3_600_000, ("h", "hour", "hours")),
        (86_400_000, ("d", "day", "days")),
    )
    for unit in units
}
_UNITS_BYTES = {
    unit: float(1 << shift)
    for shift, units in (
        (0, ("", "b", "bytes")),
        (10, ("k", "kb", "kib")),
        (20, ("m", "mb", "mib")),
        (30, ("g", "gb", "gib")),
        (40, ("t", "tb", "tib")),
    )
    for unit in units
}
_NUMBER = re.compile(r"-?[0-9]*\.?[0-9]+(e[+-]?[0-9]+)?")
_FORM = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)

Duration = timedelta | str | Literal[0]
"""A timedelta, a text such as `"10 s"`, or 0. Other numbers have no unit."""

_DURATIONS = "a duration such as '500 ms', '10 s', '5 min', '1 h' or '1 day'"


def duration_ms(value: Duration, least_ms: int = 1) -> int:
    """Convert a duration that a user wrote in code or on the command line to milliseconds.

    Raises ValueError, listing the accepted forms, if it cannot be parsed. A number without a unit is refused: 30 could be
    meant as seconds, and as milliseconds it would be a very different job. `least_ms`: the shortest that the caller takes, so
    that the error suggests nothing shorter.
    """
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not {_DURATIONS}")
    number = str(value).strip()
    if not _NUMBER.fullmatch(number):
        return option_ms(number)

    # A bare number, with a sign or an exponent, too: only 0 means the same in every unit.
    if float(number) == 0:
        return 0
    raise ValueError(f"{value!r} has no unit. Write {_with_unit(number, least_ms)}")


def _with_unit(number: str, least_ms: int) -> str:
    """Suggest what may have been meant: spellings that are read, and long enough."""
    plain = format(Decimal(number), "f")  # an exponent is not read
    suggestions = [
        text for text in (f"{plain} s", f"{plain} ms") if _FORM.fullmatch(text) and option_ms(text) >= least_ms
    ]
    return " or ".join(map(repr, suggestions)) or _DURATIONS


def argument_ms(name: str, value: Duration, *, of: str = "", least_ms: int = 1) -> int:
    """Convert an argument of a public method, as `duration_ms` does. Raises GraphError, which names the argument; `of` is the
    class or method: `TumblingEventTimeWindows.of`.
    """
    try:
        return duration_ms(value, least_ms)
    except ValueError as error:
        raise GraphError(f"{of}({name}={value!r}): {error}." if of else f"{name}={error}.") from None


def option_ms(text: str) -> int:
    """Convert the text of an option to milliseconds. A number without a unit is milliseconds, as in Flink's configuration."""
    return round(_scaled(text, _UNITS_MS, _DURATIONS))


def size_bytes(value: str | int) -> int:
    """Convert a size to bytes, with Flink's units (1 kb = 1024 bytes)."""
    if isinstance(value, int):
        return value
    return round(_scaled(value, _UNITS_BYTES, "a size such as '20 kb', '8 mb' or '1 gb'"))


def show_ms(ms: int) -> str:
    """Format a duration for people."""
    if ms < 1000:
        return f"{ms} ms"
    for limit, unit, name in ((60_000, 1000, "s"), (3_600_000, 60_000, "min"), (86_400_000, 3_600_000, "h")):
        if ms < limit:
            return f"{ms / unit:g} {name}"
    return f"{ms / 86_400_000:g} d"


def show_bytes(size: int) -> str:
    """Format a size for people, in the units that `size_bytes` reads."""
    for shift, name in ((30, "GB"), (20, "MB"), (10, "KB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {name}"
    return f"{size} bytes"


def _scaled(text: str, units: dict[str, float], expected: str) -> float:
    match = _FORM.fullmatch(text)
    if match is None or match[2].lower() not in units:
        raise ValueError(f"{text!r} is not {expected}")
    return float(match[1]) * units[match[2].lower()]
