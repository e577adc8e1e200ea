"""Flink's accumulators. tidegate has none, so all lists are empty."""

from __future__ import annotations

from msgspec import Struct, field


class UserAccumulator(Struct, frozen=True):
    name: str
    type: str
    value: str


class JobAccumulatorsInfo(Struct, frozen=True, rename="kebab"):
    job_accumulators: list[UserAccumulator] = []
    user_task_accumulators: list[UserAccumulator] = []
    serialized_user_task_accumulators: dict[str, str] = {}


class JobVertexAccumulatorsInfo(Struct, frozen=True, rename="kebab"):
    id: str
    user_accumulators: list[UserAccumulator] = []


class SubtaskAccumulatorsInfo(Struct, frozen=True, kw_only=True):
    subtask: int
    attempt: int
    endpoint: str
    user_accumulators: list[UserAccumulator] = field(name="user-accumulators", default_factory=list)


class SubtasksAllAccumulatorsInfo(Struct, frozen=True, kw_only=True):
    id: str
    parallelism: int
    subtasks: list[SubtaskAccumulatorsInfo]
