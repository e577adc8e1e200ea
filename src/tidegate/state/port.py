"""The port every state backend implements: ordered bytes to bytes, built into versions.

Life of an attempt:

1. `backend.begin(directory, base, target, key_groups)` gives a store over version `base` (None: empty). It may
   read nothing yet.
2. Reads see the base and the attempt's own writes, in byte order of keys.
3. `seal()` makes version `target` appear in one step, complete, with its manifest; or `abandon()` leaves nothing of it.

A crash at any moment leaves `base` as it was and at most an unnamed private directory, which `tidy` removes.
Two attempts may build from one base at the same time, in one process or in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tidegate.core.errors import StateError
from tidegate.core.ids import Term
from tidegate.state.version import Manifest, VersionId


class VersionMissing(StateError):
    """The asked version is not on this machine. Not a fault: the driver answers a miss by moving or rewinding."""

    code = "VERSION_MISSING"

    def __init__(self, directory: Path, version: VersionId) -> None:
        self.directory = directory
        self.version = version
        super().__init__(f"Version {version} is not in {directory}.")


class StateStore(Protocol):
    """The state of one task while one attempt builds its next version. Used by one thread."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of `keys`. Sorted keys are read faster."""
        ...

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Entries with start <= key < end in byte order, or with `reverse` from the last to the first.

        Read as far as asked for and little further. Writing while a scan is open is allowed and not seen by it.
        """
        ...

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Apply puts, then deletes. Not visible outside this attempt before `seal`."""
        ...

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """As `write` does, for very many entries: quicker as long as they come in byte order."""
        ...

    def delete_range(self, start: bytes, end: bytes) -> None: ...

    def seal(self, elements: Mapping[int, int] | None = None) -> Manifest:
        """Give the version its name. After it the store is closed; nothing of the version ever changes again.

        `elements` are the lengths of the lists of operator state, by state id, for the manifest; None: as in the base.
        """
        ...

    def abandon(self) -> None:
        """Close and forget. May be called in any state, more than once."""
        ...


class StateBackend(Protocol):
    """Opens versions below a task's directory. Holds configuration and nothing else that a crash could lose."""

    @property
    def name(self) -> str: ...

    @property
    def cuts_cheaply(self) -> bool:
        """Whether a version that is a part of another is made quicker by `delete_range` than by writing its entries."""
        ...

    def begin(
        self, directory: Path, base: VersionId | None, target: VersionId, key_groups: tuple[int, int]
    ) -> StateStore:
        """Raises `VersionMissing` when `base` is not below `directory`, `CorruptState` when it is there but damaged."""
        ...

    def manifest(self, directory: Path, version: VersionId) -> Manifest:
        """What `version` consists of. Raises `VersionMissing`, or `CorruptState` when a file is missing or short."""
        ...

    def tidy(self, directory: Path, term: Term, keep: Iterable[VersionId], *, ended: bool = False) -> None:
        """Remove versions of `term` that `keep` does not name, and what dead attempts left.

        Attempts under way are left alone, and so are versions newer than all in `keep`: the author of the list had not
        heard of them. When the term has `ended`, or with an empty `keep`, those go too. May be repeated.
        """
        ...
