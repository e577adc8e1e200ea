"""Lengths of time, with PyFlink's names. They are timedeltas."""

from __future__ import annotations

from datetime import timedelta


class Time:
    """Makes lengths of time: `Time.seconds(5)`.

    Examples:
        >>> from tidegate.flink import Time
        >>> Time.minutes(2)
        datetime.timedelta(seconds=120)
    """

    @staticmethod
    def milliseconds(milliseconds: int) -> timedelta:
        """Return this many `milliseconds` as a timedelta."""
        return timedelta(milliseconds=milliseconds)

    @staticmethod
    def seconds(seconds: int) -> timedelta:
        """Return this many `seconds` as a timedelta."""
        return timedelta(seconds=seconds)

    @staticmethod
    def minutes(minutes: int) -> timedelta:
        """Return this many `minutes` as a timedelta."""
        return timedelta(minutes=minutes)

    @staticmethod
    def hours(hours: int) -> timedelta:
        """Return this many `hours` as a timedelta."""
        return timedelta(hours=hours)

    @staticmethod
    def days(days: int) -> timedelta:
        """Return this many `days` as a timedelta."""
        return timedelta(days=days)


class Duration:
    """Makes lengths of time: `Duration.of_seconds(5)`."""

    of_millis = staticmethod(Time.milliseconds)
    of_seconds = staticmethod(Time.seconds)
    of_minutes = staticmethod(Time.minutes)
    of_hours = staticmethod(Time.hours)
    of_days = staticmethod(Time.days)
