"""What simulated jobs compute: epochs that form a tree, and state whose every file knows which epochs it contains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chaos.simulation.faults import Violation
from tidegate.checkpoint.metadata import AnyFileList, CheckpointMetadata, TaskState
from tidegate.checkpoint.output.committables import Channel
from tidegate.core.ids import EpochId, Lineage


@dataclass(slots=True, eq=False)
class Epoch:
    """One accepted or discarded epoch: what it read, which key groups it changed, where it wrote."""

    id: EpochId
    parent: Epoch | None
    lineage: Lineage
    start: int
    end: int
    touched: frozenset[int]
    output: tuple[Channel, ...]
    marks: Mapping[int, int] = field(default_factory=dict)
    """If tasks are real: the accepted attempt that changed each key group."""

    def chain(self) -> Iterator[Epoch]:
        """This one and all before it, newest first."""
        at: Epoch | None = self
        while at is not None:
            yield at
            at = at.parent


@dataclass(frozen=True, slots=True, eq=False)
class StateFile:
    """An immutable file of local state. `covers` tells for each key group the epochs whose changes are in it."""

    name: str
    covers: dict[int, tuple[EpochId, ...]]


@dataclass(frozen=True, slots=True)
class Handles:
    """What one task has in a checkpoint."""

    paths: dict[str, str] = field(default_factory=dict)
    """File name → path."""
    files: AnyFileList | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What is in a checkpoint or savepoint, for checks: the stored `_metadata` is the product's."""

    epoch: Epoch
    metadata: CheckpointMetadata
    root: str
    """The root of the names in it."""
    paths: frozenset[str]
    """All objects that its tasks need."""
    tasks: Sequence[tuple[tuple[StateFile, str], ...]] = ()
    """If state is modelled: the files of each task, and where they are."""

    @property
    def parallelism(self) -> int:
        return self.metadata.parallelism

    @property
    def parts(self) -> tuple[TaskState, ...]:
        return self.metadata.tasks

    @property
    def handles(self) -> dict[int, Handles]:
        """By task: what the next checkpoint may reuse."""
        return {
            state.task.slot: Handles(
                {file.name: path for file, path in files}, state.files if len(state.files) else None
            )
            for state, files in zip(self.parts, self.tasks)
        }


def key_groups(task: int, parallelism: int, total: int) -> range:
    """Those with `group * parallelism // total == task`."""
    return range(-(-task * total // parallelism), -(-(task + 1) * total // parallelism))


def verify(snapshot: Snapshot, total: int) -> None:
    """The state must be that of exactly the epochs of its own branch, each once."""
    expected: dict[int, list[EpochId]] = {}
    for epoch in reversed(list(snapshot.epoch.chain())):
        for group in epoch.touched:
            expected.setdefault(group, []).append(epoch.id)
    for task, files in enumerate(snapshot.tasks):
        for group in key_groups(task, snapshot.parallelism, total):
            found = sorted(e for file, _ in files for e in file.covers.get(group, ()))
            if found != expected.get(group, []):
                raise Violation(
                    f"key group {group} of the state at epoch {snapshot.epoch.id} contains epochs "
                    f"{[str(e) for e in found]} and not {[str(e) for e in expected.get(group, [])]}"
                )
