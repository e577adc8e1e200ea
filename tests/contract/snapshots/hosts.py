"""A host with a task on it: makes versions, uploads them, gets them back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.checkpoint.files.task_part import decode_part, digest_of
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import TaskState
from tidegate.checkpoint.task.assignment import KeyedShare, TaskRestore
from tidegate.checkpoint.task.version_restore import HostVersions, RestoreOrder, restore
from tidegate.checkpoint.task.version_upload import Stored, UploadOrder, VersionUpload
from tidegate.core.ids import AttemptId, EpochId, HostId, Slot, TaskId, Term
from tidegate.state.changelog import without_changelog
from tidegate.state.keys.entry_keys import state_prefix
from tidegate.state.port import StateBackend
from tidegate.state.version import VersionId
from tidegate.storage import Storage

LAYOUT = JobLayout("job")
TASK = TaskId(1, Slot(0))
GROUPS = (0, 7)
TERM = Term(1)
Entries = dict[bytes, bytes]


def version(number: int, attempt: int = 1, term: int = 1) -> VersionId:
    return VersionId(EpochId(Term(term), number), AttemptId(attempt))


def key(group: int, name: str, state: int = 1) -> bytes:
    return state_prefix(group, state) + name.encode()


def some(first: int, count: int, size: int = 50, state: int = 1) -> Entries:
    return {key(n % 8, f"k{n:05d}", state): f"{n}-".encode() + b"x" * size for n in range(first, first + count)}


@dataclass
class Host:
    """`directory` is the task's on this host."""

    directory: Path
    backend: StateBackend
    storage: Storage

    def build(self, base: VersionId | None, target: VersionId, puts: Entries, deletes: tuple[bytes, ...] = ()) -> None:
        store = self.backend.begin(self.directory, base, target, GROUPS)
        store.write(puts.items(), deletes)
        store.seal()

    def read(self, of: VersionId) -> Entries:
        store = self.backend.begin(self.directory, of, version(99_999, term=9), GROUPS)
        try:
            return dict(store.scan(b"\x00", b"\xff"))
        finally:
            store.abandon()

    def order(
        self, id: int, of: VersionId, base: TaskState | None = None, base_id: int = 0, inline: int = 0
    ) -> UploadOrder:
        stored = None if base is None else Stored(TERM, base_id, digest_of(base))
        return UploadOrder(checkpoint_id=id, version=of, base=stored, inline_threshold=inline, inline_total=1 << 20)

    def uploader(self, order: UploadOrder) -> VersionUpload:
        return VersionUpload(self.storage, LAYOUT, self.directory, TASK, TERM, order)

    def upload(self, order: UploadOrder, attempt: int = 5) -> tuple[TaskState, tuple[str, ...]]:
        manifest = self.backend.manifest(self.directory, order.version)
        part = self.uploader(order).run(manifest, AttemptId(attempt), lambda: True, lambda: None)
        assert part is not None
        return decode_part(part)

    def restore(
        self,
        *sources: TaskState,
        groups: tuple[int, int] = GROUPS,
        target: VersionId | None = None,
        complete: bool = False,
        stored: tuple[Term, int] = (TERM, 1),
        local: HostVersions | None = None,
        trusted: Mapping[TaskId, HostId] | None = None,
        trusts_boot: bool = False,
    ) -> VersionId | None:
        """As it was when there is one source with just these key groups; put together otherwise. `complete`: the two states
        are all that the sources have."""
        as_is = len(sources) == 1 and sources[0].key_groups == groups
        shares = tuple(
            KeyedShare(s.task, (max(s.key_groups[0], groups[0]), min(s.key_groups[1], groups[1])), (1, 2), complete)
            for s in sources
        )
        plan = TaskRestore(task=TASK, key_groups=groups, keyed=shares, as_is=sources[0].task if as_is else None)
        order = RestoreOrder(
            plan=plan, sources=sources, root=LAYOUT.root, stored=stored, trusted=trusted or {}, trusts_boot=trusts_boot
        )
        backend, new = without_changelog(self.backend), target or version(50, term=2)
        return restore(self.storage, self.directory, order, backend, {}, new, local=local)
