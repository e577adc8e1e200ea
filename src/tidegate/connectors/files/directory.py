"""A directory shared by the driver and all executors.

A commit is a rename out of the hidden folder. On one file system that is one step, and it removes the hidden name. A link
followed by a removal would be two steps, and a file that a reader removed in between would reappear.
"""

from __future__ import annotations

import getpass
import os
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tidegate.connectors.files.names import HIDDEN, OutputId
from tidegate.connectors.files.payload import StagedFile
from tidegate.connectors.outcome import CommitRefused
from tidegate.connectors.sink import LeftOutput, Settled
from tidegate.core.faults import reach


class Directory:
    # A rename is too quick for threads to pay.
    at_once = 1
    names_hidden = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hidden = path / HIDDEN

    def check(self) -> None:
        found = next(place for place in (self._path.absolute(), *self._path.absolute().parents) if place.exists())
        if not found.is_dir():
            raise CommitRefused(
                f"Files cannot be stored in {self._path}: {found} is a file. Choose another path for the sink."
            )
        if not os.access(found, os.W_OK | os.X_OK):
            raise CommitRefused(
                f"Files cannot be stored in {self._path}: the user {getpass.getuser()!r} may not write to {found}. Change its "
                "permissions, or choose another path for the sink."
            )

    def draft(self, hidden: str) -> Path:
        self._hidden.mkdir(parents=True, exist_ok=True)
        return self._hidden / hidden

    def stage(self, draft: Path, final: str) -> StagedFile:
        # Sync the file, its name, and the name of its folder: a committable must survive a power failure.
        for path in (draft, self._hidden, self._path):
            _sync(path)
        return StagedFile(final, draft.name)

    def discard(self, draft: Path) -> None:
        with suppress(OSError):
            draft.unlink()

    def unstage(self, file: StagedFile) -> None:
        self.discard(self._hidden / file.hidden)

    def note(self, name: str, text: str) -> None:
        draft = self.draft(f"{name}.{uuid.uuid4().hex}")
        draft.write_text(text)
        # Content before name: a power failure must not leave a name without its text.
        _sync(draft)
        os.rename(draft, self._hidden / name)
        _sync(self._hidden)

    def mark(self, name: str) -> None:
        self.draft(name).touch()

    def sync_marks(self) -> None:
        # An empty file consists of its name only.
        _sync(self._hidden)

    def read_note(self, name: str) -> str | None:
        try:
            return (self._hidden / name).read_text()
        except FileNotFoundError:
            return None

    def is_staged(self, file: StagedFile) -> bool:
        return (self._hidden / file.hidden).exists()

    def is_committed(self, file: StagedFile) -> bool:
        return (self._path / file.final).exists()

    def commit(self, file: StagedFile) -> None:
        final = self._path / file.final
        final.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            os.rename(self._hidden / file.hidden, final)
        reach("files.2-renamed", file=file.final)

    def sync_files(self, files: Collection[StagedFile]) -> None:
        # The hidden folder as well: names that left it must not come back after a power failure.
        folders = {self._path, self._hidden}
        for file in files:
            parent = (self._path / file.final).parent
            while parent != self._path:
                folders.add(parent)
                parent = parent.parent
        for folder in folders:
            # A reader may also remove folders; then nothing is left to make durable.
            with suppress(FileNotFoundError):
                _sync(folder)

    def marks(self) -> Iterable[str]:
        return [path.name for path in self._hidden.glob("part-*.commit")]

    def staged_files(self) -> Iterator[tuple[OutputId, LeftOutput]]:
        for path in sorted(self._hidden.glob("part-*")):
            output = OutputId.in_name(path.name)
            if output is None or path.name == output.marker:
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # committed, or swept, since it was listed
            yield (
                output,
                LeftOutput(
                    kind="hidden file",
                    name=str(path),
                    handle=path.name,
                    epoch=output.epoch,
                    at_ms=status.st_mtime_ns // 1_000_000,
                    size_bytes=status.st_size,
                ),
            )

    def remove(self, left: LeftOutput) -> None:
        (self._hidden / left.handle).unlink(missing_ok=True)

    def unmark(self, name: str) -> None:
        (self._hidden / name).unlink(missing_ok=True)
        _sync(self._hidden)

    def sweep(self, final: Settled, keep: Collection[str]) -> None:
        for path in self._hidden.glob("part-*"):
            output = OutputId.in_name(path.name)
            if output is not None and output.covered_by(final) and path.name not in keep:
                path.unlink(missing_ok=True)
                reach("files.sweep", file=path.name)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
