"""The fault matrix: every numbered step × what dies there × how. Cells without meaning are left out by rules, not by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Victim(StrEnum):
    PYTHON_WORKER = "python-worker"
    EXECUTOR = "executor"
    HOST = "host"
    """With its disk."""
    DRIVER = "driver"


class How(StrEnum):
    KILL = "SIGKILL"
    PAUSE = "SIGSTOP and wake"
    LOST_REPLY = "lost reply"


class Phase(StrEnum):
    """When a step is reached."""

    RUNNING = "running"
    RECOVERING = "recovering"
    """Only while a new driver takes the job over."""


CHANGELOG = "changelog"


@dataclass(frozen=True, slots=True)
class Step:
    point: str
    in_task: bool
    phase: Phase = Phase.RUNNING
    asks_storage: bool = False
    """Whether it puts something into storage whose answer can be lost."""
    backend: str | None = None
    """Of which backend alone it is a step, or of the changelog."""


@dataclass(frozen=True, slots=True)
class Cell:
    step: Step
    victim: Victim
    how: How

    def __str__(self) -> str:
        return f"{self.step.point} / {self.victim} / {self.how}"


def _steps(in_task: bool, phase: Phase, *points: str) -> tuple[Step, ...]:
    return tuple(Step(point, in_task, phase) for point in points)


STEPS: tuple[Step, ...] = (
    *_steps(
        True, Phase.RUNNING,
        "task.1-located", "task.2-first-row", "task.3-verified", "seal.3-published", "task.4-sealed",
        "files.1-written", "files.1-staged", "task.5-prepared", "task.6-sent", "upload.1-begun",
        "storage.upload.2-part-stored", "storage.upload.3-recorded", "storage.upload.4-complete",
        "upload.2-noted", "upload.3-unsent", "files.1-marked", "files.2-renamed", "task-commit.1-committed",
    ),
    *(
        Step(point, True, backend=backend)
        for backend, points in {
            "rocksdb": ("begin.1-opened", "seal.1-flushed", "seal.2-closed"),
            "hashmap": ("seal.1-linked", "seal.2-written"),
            CHANGELOG: ("changelog.1-written",),
        }.items()
        for point in points
    ),
    *_steps(True, Phase.RECOVERING, "restore.1-begun", "restore.2-fetched", "restore.3-noted"),
    *_steps(
        False, Phase.RUNNING,
        "epoch.2-collected", "epoch.4-recorded", "publish.1-metadata", "publish.2-entry", "release.2-committed",
        "clean.1-marked", "clean.2-metadata", "clean.3-files",
    ),
    *(
        Step(f"materialize.{step}", False, backend=CHANGELOG)
        for step in ("1-reserved", "2-asked", "3-stored", "4-offered", "5-completed", "6-released")
    ),
    Step("storage.create.1-applied", False, Phase.RUNNING, asks_storage=True),
    *_steps(
        False, Phase.RECOVERING,
        "claim.1-read", "claim.2-decided", "claim.3-won", "claim.4-shown", "recover.1-read", "recover.2-learnt",
        "recover.3-owed", "sweep.1-listed", "sweep.2-deleted",
    ),
)  # fmt: skip


def cells(backend: str, changelog: bool = False) -> Iterator[Cell]:
    """Those of a job with that backend.

    The driver's steps die with the driver, a task's with its worker, executor or host; a reply is lost where one is
    awaited; only what is awake can be paused: an executor or host is paused by pausing the task that others wait for.
    """
    for step in STEPS:
        if step.backend not in (None, backend, CHANGELOG if changelog else None):
            continue
        if step.in_task:
            yield from (Cell(step, victim, How.KILL) for victim in (Victim.PYTHON_WORKER, Victim.EXECUTOR, Victim.HOST))
            yield Cell(step, Victim.PYTHON_WORKER, How.PAUSE)
        else:
            yield Cell(step, Victim.DRIVER, How.KILL)
            yield Cell(step, Victim.DRIVER, How.PAUSE)
        if step.asks_storage:
            yield Cell(step, Victim.DRIVER, How.LOST_REPLY)
