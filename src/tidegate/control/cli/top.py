"""`tidegate top JOB`: a running job in the terminal, live."""

from __future__ import annotations

import contextlib
import select
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from tidegate.control.cli.jobs import at
from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import BadOption, Output
from tidegate.control.rest.client import Client
from tidegate.core.durations import duration_ms
from tidegate.core.errors import ControlError

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 160
_OTHER_LINES = 30
"""Lines of a frame besides those of the tasks."""


@click.command("top")
@click.argument("job")
@click.option("--interval", default="1 s", show_default=True, help="How often to look.")
@click.option("--once", is_flag=True, help="Print the current state and end. So does a pipe.")
@at
@with_output
def command(out: Output, address: str, job: str, interval: str, once: bool) -> None:
    """Watch JOB: epochs, checkpoints, lag, output and tasks. Press q to quit."""
    from rich.console import Console

    from tidegate.control.cli.top_view import frame

    try:
        every_s = max(0.1, duration_ms(interval) / 1000)
    except ValueError as error:
        raise BadOption(f"--interval: {error}.") from None
    watch = ReportWatch(Client(address), job)
    console = Console(highlight=False)
    if out.json:
        out.show(watch.ask())
    elif once or not console.is_terminal:
        wide = console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)
        wide.print(frame(watch.ask()))
    else:
        _live(console, watch, every_s)


class ReportWatch:
    """The last report of a job, and why there is no newer one."""

    def __init__(self, client: Client, job: str) -> None:
        self._client = client
        self._path = f"/jobs/{quote(job, safe='')}/report"
        self.report: dict[str, Any] | None = None
        self._seen_s = time.monotonic()

    def ask(self) -> dict[str, Any]:
        self.report = self._client.ask("GET", self._path)
        self._seen_s = time.monotonic()
        return self.report

    def look(self) -> str | None:
        """Ask again. Return what went wrong, if there is a report to show meanwhile; otherwise raise."""
        try:
            self.ask()
            return None
        except ControlError as error:
            if self.report is None:
                raise
            return f"No answer for {time.monotonic() - self._seen_s:.0f} s; this is the last one. {error}"


def _live(console: Console, watch: ReportWatch, every_s: float) -> None:
    from rich.live import Live

    from tidegate.control.cli.top_view import frame

    watch.ask()
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        problem: str | None = None
        while True:
            # As many tasks as fit: the rest of the frame has a fixed height, and a screen does not scroll.
            most = max(3, console.height - _OTHER_LINES)
            live.update(frame(watch.report or {}, most, problem), refresh=True)
            with contextlib.suppress(KeyboardInterrupt):
                if pressed(every_s) != "q":
                    problem = watch.look()
                    continue
            return  # q, or Ctrl-C


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Yield a function that waits for a key, at most so many seconds, and returns it, or an empty text."""
    if not sys.stdin.isatty():

        def wait(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield wait
        return
    import termios
    import tty

    # Keys without Enter: the terminal must not wait for a whole line, and must be put back however this ends.
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return sys.stdin.read(1).lower() if ready else ""

    try:
        tty.setcbreak(terminal)
        yield read
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
