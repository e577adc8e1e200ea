"""Default logging for a job, for programs that do not configure logging. Any existing configuration takes precedence.

All lines go to the logger `tidegate`: start, restore, epochs with their rows and rates, checkpoints, restarts and their
causes. Every record on it has the attributes `job`, `term` and `epoch`, whichever handler shows it: importing this module
installs a filter that adds them.
"""

from __future__ import annotations

import contextvars
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, ParamSpec, TextIO, TypeVar

from tidegate.core.ids import EpochId, ordinal
from tidegate.core.redaction import redacted

P = ParamSpec("P")
T = TypeVar("T")

FORMATS = ("text", "json")
FORMAT_VARIABLE = "TIDEGATE_LOG_FORMAT"
_TEXT = "%(asctime)s %(levelname)s %(where)s%(message)s"


class LogContext:
    """The job that log lines belong to: those of its threads and, while it is the only job of the process, of all others."""

    def __init__(self, job: str, epoch: Callable[[], EpochId | None] = lambda: None) -> None:
        """`epoch` returns the epoch that the job is at. It is replaced once there is a term."""
        self.job = job
        self.epoch = epoch

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Within the block, lines of this thread belong to the job, and so do those of threads that are started in it with
        `in_this_context`. Lines of other threads do until `leave`.
        """
        _RUNNING.append(self)
        token = _CONTEXT.set(self)
        try:
            yield
        except BaseException:
            self.leave()
            raise
        finally:
            _CONTEXT.reset(token)

    def leave(self) -> None:
        """The job has ended. May be repeated."""
        if self in _RUNNING:
            _RUNNING.remove(self)


_CONTEXT: contextvars.ContextVar[LogContext | None] = contextvars.ContextVar("tidegate-job", default=None)
_RUNNING: list[LogContext] = []


def _current() -> LogContext | None:
    return _CONTEXT.get() or (_RUNNING[0] if len(_RUNNING) == 1 else None)


def in_this_context(work: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function for another thread: its log lines belong to the job of the thread that wraps it."""
    context = contextvars.copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return context.run(work, *args, **kwargs)

    return run


def _locate(record: logging.LogRecord) -> bool:
    """Add `job`, `term` and `epoch`. What the line says itself takes precedence."""
    fields = vars(record)
    context = _current()
    if context is not None:
        fields.setdefault("job", context.job)
        at = context.epoch()
        if at is not None:
            fields.setdefault("epoch", str(at))
            fields.setdefault("term", ordinal(at.term))

    # Formats of programs refer to the attributes, so they exist on lines that belong to no job, too.
    job = fields.setdefault("job", None)
    epoch = fields.setdefault("epoch", None)
    fields.setdefault("term", None)

    # Always set: the text format of a program may contain %(where)s.
    fields["where"] = f"[{' '.join(str(each) for each in (job, epoch) if each)}] " if job else ""
    return True


class TextFormatter(logging.Formatter):
    """`2026-11-16 10:00:00,123 INFO [orders 1.41] checkpoint 3 complete: …`. 1.41 is epoch 41 of term 1."""

    def __init__(self, before: str = "") -> None:
        super().__init__(before + _TEXT, defaults={"where": ""})


class JsonFormatter(logging.Formatter):
    """One JSON object for each line: time, level, logger, thread, job, term, epoch, message, and what the line adds: the
    attributes of an event, the traceback of an error.
    """

    _ADDED = ("job", "term", "epoch", "checkpoint", "event")

    def format(self, record: logging.LogRecord) -> str:
        fields = vars(record)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        line |= {name: fields[name] for name in self._ADDED if fields.get(name) is not None}
        line |= {name: value for name, value in fields.get("attributes", {}).items() if name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({name: _shown(value) for name, value in line.items()}, ensure_ascii=False)


def _shown(value: Any) -> Any:
    return value if isinstance(value, int | float | bool) else redacted(str(value))


def configure_logging(stream: TextIO | None = None, format: str | None = None) -> None:
    """Show lines of level INFO and above, unless the program has configured logging. `format` is `text` or `json`; without
    it, the environment variable TIDEGATE_LOG_FORMAT decides.
    """
    logger = logging.getLogger("tidegate")
    root = logging.getLogger()

    # Any of these shows that the program has configured logging.
    if root.handlers or logger.handlers or logger.level != logging.NOTSET:
        return
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    if (format or os.environ.get(FORMAT_VARIABLE, "text")).lower() == "json":
        handler.setFormatter(JsonFormatter())
    else:
        # On a terminal, the last line is the progress line, which is redrawn after this one.
        handler.setFormatter(TextFormatter("\r\033[K" if stream.isatty() else ""))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    # A root handler that the program adds later would print each line again.
    logger.propagate = False
    logging.getLogger("py4j").setLevel(logging.ERROR)


logging.getLogger("tidegate").addFilter(_locate)
