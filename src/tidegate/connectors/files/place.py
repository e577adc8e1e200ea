"""The port between the file sink and a kind of storage.

Its one essential operation is `commit`: in one step, a staged file becomes visible and is no longer staged. A repeated
commit therefore never recreates a file that a reader has already removed, whenever the first committer died.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Protocol

from tidegate.connectors.files.names import OutputId
from tidegate.connectors.files.payload import StagedFile
from tidegate.connectors.sink import LeftOutput, Settled


class FilePlace(Protocol):
    at_once: int
    """The number of concurrent requests that is useful."""
    names_hidden: bool
    """Whether `hidden` of a staged file is a name that its writer chose. Otherwise the storage chose it, for that file."""

    def check(self) -> None:
        """Check that files can be stored here, and change nothing. Raises `CommitRefused` for what cannot pass by itself."""
        ...

    def draft(self, hidden: str) -> Path:
        """Return a local path to write a file to. `hidden` is used once."""
        ...

    def stage(self, draft: Path, final: str) -> StagedFile:
        """Store a finished draft durably, invisible to readers. A crash leaves it, or the draft, as an orphan."""
        ...

    def discard(self, draft: Path) -> None:
        """Delete a draft of a failed attempt. Does not raise."""
        ...

    def unstage(self, file: StagedFile) -> None:
        """Delete a staged file of a failed attempt. Does not raise."""
        ...

    def note(self, name: str, text: str) -> None:
        """Store a small hidden text durably, replacing any earlier one of that name."""
        ...

    def mark(self, name: str) -> None:
        """Store an empty note. Durable after the next `sync_marks`."""
        ...

    def sync_marks(self) -> None:
        """Make marks durable, before the first of their files becomes visible."""
        ...

    def read_note(self, name: str) -> str | None:
        """Return the text of a note or a mark. None: there is none."""
        ...

    def is_staged(self, file: StagedFile) -> bool: ...

    def is_committed(self, file: StagedFile) -> bool:
        """Whether readers find the file. False also if a reader has removed it."""
        ...

    def commit(self, file: StagedFile) -> None:
        """Make a staged file visible, atomically and durably. Does nothing if it is no longer staged."""
        ...

    def sync_files(self, files: Collection[StagedFile]) -> None:
        """Make committed files durable."""
        ...

    def marks(self) -> Iterable[str]:
        """Return the names of all marks."""
        ...

    def staged_files(self) -> Iterable[tuple[OutputId, LeftOutput]]:
        """Return all staged files, of any lineage and sink, and the output that each belongs to."""
        ...

    def remove(self, left: LeftOutput) -> None:
        """Remove a staged file, if it is still there."""
        ...

    def unmark(self, name: str) -> None:
        """Remove a mark durably, if it is there."""
        ...

    def sweep(self, final: Settled, keep: Collection[str]) -> None:
        """Remove hidden files and notes of settled outputs, except those in `keep`: names of notes, `hidden` of files."""
        ...
