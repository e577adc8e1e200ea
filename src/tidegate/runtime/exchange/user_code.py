"""Errors of user functions and of sinks: recorded in the task where they happen, reported in the driver where they can be read.

A task reports such an error in its acknowledgement, like a miss, so Spark does not retry the task three more times. Only a
program that cannot be unpickled has no acknowledgement; its report is sent in the text of Spark's error.
"""

from __future__ import annotations

import linecache
import pickle
import re
import traceback
from pathlib import Path
from typing import Any

import msgspec

from tidegate.core.errors import (
    ALL_FUNCTIONS,
    ConnectorError,
    GraphError,
    StateUnbound,
    TidegateError,
    UserCodeError,
    WrongValue,
)
from tidegate.core.installed import LIBRARIES, TIDEGATE
from tidegate.core.nearest import no_column

_OPEN, _CLOSE = "<<tidegate-user-error ", " tidegate-user-error>>"
_MARK = re.compile(re.escape(_OPEN) + r"(.*?)" + re.escape(_CLOSE), re.DOTALL)
_PROGRAMMING = (
    ImportError,
    AttributeError,
    NameError,
    TypeError,
    SyntaxError,
    NotImplementedError,
    pickle.PickleError,
    GraphError,
    WrongValue,
    StateUnbound,
)
"""Programming mistakes: these errors would recur on every try."""
_LONGEST = 500
_BY_NAME = re.compile(r"""(\w+)\[["'](\w+)["']\]""")
"""A row that is read like a dictionary, in a line of the user's program."""
_NO_MODULE = re.compile(
    r"(?:ModuleNotFoundError|ImportError): (?:the functions of the job cannot be loaded on an executor: )?No module named "
    r"'([^']+)'"
)
"""In a function, or in a module that is imported when the functions are loaded."""


class SinkWriteFailed(ConnectorError):
    """A sink could not write in a task. No output of the epoch was committed."""

    code = "SINK_WRITE"
    retryable = True

    def __init__(self, sink: str, target: str, message: str, details: str, *, fatal: bool) -> None:
        self.sink = sink
        self.fatal = fatal
        """Whether the sink would fail again after every restart."""
        super().__init__(f"Sink {sink!r} cannot write {target}: {message}\n{details}")


class TracebackLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of Python that was being executed."""

    file: str
    line: int
    function: str
    begin: int | None
    end: int | None
    text: str

    @property
    def place(self) -> str:
        return f"{_short(self.file)}:{self.line}, in {self.function}"

    def quoted(self) -> str:
        """Return the line, with a caret under what failed. The driver may have the file where the worker had none."""
        whole = self.text or linecache.getline(self.file, self.line)
        text = whole.strip()
        if not text:
            return ""
        skipped = len(whole) - len(whole.lstrip())
        if self.begin is None or self.end is None or self.end <= self.begin:
            return f"      {text}"
        begin = max(0, self.begin - skipped)
        width = max(1, min(self.end - skipped, len(text)) - begin)
        return f"      {text}\n      {' ' * begin}{'^' * width}"


class UserErrorReport(msgspec.Struct, frozen=True, array_like=True):
    """A task's report about a function that raised."""

    operator: str
    error: str
    programming: bool
    """Whether it is a programming mistake: no retry helps."""
    transient: bool
    """Whether it is about something outside the program, such as a connection, so that a later retry may help."""
    frames: tuple[TracebackLine, ...]
    row: str | None
    key: str | None
    target: str = ""
    """Of a sink: what it writes to. Then `operator` is its uid."""
    columns: tuple[str, ...] = ()
    """Of the row."""

    @property
    def same_row(self) -> tuple[object, ...]:
        """Equal in two tries if the same error occurred at the same row."""
        line = None if not self.frames else (self.frames[-1].file, self.frames[-1].line)
        return self.operator, self.error.partition(":")[0], line, self.row, self.key

    def to_error(self, repeated: bool = False) -> UserCodeError | SinkWriteFailed:
        """Return the error that the driver raises. `repeated`: the same row failed in the same way when it was retried."""
        # The line of the user's program, not that of the library in which it surfaced.
        own = [frame for frame in self.frames if not frame.file.startswith(LIBRARIES)]
        if not own and not self.target:
            own = list(self.frames)

        lines = []
        if self.row is not None:
            lines.append(f"  row:  {self.row}" + ("" if self.key is None else f", key {self.key}"))
        elif self.key is not None:
            lines.append(f"  key:  {self.key}")
        if own:
            lines.append(f"  line: {own[-1].place}")
            for caller in own[-2:-1]:
                lines.append(f"        called from {caller.place}")
            if self.frames[-1] is not own[-1]:
                lines.append(f"        raised inside {self.frames[-1].place}")
            quoted = own[-1].quoted()
            if quoted:
                lines += ["", quoted, ""]

        fatal = self.programming or (repeated and not self.transient)
        if self.target:
            lines.append("  " + self._advice_for_sink(fatal))
            return SinkWriteFailed(self.operator, self.target, self.error, "\n".join(lines), fatal=fatal)
        lines.append("  " + self._advice(repeated and fatal))

        if self.operator == ALL_FUNCTIONS:
            text = self.error.partition(": ")[2]
            return UserCodeError(self.operator, text, "\n".join(lines), fatal=fatal)
        return UserCodeError(self.operator, self.error, "\n".join(lines), fatal=fatal)

    def _advice(self, repeated: bool) -> str:
        if self.programming:
            again = "start the job again; it continues from its last checkpoint, if it has one."
            return f"{self._known_mistake() or 'Correct the program'} and {again}"
        if repeated:
            return (
                "The same row failed again when it was tried once more, so the job ends. Correct the function and start the job "
                "again; or continue without such rows: process(…, on_error='skip') or on_error='dead-letter'."
            )
        return "This error may be temporary: a job with checkpoints returns to the last one and reads the row again."

    def _advice_for_sink(self, fatal: bool) -> str:
        if fatal:
            return (
                "It would fail again. Correct the sink and start the job again; it continues from its last checkpoint."
            )
        return (
            "A job with checkpoints returns to the last one and writes the rows again, as often as its restart strategy allows. "
            "Make the target writable."
        )

    def _known_mistake(self) -> str | None:
        """Return what to do about a mistake whose error says little to somebody who makes it for the first time."""
        if missing := _NO_MODULE.match(self.error):
            package, dot, _ = missing[1].partition(".")
            if dot:
                return (
                    f"The Python that runs the tasks has a package {package!r}, but no module {missing[1]!r} in it. Install the "
                    "same version there as here, or correct the name"
                )
            return (
                f"The Python that runs the tasks has no package {package!r}. Install it on every executor, or send it with the "
                "job (spark.submit.pyFiles for modules, spark.archives for an environment),"
            )
        if self.error.startswith("TypeError: tuple indices must be integers") and self.frames:
            found = _BY_NAME.search(self.frames[-1].quoted())
            if found is None or not self.columns:
                return "A row is a tuple with names: write row.column instead of row['column']. Correct the program"
            row, column = found.groups()
            if column in self.columns:
                return f"A row is a tuple with names: write {row}.{column} instead of {row}['{column}']. Correct the program"
            known = no_column(column, self.columns)
            return f"A row is a tuple with names, as in {row}.{self.columns[0]}. {known} Correct the program"
        return None


def frames_of(error: BaseException) -> tuple[TracebackLine, ...]:
    """Return the lines that were being executed, without ours."""
    return tuple(
        TracebackLine(
            file=found.filename,
            line=found.lineno or 0,
            function=found.name,
            begin=getattr(found, "colno", None),
            end=getattr(found, "end_colno", None) if getattr(found, "end_lineno", None) == found.lineno else None,
            text=linecache.getline(found.filename, found.lineno or 0).rstrip("\n"),
        )
        # The last lines say most, and a recursion that did not end has a thousand.
        for found in traceback.extract_tb(error.__traceback__)[-12:]
        if not found.filename.startswith(TIDEGATE)
    )


def trace_of(error: BaseException) -> str:
    """Return where in the user's code it happened, without our own frames that called it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tidegate/runtime/" not in f.filename]
    return "".join(traceback.format_list(frames))


class FunctionFailed(Exception):
    """A user function raised in a task. Its text survives as part of Spark's own error."""

    def __init__(self, operator: str, error: BaseException, row: Any = None, key: Any = None, target: str = "") -> None:
        """`target`: what a sink writes to, whose uid is `operator`."""
        self.operator = operator
        if key is None and isinstance(error, WrongValue):
            key = error.key
        self.report = _report(operator, error, row, key, target)
        super().__init__(f"{self.report.error}\n{_OPEN}{encoded(self.report)}{_CLOSE}")


def encoded(report: UserErrorReport) -> str:
    return msgspec.json.encode(report).decode()


def decoded(text: str) -> UserErrorReport:
    return msgspec.json.decode(text, type=UserErrorReport)


def find(text: str) -> UserCodeError | SinkWriteFailed | None:
    """Return the user's error, or a sink's, inside the text of a Spark error, if there is one."""
    # Spark's error has the text of the Python error somewhere in the middle, after its own.
    match = _MARK.search(text)
    if match is None:
        return None
    try:
        return decoded(match[1]).to_error()
    except msgspec.DecodeError:
        return UserCodeError("unknown", match[1][:_LONGEST])


def _report(operator: str, error: BaseException, row: Any, key: Any, target: str) -> UserErrorReport:
    message = str(error)
    frames = frames_of(error)
    if isinstance(error, WrongValue) and error.writes:
        # No line of the function was being executed any more. The first of those that write the state stands for them.
        file, line, function, text = error.writes[0]
        begin = text.index("self.") if "self." in text else 0
        frames = (TracebackLine(file=file, line=line, function=function, begin=begin, end=len(text), text=text),)
        message += "".join(f" Also written in {_short(file)}:{line}." for file, line, _, _ in error.writes[1:4])
    return UserErrorReport(
        operator=operator,
        error=f"{type(error).__name__}: {message}" if message else type(error).__name__,
        programming=isinstance(error, _PROGRAMMING),
        transient=isinstance(error, OSError) or bool(getattr(error, "retryable", False)) or _is_of_the_engine(error),
        frames=frames,
        row=None if row is None else _shown(row),
        key=None if key is None else _shown(key),
        target=target,
        columns=tuple(getattr(row, "_fields", ())),
    )


def _is_of_the_engine(error: BaseException) -> bool:
    """Whether the error is the engine's, above all a broken disk: not the function's fault,
    although it occurred on its behalf.
    """
    return isinstance(error, TidegateError) and not isinstance(error, _PROGRAMMING)


def _shown(value: Any) -> str:
    try:
        # Both calls run code of the user's, which may raise.
        fields = getattr(value, "_asdict", None)
        text = repr(value) if fields is None else "(" + ", ".join(f"{k}={v!r}" for k, v in fields().items()) + ")"
    except Exception as error:
        return f"({type(value).__name__}, which cannot be shown: {type(error).__name__})"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _short(file: str) -> str:
    """Shorten a file name for readers: relative to the current folder, or with only its parent folder."""
    path = Path(file)
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return "/".join(path.parts[-2:]) if path.is_absolute() else file
