"""The state of one task attempt: the version it starts from, the store it writes to, the version
it seals. Independent of Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tidegate.checkpoint.task.version_restore import HostVersions, restore
from tidegate.checkpoint.task.version_upload import forget_uploads
from tidegate.core.errors import CorruptState, WrongValue
from tidegate.core.ids import AttemptId, Slot, TaskId, Term
from tidegate.graph.model import Process, Transform
from tidegate.runtime.exchange.assignment import TaskAssignment
from tidegate.runtime.exchange.messages import Fault, FaultKind
from tidegate.runtime.exchange.program import LevelProgram
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.background_upload import storage_of
from tidegate.savepoint.canonical_read import CanonicalTask
from tidegate.savepoint.evolution import MigrationFailed
from tidegate.savepoint.restore_compatibility import converter
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.operator_states import OperatorStates
from tidegate.state.backends import backend_named
from tidegate.state.changelog import truncate, without_changelog
from tidegate.state.disk.left_lineages import note_use
from tidegate.state.disk.local_root import LocalRoot
from tidegate.state.disk.state_sizes import SIZES
from tidegate.state.disk.version_directory import discard_version, terms_of
from tidegate.state.keys.key_groups import range_of_slot
from tidegate.state.port import (
    BudgetedBackend,
    EntryTooLarge,
    MeasuredStore,
    MemoryUsingStore,
    StateBackend,
    StateStore,
    VersionMissing,
)
from tidegate.state.version import Manifest, VersionId
from tidegate.storage import CorruptFile, MeteredStorage, ObjectMissing


@contextmanager
def _errors_of(operator: str) -> Iterator[None]:
    """Values of another type than their state, or larger than the store can hold, are the function's error."""
    try:
        yield
    except (WrongValue, EntryTooLarge) as error:
        raise FunctionFailed(operator, error) from error


class AttemptState:
    """The attempt opens the store at the first row, and never for a task without rows. The source stage has no state."""

    def __init__(
        self, *, assignment: TaskAssignment, program: LevelProgram, slot: Slot, attempt: AttemptId, root: LocalRoot
    ) -> None:
        level = program.level
        self._assignment = assignment
        self._slot = slot
        self.host = root.host
        self._stateful = level > 0 and any(
            isinstance(node, Process | Transform) and node.states for node in program.nodes
        )
        self._numbered = [
            (str(node.uid), spec.name, program.state_ids[node.uid, spec.name])
            for node in program.nodes
            if isinstance(node, Process | Transform) and node.uid is not None
            for spec in node.states
        ]
        """Every state of the level: its operator, its name, its id."""
        self._target = VersionId(assignment.epoch, attempt)
        self._store: StateStore | None = None
        self.downloads: MeteredStorage | None = None
        """The storage that state was restored from, if it was."""
        self._keyed: list[tuple[str, KeyedStates]] = []
        self._lists: list[tuple[str, OperatorStates]] = []
        self.store_metrics: Mapping[str, float] = {}
        """Metrics that the store reported before it was sealed."""
        self.memory: dict[str, float] = {}
        """Figures of the memory of state, under the names of metrics."""
        self.base = assignment.versions[slot] if level > 0 else None
        """The version to start from; for restored state, the version that `restore` created."""
        self._base_manifest: Manifest | None = None
        """Its manifest, as far as `missing` has looked."""
        self.state_sizes: dict[str, dict[str, int]] = {}
        """Estimated bytes by operator and state, if they were looked at."""
        # The source stage has no slot, and its work is empty.
        uploads, keep, restore_order = assignment.work.of(slot) if level > 0 else ((), (), None)
        self.uploads = uploads
        self._keep = keep
        self._restore_order = restore_order
        self.directory_of = partial(root.task_directory, assignment.job, assignment.lineage)
        self.directory = self.directory_of(TaskId(level, slot))
        self.backend = backend_named(assignment.backend, assignment.backend_options)
        self.cache_bytes = _cache_bytes(self.backend, program)
        """How much memory cached state of each operator may take. None: their number is limited."""
        self.groups = range_of_slot(slot, assignment.parallelism, assignment.max_parallelism) if level > 0 else (0, 0)

    def restore(self) -> Fault | None:
        """Restore the state that the epoch starts from, if the assignment asks for it. Raises errors that a retry may resolve."""
        if self._restore_order is None:
            return None
        assignment = self._assignment
        assert assignment.archive is not None
        self.downloads = MeteredStorage(storage_of(assignment.archive))
        # Before it begins: it may take long, and the last note here may be old enough for another job to remove the directory.
        note_use(self.directory, checkpointed=True)
        try:
            self.base = restore(
                self.downloads,
                self.directory,
                self._restore_order,
                without_changelog(self.backend),
                assignment.backend_options,
                self._target,
                CanonicalTask,
                converter,
                HostVersions(self.host, self.directory_of),
            )
        except (CorruptFile, ObjectMissing, CorruptState, MigrationFailed) as error:
            return Fault(FaultKind.RESTORE, str(error))
        return None

    def missing(self) -> Fault | None:
        """Return a fault unless the version to start from is on this host. An acknowledgement vouches for the version, so the
        attempt looks it up even if the task has no rows."""
        if self.base is None:
            return None
        try:
            self._base_manifest = self.backend.manifest(self.directory, self.base)
        except VersionMissing as error:
            return Fault(FaultKind.MISS, str(error))
        except CorruptState as error:
            # As in `begin`: a return to the checkpoint would find it again.
            discard_version(self.directory, self.base)
            return Fault(FaultKind.CORRUPT, str(error))
        # The mark keeps other jobs on this host from sweeping the directory, also in epochs that do not open the store.
        note_use(self.directory, checkpointed=self._assignment.archive is not None)
        return None

    @property
    def base_bytes(self) -> int:
        """The size of the version to start from, as far as `missing` has looked."""
        return 0 if self._base_manifest is None else self._base_manifest.size_bytes

    def estimate_sizes(self, sealed: Manifest | None) -> None:
        """Estimate the bytes of each state. `sealed` is the new version; None: the epoch has not changed the state."""
        manifest = sealed or self._base_manifest
        if manifest is None or not self._assignment.measuring.tasks:
            return
        sizes = SIZES.estimate(self.backend, self.directory, manifest)
        if not sizes:
            return
        for operator, state, id in self._numbered:
            # A state without entries has no bytes, and is reported all the same.
            self.state_sizes.setdefault(operator, {})[state] = sizes.get(id, 0)

    def begin(self) -> StateStore:
        """Open the store, unless it is open."""
        if self._store is None:
            try:
                self._store = self.backend.begin(self.directory, self.base, self._target, self.groups)
            except CorruptState:
                if self.base is not None:
                    # A return to the latest checkpoint would find it again: some of its files may never have been stored,
                    # so no checksum tells that they are damaged.
                    discard_version(self.directory, self.base)
                raise
        return self._store

    def damage(self, error: BaseException) -> Fault | None:
        """Return a fault if `error` comes from damaged state, wherever it surfaced, and discard the version: the function that
        read it is not to blame, and a repeat would read it again. None: the error has another cause."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, CorruptState):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            return None
        if self.base is not None:
            discard_version(self.directory, self.base)
        return Fault(FaultKind.CORRUPT, str(cause))

    def add_keyed(self, operator: str, states: KeyedStates) -> None:
        """Flush these states before the version is sealed, and remove expired entries."""
        self._keyed.append((operator, states))

    def add_lists(self, operator: str, states: OperatorStates) -> None:
        """Flush these states before the version is sealed."""
        self._lists.append((operator, states))

    def lists_differ(self) -> bool:
        """Whether functions have changed operator state. Not meant for every epoch: it encodes lists that were written."""
        for operator, states in self._lists:
            with _errors_of(operator):
                if states.differ():
                    return True
        return False

    def seal(self) -> Manifest | None:
        """Create the next version. None if the store was not opened."""
        if self._store is None:
            return None
        every: tuple[tuple[str, KeyedStates | OperatorStates], ...] = (*self._keyed, *self._lists)

        for operator, states in every:
            with _errors_of(operator):
                if self._assignment.measuring.tasks and isinstance(states, KeyedStates):
                    # Now, while the cache is full: `flush` empties it, and its peak is what is reported.
                    states.cache.size_bytes()
                states.flush()

        for _, keyed in self._keyed:
            keyed.clean_up()

        held: dict[int, int] = {}
        for _, lists in self._lists:
            held |= lists.held()
        if self._assignment.measuring.tasks:
            self._measure(self._store)

        self._release()
        return self._store.seal(held)

    def tidy(self) -> None:
        """Drop superseded versions, and the records of uploads that no checkpoint needs."""
        if not self._stateful:
            return
        own = self._target.epoch.term
        # Not in the epoch that restores: other tasks may still take files from the versions of old slots.
        if self._restore_order is None:
            self._tidy_old_slots(own)
        tidy_versions(self.backend, self.directory, own, self.base, self._keep)
        truncated = self._assignment.work.truncated
        if truncated and (upto := truncated[self._slot]) is not None:
            truncate(self.directory, upto)
        if self._assignment.archive is not None:
            self.forget_uploads()

    def _tidy_old_slots(self, own: Term) -> None:
        """After a rescale: drop the versions of slots that the job no longer has. Any task does so for its host."""
        prefix, count = self.directory.name.removesuffix(str(self._slot)), self._assignment.parallelism
        for name in os.listdir(self.directory.parent) if self.directory.parent.is_dir() else ():
            slot = name.removeprefix(prefix)
            if name.startswith(prefix) and slot.isdigit() and int(slot) >= count:
                tidy_versions(self.backend, self.directory.parent / name, own, None, ())

    def forget_uploads(self) -> None:
        """Drop the records of uploads for checkpoints that the assignment does not list."""
        forget_uploads(self.directory, self._assignment.epoch.term, self._assignment.work.records)

    def abandon(self) -> None:
        """Drop what the attempt wrote."""
        self._release()
        if self._store is not None:
            self._store.abandon()

    def _measure(self, store: StateStore) -> None:
        if isinstance(store, MeasuredStore):
            self.store_metrics = store.metrics()
        self.memory = {"writeCacheUsage": float(sum(states.cache.peak_bytes for _, states in self._keyed))}
        if isinstance(store, MemoryUsingStore):
            self.memory |= store.memory()

    def _release(self) -> None:
        for _, states in self._keyed:
            states.drop_cached()


def _cache_bytes(backend: StateBackend, program: LevelProgram) -> int | None:
    """Divide the write cache of the slot among the operators of the level that have keyed state."""
    size = backend.write_cache_bytes if isinstance(backend, BudgetedBackend) else None
    if size is None:
        return None  # The backend limits the number of entries instead.
    keyed = sum(isinstance(node, Process) and any(spec.keyed for spec in node.states) for node in program.nodes)
    return size // max(1, keyed)


def tidy_versions(
    backend: StateBackend, directory: Path, own: Term, base: VersionId | None, keep: Iterable[VersionId]
) -> None:
    """Drop superseded versions. Those newer than the base stay: the driver may accept a different attempt than this one.

    Terms before `own` have ended; of their versions, only those in `keep` stay. Later terms belong to another driver.
    """
    named = (*keep, *(() if base is None else (base,)))
    for term in terms_of(directory):
        kept = tuple(version for version in named if version.epoch.term == term)
        if term < own:
            backend.tidy(directory, term, kept, ended=True)
        elif term == own and base is not None and base.epoch.term == own:
            backend.tidy(directory, term, kept)
