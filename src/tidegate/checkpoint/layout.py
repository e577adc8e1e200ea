"""Storage names of one job, and what a name says by itself: its term, and the checkpoint it was written for.

Every name is permanently unique, except the heartbeat and the record of a run, which one driver overwrites. State files and
staged rows contain the term of the driver that requested them, so clean-up can tell another driver's files from its own
without a clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

from tidegate.core.ids import AttemptId, EpochId, Lineage, TaskId, Term, Uid
from tidegate.storage.port import encode_segment

# These patterns decide what clean-up may delete. They match whole names that this version writes, and nothing else.
_SHARED = re.compile(r"shared/(\d+)/([^/]+)/[^/]+/chk-(\d+)-[^/]+")
_ACK = re.compile(r"acks/(\d+)/chk-(\d+)/[^/]+")
_STAGED = re.compile(r"taskowned/(\d+)/(\d+)/.+")
_CHECKPOINT = re.compile(r"chk-(\d+)(?:\.\d+)?/.+")


class FileScope(Enum):
    """Flink's three scopes of files."""

    SHARED = auto()
    TASKOWNED = auto()
    EXCLUSIVE = auto()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The information in the name of a file. `term` is None for exclusive files: their checkpoint id alone decides."""

    path: str
    scope: FileScope
    term: Term | None
    number: int
    """Checkpoint id; for staged rows the number of the epoch."""


@dataclass(frozen=True, slots=True)
class JobLayout:
    """All names of one job. `job` is the name as the user gave it."""

    job: str
    root: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", encode_segment(self.job))

    @property
    def owner(self) -> str:
        return f"{self.root}/owner"

    @property
    def pins(self) -> str:
        return f"{self.root}/pins"

    @property
    def runs(self) -> str:
        return f"{self.root}/runs"

    def run(self, term: Term) -> str:
        """Return the record of what the run of a term did, for people. Nothing is decided by it."""
        return f"{self.runs}/{term:012d}"

    @property
    def entries(self) -> str:
        return f"{self.root}/entries"

    def log(self, slot: int, folder: int = 0) -> str:
        """Return the name of an entry. `folder` is the first slot of its folder; see `Entry.folder`."""
        if folder == 0:
            return f"{self.root}/log/{slot:012d}"
        return f"{self.entries}/{folder:012d}/{slot:012d}"

    def metadata(self, checkpoint_id: int, term: Term | None = None) -> str:
        """With a term: the name used if a predecessor's attempt that did not complete occupies the plain one."""
        return f"{self.root}/chk-{checkpoint_id}{'' if term is None else f'.{term}'}/_metadata"

    def exclusive(self, checkpoint_id: int, name: str) -> str:
        return f"{self.root}/chk-{checkpoint_id}/{name}"

    def shared(self, term: Term, task: TaskId, attempt: AttemptId, checkpoint_id: int, name: str) -> str:
        """`name` must be unique. The path contains the checkpoint it is uploaded for, which clean-up needs."""
        # The term before the task: `check_end` and sweeps find all terms with one listing that has a delimiter.
        return f"{self.root}/shared/{term}/{task}/{attempt}/chk-{checkpoint_id}-{name}"

    def acks(self, term: Term, checkpoint_id: int) -> str:
        """Return the folder of the acknowledgements that tasks have stored for a checkpoint."""
        return f"{self.all_acks(term)}/chk-{checkpoint_id}"

    def all_acks(self, term: Term) -> str:
        return f"{self.root}/acks/{term}"

    def ack(self, term: Term, checkpoint_id: int, task: TaskId, name: str) -> str:
        """`name` must be unique: several attempts may acknowledge for one task."""
        return f"{self.acks(term, checkpoint_id)}/{task}-{name}"

    def staged(self, epoch: EpochId, sink: Uid, attempt: AttemptId, name: str) -> str:
        return f"{self.root}/taskowned/{epoch.term}/{epoch.number}/{encode_segment(sink)}/{attempt}/{name}"

    def progress(self, epoch: EpochId) -> str:
        """Return the folder of the marks that tasks leave while a long epoch runs. Swept like staged files; no sink's folder
        has this name, because `encode_segment` makes no `@`."""
        return "/".join((self.root, "taskowned", str(epoch.term), str(epoch.number), "@progress"))

    def assignment(self, epoch: EpochId, name: str) -> str:
        """Return where the driver stores long orders to the tasks of an epoch. Clean-up treats them as staged rows of it."""
        return self.staged(epoch, Uid("assignments"), AttemptId(0), name)

    def committed(self, lineage: Lineage, term: Term, checkpoint_id: int) -> str:
        """Return the record that all output of a savepoint is committed."""
        return f"{self.root}/committed/{encode_segment(lineage)}-{term}-{checkpoint_id}"

    @property
    def all_discarded(self) -> str:
        return f"{self.root}/discarded"

    def discarded(self, term: Term) -> str:
        """Return the record of the output that the user discarded in a term. Kept for good: a savepoint may carry it."""
        return f"{self.all_discarded}/{term}"

    def pin(self, pin_id: str) -> str:
        return f"{self.pins}/{encode_segment(pin_id)}"

    def parse(self, path: str) -> StoredFile | None:
        """Parse a name. Return None for names that clean-up never touches: log, entries, owner, pins, runs, and unknown names."""
        if not path.startswith(f"{self.root}/"):
            return None
        rest = path[len(self.root) + 1 :]
        if found := _SHARED.fullmatch(rest):
            return StoredFile(path, FileScope.SHARED, Term(int(found[1])), int(found[3]))
        if found := _ACK.fullmatch(rest):
            return StoredFile(path, FileScope.SHARED, Term(int(found[1])), int(found[2]))
        if found := _STAGED.fullmatch(rest):
            return StoredFile(path, FileScope.TASKOWNED, Term(int(found[1])), int(found[2]))
        if found := _CHECKPOINT.fullmatch(rest):
            return StoredFile(path, FileScope.EXCLUSIVE, None, int(found[1]))
        return None

    def task_in(self, path: str) -> str | None:
        """Return the task whose state file this is. None for all other names."""
        found = _SHARED.fullmatch(path, len(self.root) + 1) if path.startswith(f"{self.root}/") else None
        return None if found is None else found[2]


def committed_record(metadata_path: str) -> str:
    """Return the record that everything a checkpoint carried is committed. It is next to the metadata and deleted with it."""
    return metadata_path.removesuffix("_metadata") + "_committed"


def claimed_record(metadata_path: str) -> str:
    """Return the record of which job has claimed a savepoint."""
    return metadata_path.removesuffix("_metadata") + "_claimed"
