"""The output of commands: tables for people, one JSON document for programs, progress on standard error.

Exit codes: 0 success; 1 the answer is no (problems found, incompatible, nothing found); 2
wrong usage; 3 the command failed.
"""

from __future__ import annotations

import contextlib
import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.core.errors import ConfigurationError

NO = 1
FAILED = 3
_PIPE_WIDTH = 200


class BadOption(ConfigurationError):
    """An option of a command has an invalid value."""

    code = "BAD_OPTION"


@dataclass(frozen=True, slots=True)
class OutputTable:
    title: str
    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, one line each."""

    title: str
    lines: Iterable[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    style: str = ""


Block = OutputTable | Facts | Line


class Output:
    """One per command. `json` selects the audience."""

    def __init__(self, json: bool) -> None:
        self.json = json

    def show(self, document: Any, *blocks: Block) -> None:
        """Print the document, or the tables that show the same to a person."""
        if self.json:
            sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
            return
        from rich.console import Console

        console = Console(highlight=False, soft_wrap=False)
        if not console.is_terminal:
            # A pipe has no width. rich would assume 80 and fold paths.
            console = Console(highlight=False, width=_PIPE_WIDTH)
        for number, block in enumerate(blocks):
            if number and not isinstance(block, Line):
                console.print()
            _print(console, block)

    @contextlib.contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar during long work; silent without a terminal."""
        if self.json or not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, advance=done)

    @contextlib.contextmanager
    def counter(self, title: str) -> Iterator[Callable[[str, int], None]]:
        """Show what long work is at, and how far, if its end is not known; silent without a terminal."""
        if self.json or not sys.stderr.isatty():
            yield lambda _, __: None
            return
        from rich.console import Console

        with Console(stderr=True).status(title) as status:
            yield lambda part, count: status.update(f"{title} {part}: {count:,}")


def _print(console: Any, block: Block) -> None:
    from rich.markup import escape
    from rich.table import Table as RichTable

    match block:
        case Line(text, style):
            # Not wrapped, so that a path can be copied in one piece.
            console.print(escape(visible(text)), style=style or None, soft_wrap=True)
        case Facts(title, lines):
            table = RichTable(title=title or None, title_justify="left", show_header=False, box=None, pad_edge=False)
            table.add_column(style="bold", no_wrap=True)
            table.add_column(overflow="fold")
            for name, value in lines:
                table.add_row(name, escape(shown(value)))
            console.print(table)
        case OutputTable(title, columns, rows):
            table = RichTable(title=title or None, title_justify="left", header_style="bold")
            for column in columns:
                table.add_column(column, overflow="fold")
            for row in rows:
                table.add_row(*(escape(shown(cell)) for cell in row))
            console.print(table)


def shown(value: Any) -> str:
    """Format a value for a cell. Absent values are a dash, as in Flink's tables."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return visible(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def visible(text: str) -> str:
    """Remove characters that a terminal would interpret instead of showing."""
    if text.isprintable():
        return text
    # Keys and messages come from anywhere. An escape sequence in one could rewrite the screen.
    return "".join(c if c == "\n" or unicodedata.category(c) != "Cc" else f"\\x{ord(c):02x}" for c in text)


def size(count: int) -> str:
    """Format bytes for people: `12.3 MiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError


def moment(ms: int | None) -> str | None:
    """Format milliseconds since 1970 for people, in UTC."""
    if ms is None:
        return None
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    # The watermark of bounded input is the largest 64-bit number, which is no date.
    except (ValueError, OverflowError, OSError):
        return str(ms)
