"""What the snapshots of a job describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate.checkpoint.metadata import OperatorInfo
from tidegate.config.choices import Publisher
from tidegate.connectors.sink import commits_small_in_driver, publishes_in
from tidegate.core.ids import Slot, TaskId, Uid
from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph, Input, Process, Transform


@dataclass(frozen=True, slots=True)
class TaskSink:
    """A sink whose output is committed by the tasks of its level."""

    level: int
    stable: bool
    """Whether a key stays in its slot as long as the parallelism does not change: false for a stream without a key."""
    small_by_driver: bool = False
    """Whether the driver commits its output as long as little of it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """What the snapshots of a job describe."""

    job: str
    parallelism: int
    max_parallelism: int
    backend: str
    levels: int
    sources: tuple[Uid, ...]
    operators: tuple[OperatorInfo, ...]
    state_ids: Mapping[tuple[Uid, str], int]
    spark_version: str
    task_sinks: Mapping[Uid, TaskSink] = field(default_factory=dict)
    """Sinks whose output is committed by tasks."""
    listening: frozenset[int] = frozenset()
    """Levels with functions that are notified of checkpoints."""
    dropped_states: frozenset[tuple[str, str]] = frozenset()
    """Uid and name of states that the user drops. Those that the job declares are not dropped."""
    sink_levels: frozenset[int] = frozenset()
    """Levels whose tasks write to sinks."""

    def at(self, parallelism: int) -> JobDescription:
        """Describe the same job with another parallelism."""
        operators = tuple(replace(each, parallelism=parallelism) for each in self.operators)
        return replace(self, parallelism=parallelism, operators=operators)

    @property
    def sink_tasks(self) -> int:
        """Return the number of tasks that write to sinks."""
        return len(self.sink_levels) * self.parallelism

    @property
    def tasks(self) -> list[TaskId]:
        return [TaskId(level, Slot(s)) for level in range(1, self.levels + 1) for s in range(self.parallelism)]


def task_sinks(graph: Graph, plan: Plan, publisher: Publisher) -> dict[Uid, TaskSink]:
    """Return the sinks whose output the tasks commit."""
    small = publisher is Publisher.AUTO
    return {
        sink.uid: TaskSink(
            plan.level_of(sink.id), _keyed(graph, sink.input), small and commits_small_in_driver(sink.target)
        )
        for sink in graph.sinks
        if publishes_in(sink.target) == "task"
    }


def _keyed(graph: Graph, input: Input) -> bool:
    """Whether every row read here was assigned to its slot by a key, here or further upstream."""
    if input.key:
        return True
    producers = [graph.node(stream.node) for stream in input.streams]
    return all(
        isinstance(node, Process) or (isinstance(node, Transform) and _keyed(graph, node.input)) for node in producers
    )
