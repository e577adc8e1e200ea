"""The state of a job after an epoch, and a checkpoint of it whose uploads are in progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.checkpoint.metadata import OperatorInfo
from tidegate.checkpoint.task.version_upload import Materialized, Stored
from tidegate.core.ids import EpochId, TaskId
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.sources.query_directory import Positions, SourceNotes
from tidegate.state.version import VersionId


@dataclass(frozen=True, slots=True)
class EpochSnapshot:
    """The state of the job after one epoch: everything in a checkpoint of it except the files."""

    epoch: EpochId
    versions: Mapping[TaskId, VersionId]
    positions: Positions | None
    directory: Path
    """The directory of the streaming query."""
    clocks: Clocks
    announced: int | None = None
    """The checkpoint under which the tasks of the epoch have begun to store their versions."""

    def contains(self, task: TaskId, version: VersionId) -> bool:
        """Whether this version of a task was accepted. Other attempts of the epoch may have stored theirs for the same
        checkpoint."""
        return self.versions[task] == version


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingUpload:
    """A checkpoint whose uploads are in progress. Other threads may read it."""

    id: int
    snapshot: EpochSnapshot
    tasks: frozenset[TaskId]
    """All that upload something."""
    sources: tuple[SourceNotes, ...] = field(repr=False)
    base: Mapping[TaskId, Stored] = field(default_factory=dict, repr=False)
    """The files of each task in the checkpoint that was the latest when this one began: they are not uploaded again, even if
    another checkpoint completes meanwhile. A task that is not in it uploads everything."""
    folder: str | None = None
    """The folder of a savepoint."""
    tables: tuple[OperatorInfo, ...] | None = None
    """For a canonical savepoint: all operators with state."""
    changelog: bool = False
    """Whether tasks store what changed since the base."""
    materialized: Mapping[TaskId, Materialized] = field(default_factory=dict, repr=False)
    """With a changelog: versions that changes may be stored from, instead of from the base."""
    materializes: bool = False
    """It is no checkpoint: tasks store whole versions that later checkpoints start from."""
    acknowledged: set[TaskId] = field(default_factory=set)
    """Only grows, and only by one thread: each of ten thousand acknowledgements must not copy the others."""

    @property
    def missing(self) -> frozenset[TaskId]:
        """Return the tasks that have not acknowledged."""
        return frozenset(task for task in self.tasks if task not in self.acknowledged)

    @property
    def is_awaited(self) -> bool:
        """Whether a task has not acknowledged."""
        return len(self.acknowledged) < len(self.tasks)
