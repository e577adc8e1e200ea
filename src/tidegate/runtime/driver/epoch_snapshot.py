"""The state of a job after an epoch, and a checkpoint of it whose uploads are in progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.checkpoint.entry import CheckpointRef
from tidegate.checkpoint.metadata import OperatorInfo
from tidegate.core.ids import EpochId, TaskId
from tidegate.runtime.driver.clocks import Clocks
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


@dataclass(frozen=True, slots=True)
class Announced:
    """A checkpoint that will probably be taken of the next epoch."""

    id: int
    incremental: bool
    """Whether files of the latest checkpoint may be reused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingUpload:
    """A checkpoint whose uploads are in progress. Replaced as a whole, so that other threads may read it."""

    id: int
    snapshot: EpochSnapshot
    base: CheckpointRef | None
    missing: frozenset[TaskId]
    sources: tuple[SourceNotes, ...] = field(repr=False)
    folder: str | None = None
    """The folder of a savepoint."""
    tables: tuple[OperatorInfo, ...] | None = None
    """For a canonical savepoint: all operators with state."""
