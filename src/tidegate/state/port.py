"""The port every state backend implements: ordered bytes to bytes, built into versions.

Life of an attempt:

1. `backend.begin(directory, base, target, key_groups)` returns a store over version `base` (None: empty). It need not
   read anything yet.
2. Reads see the base and the attempt's own writes, in byte order of keys.
3. `seal()` names version `target` atomically, complete with its manifest; or `abandon()` leaves nothing of it.

A crash at any moment leaves `base` unchanged and at most an unnamed private directory, which `tidy` removes. Two
attempts may build on the same base concurrently, in one process or in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from tidegate.core.errors import StateError
from tidegate.core.ids import Term
from tidegate.state.version import Manifest, VersionId


class VersionMissing(StateError):
    """The requested version is not on this machine. Not a fault: the driver responds to a miss by moving the task or
    rewinding."""

    code = "VERSION_MISSING"

    def __init__(self, directory: Path, version: VersionId) -> None:
        self.directory = directory
        self.version = version
        super().__init__(f"Version {version} is not in {directory}.")


class EntryTooLarge(ValueError):
    """An entry that the store cannot hold. Whoever knows the state and the key says so in the error of the function."""

    def __init__(self, key: bytes, size_bytes: int, limit_bytes: int) -> None:
        self.key = key
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(f"an entry of {size_bytes} bytes, and the limit of a key or a value is {limit_bytes}")


class StateStore(Protocol):
    """The state of one task while one attempt builds its next version. Used by one thread."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values in the order of `keys`. Sorted keys are read faster."""
        ...

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield entries with start <= key < end in byte order, or in descending order with `reverse`.

        Entries are read lazily, with little read-ahead. Writes during a scan are allowed and not seen by it.
        """
        ...

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Apply puts, then deletes. Not visible outside this attempt before `seal`. Raises `EntryTooLarge` if the store cannot
        hold an entry; then the attempt must be abandoned."""
        ...

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Like `write`, for very many entries: faster as long as they come in byte order."""
        ...

    def delete_range(self, start: bytes, end: bytes) -> None: ...

    def seal(self, elements: Mapping[int, int] | None = None) -> Manifest:
        """Seal the version under its name and close the store. The version never changes again.

        `elements` are the lengths of operator state lists, by state id, for the manifest; None: as in the base.
        """
        ...

    def abandon(self) -> None:
        """Close and discard the attempt. Can be called in any state, more than once."""
        ...


@runtime_checkable
class MeasuredStore(Protocol):
    """A store that can tell about itself. Optional: a backend without it works as well."""

    def metrics(self) -> Mapping[str, float]:
        """Return what the backend was configured to tell, by name. Called after the last write, before `seal`."""
        ...


@runtime_checkable
class MemoryUsingStore(Protocol):
    """A store that can tell how much memory it uses. Optional as well."""

    def memory(self) -> Mapping[str, float]:
        """Return figures of the memory that the stores of this process share, under the names of metrics. Called as `metrics`."""
        ...


@runtime_checkable
class TimerPlacingStore(Protocol):
    """A store that says where timers are. Optional: without it, they are read from the store."""

    @property
    def timers_on_heap(self) -> bool:
        """Whether all timers of the task stay in memory."""
        ...


@runtime_checkable
class BudgetedBackend(Protocol):
    """A backend with a memory budget. Optional: without it, the number of cached entries of an operator is limited."""

    @property
    def write_cache_bytes(self) -> int | None:
        """How much memory the values that an attempt has read or changed may take. None: no budget."""
        ...


@runtime_checkable
class DividingBackend(Protocol):
    """A backend whose files tell how they are divided among states. Optional: without it, sizes per state are unknown."""

    def bytes_by_state(self, file: Path) -> Mapping[int, int]:
        """Estimate the bytes of a file of a version by state id. Empty if the file does not tell, or is not there any more; never
        raises for a damaged file, as readers of the state find that. Takes milliseconds, however large the file is."""
        ...


class StateBackend(Protocol):
    """Opens versions below a task's directory. Holds only configuration, so a crash loses nothing."""

    @property
    def name(self) -> str: ...

    @property
    def cuts_cheaply(self) -> bool:
        """Whether `delete_range` creates a version that is a part of another faster than writing its entries."""
        ...

    def begin(
        self, directory: Path, base: VersionId | None, target: VersionId, key_groups: tuple[int, int]
    ) -> StateStore:
        """Start an attempt. Raises `VersionMissing` if `base` is not below `directory`, `CorruptState` if it is damaged."""
        ...

    def manifest(self, directory: Path, version: VersionId) -> Manifest:
        """Return the manifest of `version`. Raises `VersionMissing`, or `CorruptState` if a file is missing or truncated."""
        ...

    def tidy(self, directory: Path, term: Term, keep: Iterable[VersionId], *, ended: bool = False) -> None:
        """Remove versions of `term` that are not in `keep`, and the remains of dead attempts.

        Running attempts are left alone, and so are versions newer than all in `keep`: the author of the list did not
        know them yet. If the term has `ended`, or `keep` is empty, those are removed, too. Can be repeated.
        """
        ...
