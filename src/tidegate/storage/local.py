"""Storage in a directory: on one machine, or on a shared file system with hard links (NFS, CephFS, …)."""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.core.errors import StorageError
from tidegate.core.faults import reach
from tidegate.storage.arbitration import arbitrate
from tidegate.storage.errors import (
    CorruptFile,
    InvalidPath,
    ObjectMissing,
    OutcomeUnknown,
    StorageDenied,
    StorageMisconfigured,
    StorageUnavailable,
)
from tidegate.storage.port import Lost, Nonce, StoredObject, Won, check_nonce, check_path, check_prefix
from tidegate.storage.retry import Patience

_TEMPORARY = ".tmp-"
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_WITHOUT_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_BOTH_FILE_AND_FOLDER = {errno.ENOTDIR, errno.EISDIR}
# Not everybody who may read may also sync: on a read-only mount, or without permission to open the folder.
_SYNC_NOT_POSSIBLE = {errno.EINVAL, errno.EROFS, errno.EACCES, errno.ENOTSUP}


class LocalStorage:
    """Objects are files below `root`. A body is written to a private file and then hard-linked to its name.

    With `confined`, a name that leaves the root through a symbolic link is rejected: nothing outside is read or
    deleted.
    """

    def __init__(self, root: Path, patience: Patience | None = None, confined: bool = False) -> None:
        self._root = Path(os.path.abspath(root))
        self._patience = patience or Patience()
        self._confined = confined

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._root)!r})"

    def put(self, path: str, data: bytes) -> None:
        """Implement `Storage.put`.

        1. Write the body to a private file next to the target and sync it. A crash leaves that file, which is never
           listed.
        2. Link it to its name; if the name is taken, replace the old file atomically. The object is now visible,
           complete.
        3. Remove the private name. After a crash before this step, `sweep` removes it.
        4. Sync the directories. Before that, a power failure may undo the write.
        """
        target = self._target(path)

        def name_it(temporary: Path) -> None:
            try:
                os.link(temporary, target)
            except FileExistsError:
                # Only heartbeats and records of runs come here: all other names are unique.
                os.replace(temporary, target)

        self._patience.persist(lambda: self._write("put", path, data, name_it))

    def create(self, path: str, data: bytes, nonce: Nonce) -> Won | Lost:
        """Implement `Storage.create`: the same steps as `put`, but a taken name stays as it is."""
        check_nonce(self.url, path, data, nonce)
        target = self._target(path)

        def send() -> bool:
            try:
                self._write("create", path, data, lambda temporary: os.link(temporary, target))
            except FileExistsError:
                return False
            return True

        return arbitrate(self.url, path, data, send, lambda: self.get(path), self._patience)

    def get(self, path: str) -> bytes:
        target = self._readable(path)
        with self._translated(path):
            data = target.read_bytes()
            # The writer may have died between link and sync, and the reader will act on what it read.
            try:
                self._sync_folders(target.parent)
            except OSError as error:
                if error.errno not in _SYNC_NOT_POSSIBLE:
                    raise
            return data

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with self._translated(path), self._readable(path).open("rb") as file:
            file.seek(start)
            data = file.read(length)
        if len(data) != length:
            raise CorruptFile(self.url, path, f"{path!r} in {self.url} ends before byte {start + length}.")
        return data

    def size(self, path: str) -> int:
        with self._translated(path):
            status = self._readable(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise ObjectMissing.of(self.url, path)
        return status.st_size

    def list(self, prefix: str = "", after: str | None = None) -> builtins.list[StoredObject]:
        check_prefix(self.url, prefix)
        found = []
        with self._translated(prefix):
            for file in self._files(self._root / prefix):
                path = file.relative_to(self._root).as_posix()
                if file.name.startswith(_TEMPORARY) or (after is not None and path <= after):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    found.append(StoredObject(path, file.stat().st_size))
        return sorted(found)

    def folders(self, prefix: str = "") -> builtins.list[str]:
        check_prefix(self.url, prefix)
        with self._translated(prefix):
            try:
                with os.scandir(self._root / prefix) as entries:
                    return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def delete(self, paths: Iterable[str]) -> None:
        """Remove the files, then folders that became empty. A writer that loses its folder this way recreates it."""
        folders = set()
        for path in paths:
            target = self._target(path)
            folders.add(target.parent)
            with self._translated(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                target.unlink()
        for folder in folders:
            # The root stays, also if it is empty.
            while folder != self._root:
                try:
                    folder.rmdir()
                except OSError:
                    # Not empty, or a writer has just put something there.
                    break
                folder = folder.parent

    def sweep(self, prefix: str = "") -> int:
        check_prefix(self.url, prefix)
        swept = 0
        with self._translated(prefix):
            for file in self._files(self._root / prefix):
                if file.name.startswith(_TEMPORARY):
                    file.unlink(missing_ok=True)
                    swept += 1
        return swept

    def _target(self, path: str) -> Path:
        target = self._root / check_path(self.url, path)
        if self._confined:
            # Only the folder: the target of a write is replaced or unlinked as a name, never followed.
            self._check_inside(path, target.parent)
        return target

    def _readable(self, path: str) -> Path:
        target = self._target(path)
        if self._confined:
            self._check_inside(path, target)
        return target

    def _check_inside(self, path: str, place: Path) -> None:
        real, root = os.path.realpath(place), os.path.realpath(self._root)
        if os.path.commonpath((real, root)) != root:
            raise InvalidPath(
                self.url,
                path,
                f"{path!r} in {self.url} leads out of that directory by a symbolic link. Nothing was touched.",
            )

    def _write(self, operation: str, path: str, data: bytes, name_it: Callable[[Path], None]) -> None:
        """Perform steps 1 to 4 of `put`. FileExistsError propagates, with nothing left behind."""
        folder = self._target(path).parent
        point = f"storage.local.{operation}"
        temporary = folder / f"{_TEMPORARY}{uuid.uuid4().hex}"
        with self._translated(path, writing=True):
            try:
                with self._open_new(temporary) as descriptor:
                    _write_all(descriptor, data)
                    # Before the name: a power failure must not leave a name with half a body.
                    os.fsync(descriptor)
                reach(f"{point}.1-written", path=path)
                self._name(path, temporary, name_it)
                reach(f"{point}.2-named", path=path)
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
            reach(f"{point}.3-private-name-gone", path=path)
        try:
            self._sync_folders(folder)
        except OSError as error:
            # A second sync may succeed although the first one lost the entry, so a retry cannot help.
            raise OutcomeUnknown.of(self.url, path, error) from error
        reach(f"{point}.4-durable", path=path)

    def _name(self, path: str, temporary: Path, name_it: Callable[[Path], None]) -> None:
        try:
            name_it(temporary)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno not in _WITHOUT_LINKS:
                raise
            raise StorageMisconfigured(
                self.url,
                path,
                f"The file system of {self.url} does not support hard links ({error}), so it cannot decide which driver "
                "owns a job. Keep checkpoints on a POSIX file system or in an object store.",
            ) from error

    def _sync_folders(self, folder: Path) -> None:
        """Sync the directory entries from `folder` up to the root. Unchanged folders cost next to nothing."""
        while True:
            # A missing folder was emptied by a delete, after the object had been there.
            with contextlib.suppress(FileNotFoundError):
                _sync(folder)
            if folder == self._root:
                return
            folder = folder.parent

    def _make_folder(self, folder: Path) -> None:
        if not self._root.exists():
            self._root.mkdir(parents=True, exist_ok=True)
            for above in self._root.parents:
                # This user may not be allowed to open folders of other owners; those existed before.
                with contextlib.suppress(OSError):
                    _sync(above)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, "a file exists where a folder is needed", str(folder)) from error

    @contextmanager
    def _open_new(self, file: Path) -> Iterator[int]:
        """Open the new file. Its folder is created if missing, and again if a concurrent delete removes it."""
        # Each failure means that a delete removed the folder between two calls. A hundred in a row means something
        # else.
        for tries_left in reversed(range(100)):
            try:
                self._make_folder(file.parent)
                descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                break
            except FileNotFoundError:
                if not tries_left:
                    raise
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _files(self, folder: Path) -> Iterator[Path]:
        """Yield all files below `folder` in the order found. A folder that vanishes meanwhile yields none."""
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                yield from self._files(Path(entry.path))
            else:
                yield Path(entry.path)

    @contextmanager
    def _translated(self, path: str, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            raise self._translate(path, error, writing) from error

    def _translate(self, path: str, error: OSError, writing: bool) -> StorageError:
        if not writing and error.errno in {errno.ENOENT, *_BOTH_FILE_AND_FOLDER}:
            return ObjectMissing.of(self.url, path)
        if error.errno in _DENIED:
            return StorageDenied(
                self.url, path, f"{error}. Grant this user read and write permission below {self.url}."
            )
        if error.errno in _BOTH_FILE_AND_FOLDER:
            return InvalidPath(
                self.url, path, f"{path!r} would be a file and a folder at once in {self.url}. Choose another name."
            )
        hint = (
            "Free space, or raise the quota."
            if error.errno in {errno.ENOSPC, errno.EDQUOT}
            else "Check the disk or mount."
        )
        return StorageUnavailable(self.url, path, f"{path!r} in {self.url}: {error}. {hint}")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        # `write` may take only a part, for example at a quota.
        view = view[os.write(descriptor, view) :]
