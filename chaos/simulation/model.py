"""What simulated jobs compute: epochs that form a tree, and state whose every file knows which epochs it contains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from chaos.simulation.faults import Violation
from tidegate.checkpoint.committables import Channel
from tidegate.checkpoint.metadata import AnyFileList, StoredFileList, StoredOutput, TaskState
from tidegate.connectors.sink import Committable
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


@dataclass(slots=True)
class Snapshot:
    """Content of a simulated `_metadata`: kept aside, the stored bytes are only its name."""

    epoch: Epoch
    parallelism: int
    tasks: list[tuple[tuple[StateFile, str], ...]]
    committables: tuple[Committable, ...]
    lists: tuple[tuple[str, AnyFileList], ...]
    """The list of each task that has files, as the metadata has it."""
    root: str
    handles: dict[int, Handles] = field(default_factory=dict)
    """By task: what the next checkpoint may reuse."""
    paths: frozenset[str] = frozenset()
    parts: tuple[TaskState, ...] = ()
    """If tasks are real: each of them, as the metadata has it."""
    stored_output: tuple[StoredOutput, ...] = ()
    """Objects with the output that is not in `committables`. They are real: bytes that are stored and read again."""

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(f"{self.root}/{each.path}" for each in self.stored_output)

    def __post_init__(self) -> None:
        if self.parts:
            return
        stored = {
            f"{self.root}/{path}"
            for _, files in self.lists
            if isinstance(files, StoredFileList)
            for path in files.paths
        }
        self.paths = frozenset(path for task in self.tasks for _, path in task) | stored
        lists = dict(self.lists)
        self.handles = {
            number: Handles({file.name: path for file, path in task}, lists.get(f"L1-S{number}"))
            for number, task in enumerate(self.tasks)
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
