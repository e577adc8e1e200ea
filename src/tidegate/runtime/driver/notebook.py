"""Shows a running job in a notebook cell, and keeps what it shows up to date until the job ends."""

from __future__ import annotations

import threading
import time
from importlib import import_module
from typing import Any, Protocol

from tidegate.runtime.monitoring.health import end_text
from tidegate.runtime.monitoring.job_html import job_html
from tidegate.runtime.monitoring.run_report import RunReport

_EVERY_S = 1.0


class ShownRun(Protocol):
    @property
    def has_ended(self) -> bool: ...
    def report(self) -> RunReport: ...


class NotebookCell:
    """What a run looks like as the result of a cell."""

    def __repr__(self: ShownRun) -> str:
        report = self.report()
        last = f", epoch {report.epochs[-1].epoch}" if report.epochs else ""
        return f"<job {report.job} {end_text(report) or report.status}{last}>"

    def _repr_html_(self: ShownRun) -> str:
        """For notebooks that do not use IPython: the current state."""
        return job_html(self.report())

    def _ipython_display_(self: ShownRun) -> None:
        """For notebooks of IPython: the same, updated while the job runs. In a terminal, one line."""
        # IPython is there if it calls this, and not needed otherwise.
        IPython: Any = import_module("IPython")
        if getattr(IPython.get_ipython(), "kernel", None) is None:
            print(repr(self))
            return
        html = IPython.display.HTML
        handle = IPython.display.display(html(job_html(self.report())), display_id=True)
        if handle is not None:
            work = _Following(self, handle, html).run
            threading.Thread(target=work, name="tidegate-notebook", daemon=True).start()


class _Following:
    """Updates one cell."""

    def __init__(self, run: ShownRun, handle: Any, html: Any) -> None:
        self._run = run
        self._handle = handle
        self._html = html

    def run(self) -> None:
        while True:
            # Before the update, so that the last one shows the end.
            is_last = self._run.has_ended
            self._handle.update(self._html(job_html(self._run.report())))
            if is_last:
                return
            time.sleep(_EVERY_S)
