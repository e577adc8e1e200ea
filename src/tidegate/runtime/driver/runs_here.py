"""The jobs that this process runs now. It runs a job once, also in a notebook, where a cell that starts one is run repeatedly."""

from __future__ import annotations

import logging
import threading

from tidegate.core.errors import PreconditionFailed
from tidegate.runtime.driver.job_run import JobRun

log = logging.getLogger("tidegate")


class RunsHere:
    """Runs from their start to their end, also those whose handle nobody has kept. One that has ended is forgotten at the next
    start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[JobRun] = []

    def add(self, run: JobRun) -> None:
        with self._lock:
            self._runs.append(run)

    def find(self, job: str) -> JobRun | None:
        with self._lock:
            self._runs = [run for run in self._runs if not run.has_ended]
            return next((run for run in self._runs if run.name == job), None)

    def stop_earlier(self, job: str, *, restart: bool) -> None:
        """Stop the run of this job, if there is one and `restart` says so. Otherwise raise PreconditionFailed."""
        run = self.find(job)
        if run is None:
            return
        if not restart:
            raise PreconditionFailed(
                f"Job {job!r} is already running in this process: {run!r}. Stop it with run.stop(), or start the job with "
                "job.start(…, restart=True), which stops the old run first. With checkpoints, the new run continues from there."
            )
        log.info("job %s is running in this process; it is stopped and started again", job)
        try:
            run.stop()
        except Exception as error:
            log.warning("the old run of job %s ended with an error: %s", job, error)


RUNS_HERE = RunsHere()
