"""What of a job its snapshots describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.checkpoint.metadata import OperatorInfo
from tidegate.core.ids import Slot, TaskId, Uid


@dataclass(frozen=True, slots=True)
class JobShape:
    """What of a job its snapshots describe."""

    job: str
    parallelism: int
    max_parallelism: int
    backend: str
    levels: int
    sources: tuple[Uid, ...]
    operators: tuple[OperatorInfo, ...]
    state_ids: Mapping[tuple[Uid, str], int]
    spark_version: str

    @property
    def tasks(self) -> list[TaskId]:
        return [TaskId(level, Slot(s)) for level in range(1, self.levels + 1) for s in range(self.parallelism)]
