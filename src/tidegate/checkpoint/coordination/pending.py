"""A checkpoint in progress: which tasks have acknowledged, and what they uploaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from tidegate.checkpoint.coordination.requests import CheckpointRequest
from tidegate.checkpoint.files.task_part import UploadAck
from tidegate.core.clock import Instant, MonotonicMs
from tidegate.core.ids import EpochId, TaskId


class Stage(Enum):
    UPLOADING = auto()
    HELD = auto()
    """A savepoint with all files uploaded, waiting for a checkpoint of its epoch or a later one."""
    COMPLETING = auto()


@dataclass(slots=True, kw_only=True)
class PendingCheckpoint:
    """Changed only by its coordinator."""

    id: int
    epoch: EpochId
    request: CheckpointRequest
    triggered: Instant
    deadline_ms: MonotonicMs
    tasks: frozenset[TaskId]
    base: str | None
    """Metadata name of the completed checkpoint whose handles tasks may reuse; None: everything is uploaded."""
    stage: Stage = Stage.UPLOADING
    last_ack: Instant | None = None
    acks: dict[TaskId, UploadAck] = field(default_factory=dict)
    acked_at: dict[TaskId, Instant] = field(default_factory=dict)

    def acknowledge(self, ack: UploadAck, now: Instant) -> bool:
        """Record an acknowledgement and return whether it was new. The first of a task counts, and its files are those
        referenced."""
        if ack.task in self.acks or ack.task not in self.tasks:
            return False
        self.acked_at[ack.task] = now  # first: a reader that sees the acknowledgement finds its time
        self.acks[ack.task] = ack
        self.last_ack = now
        return True

    @property
    def is_complete(self) -> bool:
        return len(self.acks) == len(self.tasks)

    @property
    def slowest_upload_ms(self) -> int | None:
        """How long the slowest upload took of those that are acknowledged."""
        return max((ack.async_ms for ack in self.acks.values()), default=None)

    @property
    def missing(self) -> frozenset[TaskId]:
        """Tasks that have not acknowledged; the next epoch reminds them."""
        return self.tasks - self.acks.keys()

    @property
    def states(self) -> Mapping[TaskId, Any]:
        return {task: ack.state for task, ack in self.acks.items()}
