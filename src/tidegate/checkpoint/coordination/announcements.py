"""Which checkpoint is announced to which epoch: the checkpoint loop announces, the thread that runs epochs takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

from tidegate.checkpoint.coordination.timing import UPLOAD_WAIT_MS
from tidegate.checkpoint.task.version_upload import Materialized
from tidegate.core.ids import TaskId


@dataclass(frozen=True, slots=True)
class Announced:
    """A checkpoint that will probably be taken of the next epoch."""

    id: int
    incremental: bool
    """Whether files of the latest checkpoint may be reused."""
    to_empty: bool = True
    """Whether that holds for an epoch without rows, too, which takes less time."""
    changelog: bool = False
    materialized: Mapping[TaskId, Materialized] = field(default_factory=dict, repr=False)
    """With a changelog: versions that changes may be stored from, instead of from the latest checkpoint."""
    wait_ms: int = UPLOAD_WAIT_MS
    """How long tasks wait for their uploads at the end of the epoch."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What epochs have begun ahead of what the loop has seen. `taken` stays true while the loop decides: see `withdraw`. An epoch
    without an announcement may begin at any moment."""

    taken: int = 0
    """The checkpoint that was announced to an epoch last."""
    runs: bool = False
    """Whether an epoch has begun whose end the loop has not seen."""

    def has_begun_with(self, id: int) -> bool:
        """Whether tasks may have begun to store something under this id."""
        return self.taken >= id


class Announcements:
    """Those of one term. An id is announced to one epoch only."""

    def __init__(self) -> None:
        # Two threads meet here: the one that runs epochs, and the one that decides about checkpoints.
        self._lock = Lock()
        self._next: Announced | None = None
        """The announcement that no epoch has taken yet."""
        self._taken = 0
        """The checkpoint that was announced to an epoch last."""
        self._offered: Mapping[TaskId, Materialized] = {}
        """The versions that its tasks may start from."""
        self._unresolved = 0
        """The same, until the loop has seen the end of that epoch."""
        self._running = False
        self._unseen = 0
        """Epochs that have ended, whose end the loop has not seen."""
        self._decided = True

    # -- called by the thread that runs epochs -----------------------------------------------------------------------

    def begin_epoch(self, empty: bool) -> Announced | None:
        """Begin an epoch, and return the announcement for it. None if an epoch has taken it before: the loop may not have
        seen the end of that one yet."""
        with self._lock:
            # Also if nothing is announced: a periodic checkpoint then waits for the end of this epoch.
            self._running = True
            taken = self._next
            if taken is None or taken.id <= self._taken or (empty and not taken.to_empty):
                return None
            self._next = None
            # From here on tasks may store files under this id, so it is never announced to another epoch.
            self._taken = self._unresolved = taken.id
            self._offered = taken.materialized
            return taken

    def end_epoch(self) -> None:
        with self._lock:
            self._running = False
            # The loop sees this end with a message of its own, later. Until then the epoch counts as begun.
            self._unseen += 1
            self._decided = False

    @property
    def is_decided(self) -> bool:
        """Whether the loop has seen the ends of all epochs, and no checkpoint keeps it from announcing the next one."""
        return self._decided

    @property
    def unresolved(self) -> int:
        """The checkpoint that was announced last, or 0 if the loop knows what became of it."""
        return self._unresolved

    # -- called by the thread of the loop ----------------------------------------------------------------------------

    def offered(self, id: int) -> Mapping[TaskId, Materialized] | None:
        """Return the versions that tasks may start from which have begun to store theirs under this id. None: none has begun."""
        with self._lock:
            # Offers of an earlier id are of no use: what its tasks started from is decided.
            return self._offered if id == self._taken else None

    def announce(self, next: Announced | None, in_progress: bool = False) -> None:
        """Announce a checkpoint of the epoch that begins next, or none; `in_progress`: because another one is."""
        with self._lock:
            self._next = next
            self._decided = self._unseen == 0 and not in_progress

    def withdraw(self) -> Ahead:
        """Take back the announcement that no epoch has taken, and return what epochs have begun. None begins with another one
        until the loop announces again, so ids may be decided on meanwhile. Nothing is decided until then."""
        with self._lock:
            self._next = None
            self._decided = False
            return Ahead(self._taken, self._running or self._unseen > 0)

    def saw_end(self) -> None:
        """The loop sees the end of the oldest epoch that it has not seen."""
        with self._lock:
            self._unseen -= 1

    def resolve(self, id: int | None) -> None:
        """The loop knows what became of an announcement."""
        with self._lock:
            if id == self._unresolved:
                self._unresolved = 0

    def abandon_epoch(self) -> None:
        """The job goes back to a checkpoint: the epoch that was running will not end."""
        with self._lock:
            self._running = False
