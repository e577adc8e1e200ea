"""Where files go: the port between the file sink and a kind of storage.

The one thing asked of it is `publish`: in one step a staged file becomes visible and is staged no more. So a repeat never
makes a file again that a reader has already taken away, whatever moment the first committer died in.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from tidegate.connectors.files.payload import StagedFile
from tidegate.connectors.sink import Settled


class FilePlace(Protocol):
    at_once: int
    """How many requests it is worth making at the same time."""

    def draft(self, hidden: str) -> Path:
        """A local path to write a file to. `hidden` is used once."""
        ...

    def stage(self, draft: Path, final: str) -> StagedFile:
        """Keep a finished draft durably, unseen. A crash leaves it, or the draft, as leavings."""
        ...

    def discard(self, draft: Path) -> None:
        """Forget a draft of an attempt that failed. Does not raise."""
        ...

    def unstage(self, file: StagedFile) -> None:
        """Forget a staged file of an attempt that failed. Does not raise."""
        ...

    def note(self, name: str, text: str) -> None:
        """Keep a small hidden text durably, in place of the one that was there."""
        ...

    def mark(self, name: str) -> None:
        """Keep an empty note. Durable after the next `settle_marks`."""
        ...

    def settle_marks(self) -> None: ...

    def noted(self, name: str) -> str | None: ...

    def is_staged(self, file: StagedFile) -> bool: ...

    def publish(self, file: StagedFile) -> None:
        """Make a staged file visible, atomically and durably. Nothing happens if it is not staged any more."""
        ...

    def settle(self, files: Collection[StagedFile]) -> None:
        """Make durable what was published."""
        ...

    def sweep(self, settled: Settled, keep: Collection[str]) -> None:
        """Remove hidden files and notes of settled outputs, but for these: names of notes, `hidden` of files."""
        ...
