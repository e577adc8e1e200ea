"""Where a job keeps its checkpoints, found as `tidegate run` finds it: in the job file, and in the file for all jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.checkpoint.layout import JobLayout
from tidegate.config import Checkpointing
from tidegate.config.checkpoint_config import RecoveryConfig
from tidegate.config.declared.checkpointing import DIR, INTERVAL
from tidegate.config.effective import CommandLineOptions
from tidegate.config.errors import OptionError
from tidegate.control.jobs.job_file import checkpoint_of, load_job
from tidegate.control.jobs.stored_jobs import JobNotFound, StoredJob, jobs_in
from tidegate.core.redaction import redacted
from tidegate.runtime.epochs.run_options import RunOptions
from tidegate.runtime.epochs.settings import read_settings
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.storage import open_storage
from tidegate.storage.routed import is_absolute


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A checkpoint directory, and whose."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """For the client of its store. They may hold secrets."""
    job: str | None = None
    """None: all jobs in it are meant."""

    def jobs(self, on_broken: Callable[[str, Exception], None] | None = None) -> tuple[StoredJob, ...]:
        """Raises JobNotFound if there is none. `on_broken`: see `jobs_in`."""
        if self.job is None:
            return jobs_in(self.url, on_broken, **self.options)
        job = StoredJob.read(open_storage(self.url, **self.options), JobLayout(self.job))
        if job is None:
            raise JobNotFound(
                f"{self.url} holds no checkpoint of the job {self.job!r}: it has never run with this directory."
            )
        return (job,)

    def latest(self) -> StoredSnapshot:
        """Open the checkpoint or savepoint that the next start of the job would use."""
        (job,) = self.jobs()
        base = job.newest.base
        if base is None:
            raise JobNotFound(f"The job {job.name!r} in {self.url} has no checkpoint yet.")
        if is_absolute(base.metadata):
            if not job.may_open(base.metadata):
                # Whoever can write the log could name any host, and would see the credentials of this store.
                raise JobNotFound(
                    f"The next start of {job.name!r} would use {redacted(base.metadata)}, which is in another store than its "
                    "checkpoints. Name it yourself to have it opened."
                )
            return StoredSnapshot.open(base.metadata, **self.options)
        return StoredSnapshot.within(job.storage, base.metadata)


def place_of(path: str | None) -> CheckpointPlace:
    """Return the place that a user means: a directory, the job in a file, or, if none is named, the directory for all jobs.

    Raises `OptionError` if none is configured.
    """
    if path is None:
        return _configured(
            None, None, "Name the directory or the job file, or set execution.checkpointing.dir in config.yaml."
        )
    if not is_job_file(path):
        return CheckpointPlace(path)
    job = load_job(path)
    hint = f"Add `checkpoint = tg.Checkpointing(dir=…)` to {path}, or set execution.checkpointing.dir in config.yaml."
    return _configured(checkpoint_of(path), job.name, hint)


def snapshot_of(path: str) -> StoredSnapshot:
    """Open the snapshot at a path or, for a job file, the one that the next start of the job would use."""
    return place_of(path).latest() if is_job_file(path) else StoredSnapshot.open(path)


def is_job_file(path: str) -> bool:
    return path.endswith(".py") and Path(path).is_file()


def recovery_of(job_file: str, options: Mapping[str, str]) -> RecoveryConfig:
    """Return what the next start of the job would recover with: the options in its file, those for all jobs, and `options`,
    which are as on the command line."""
    checkpoint = checkpoint_of(job_file)

    # Where checkpoints are, and how often they are taken, may come from -D. It makes no difference here.
    without_place = {DIR.key: ".", INTERVAL.key: "1 h"}
    for place in ({}, without_place):
        try:
            run_options = RunOptions(checkpoint=checkpoint, options=CommandLineOptions({**place, **options}))
            _, durability = read_settings(1, run_options)
        except OptionError:
            if place:
                raise
            continue
        if durability is not None:
            return durability.recovery
    raise AssertionError("a job with a directory and an interval takes checkpoints")


def _configured(checkpoint: Checkpointing | str | None, job: str | None, hint: str) -> CheckpointPlace:
    try:
        _, durability = read_settings(1, RunOptions(checkpoint=checkpoint))
    except OptionError:
        # `tidegate run` may get the interval from -D. Nothing is run here: a directory alone is enough to look into.
        interval = {INTERVAL.key: "1 h"}
        _, durability = read_settings(1, RunOptions(checkpoint=checkpoint, options=interval))
    if durability is None:
        raise OptionError((f"There is no checkpoint directory. {hint}",))
    return CheckpointPlace(durability.archive.url, durability.archive.options, job)
