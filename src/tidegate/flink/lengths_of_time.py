"""Lengths of time, with PyFlink's names. They are timedeltas."""

from __future__ import annotations

from datetime import timedelta


class Time:
    """`Time.seconds(5)`."""

    @staticmethod
    def milliseconds(milliseconds: int) -> timedelta:
        return timedelta(milliseconds=milliseconds)

    @staticmethod
    def seconds(seconds: int) -> timedelta:
        return timedelta(seconds=seconds)

    @staticmethod
    def minutes(minutes: int) -> timedelta:
        return timedelta(minutes=minutes)

    @staticmethod
    def hours(hours: int) -> timedelta:
        return timedelta(hours=hours)

    @staticmethod
    def days(days: int) -> timedelta:
        return timedelta(days=days)


class Duration:
    """`Duration.of_seconds(5)`."""

    of_millis = staticmethod(Time.milliseconds)
    of_seconds = staticmethod(Time.seconds)
    of_minutes = staticmethod(Time.minutes)
    of_hours = staticmethod(Time.hours)
    of_days = staticmethod(Time.days)
