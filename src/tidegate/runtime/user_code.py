"""Errors of the user's functions on their way from a task to the driver: Spark keeps only the text, so the text carries all."""

from __future__ import annotations

import re
import traceback

import msgspec

from tidegate.core.errors import TidegateError, UserCodeError

_OPEN, _CLOSE = "<<tidegate-user-error ", " tidegate-user-error>>"
_MARK = re.compile(re.escape(_OPEN) + r"(.*?)" + re.escape(_CLOSE), re.DOTALL)


class _Report(msgspec.Struct):
    operator: str
    message: str
    traceback: str


def trace_of(error: BaseException) -> str:
    """Where in the user's code it happened, without the frames of ours that called it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tidegate/runtime/" not in f.filename]
    return "".join(traceback.format_list(frames))


class FunctionFailed(Exception):
    """Raised in a task. Its text survives as part of Spark's own error."""

    def __init__(self, operator: str, error: BaseException) -> None:
        self.operator = operator
        text = trace_of(error)
        if isinstance(error, TidegateError):
            message = f"{type(error).__name__}: {error}"
        else:
            message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        report = _Report(operator, message, text)
        super().__init__(f"{message}\n{_OPEN}{msgspec.json.encode(report).decode()}{_CLOSE}")


def find(text: str) -> UserCodeError | None:
    """The user's error inside the text of a Spark error, if there is one."""
    match = _MARK.search(text)
    if match is None:
        return None
    try:
        report = msgspec.json.decode(match[1], type=_Report)
    except msgspec.DecodeError:
        return UserCodeError("unknown", match[1][:500])
    return UserCodeError(report.operator, report.message, report.traceback)
