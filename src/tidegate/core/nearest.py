"""Suggestions of a similar name, for error messages."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that is most like this one; None if none is."""
    from difflib import get_close_matches  # noqa: PLC0415 start-up time

    return next(iter(get_close_matches(name, list(names), n=1, cutoff=0.5)), None)


def no_column(name: str, names: Iterable[str], purpose: str = "") -> str:
    """Return the error message for a column that does not exist; `purpose` says what it was needed for: "to key by"."""
    columns = list(names)
    near = nearest(name, columns)
    meant = "" if near is None else f"Did you mean {near!r}? "
    suffix = f" {purpose}" if purpose else ""
    return f"There is no column {name!r}{suffix}. {meant}The columns are {', '.join(columns)}."
