"""Storage in a directory of HDFS."""

from __future__ import annotations

import builtins
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tidegate.core.errors import StorageError
from tidegate.storage.arbitration import arbitrate
from tidegate.storage.errors import CorruptFile, ObjectMissing, OutcomeUnknown, StorageUnavailable
from tidegate.storage.hdfs.address import HdfsAddress
from tidegate.storage.hdfs.client import WebHdfsClient
from tidegate.storage.hdfs.listing import Listing
from tidegate.storage.hdfs.private_file import TEMPORARY, PrivateFile, Renamed
from tidegate.storage.hdfs.refusals import accept, accept_json, is_denied, is_missing
from tidegate.storage.port import Lost, Nonce, StoredObject, Won, check_nonce, check_path, check_prefix
from tidegate.storage.retry import Patience

# WebHDFS deletes one file per request.
_DELETERS = 8


class HdfsStorage:
    """Objects are files below the root of `address`. A body is written to a private file, which is then renamed.

    HDFS shows a file from its first byte on, so a file is never written under its own name. A rename is one entry in the
    NameNode's edit log: it happens as a whole, and fails if the name is taken, unless it is told to replace.
    """

    def __init__(self, address: HdfsAddress, patience: Patience | None = None) -> None:
        self._address = address
        self._patience = patience or Patience()
        self._client = WebHdfsClient(address)
        self._listing = Listing(self._client, self._patience)

    @property
    def url(self) -> str:
        return self._address.url

    def __repr__(self) -> str:
        return f"HdfsStorage({self.url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return HdfsStorage, (self._address, self._patience)

    def put(self, path: str, data: bytes) -> None:
        """Implement `Storage.put`.

        1. Write the body to a private file in the target's folder. DataNodes sync it to disk and close it. A crash leaves
           that file, whole or not, open or closed. It is never listed, and `sweep` deletes it.
        2. Rename it, which replaces an older object in the same step. The object is now visible, complete and durable.

        A rename whose response was lost is repeated with the same private file. If a request is delayed and arrives after
        that, its source is gone: it cannot put an old body in the place of a newer one.
        """
        check_path(self.url, path)
        with self._private_file("put", path) as private:

            def replace() -> None:
                private.write(data)
                # Gone: an earlier try was applied, or a sweep took the file. Either way the body is written again,
                # which a `put` allows.
                if private.rename(replace=True) is not Renamed.DONE:
                    raise StorageUnavailable(
                        self.url, path, f"The private file of {path!r} in {self.url} is gone: it was renamed or swept."
                    )

            self._patience.persist(replace)

    def create(self, path: str, data: bytes, nonce: Nonce) -> Won | Lost:
        """Implement `Storage.create`: the same steps as `put`, but a taken name stays as it is.

        A rename whose response was lost is repeated, too, and fails if it was applied: its source is gone. Then the object
        is read back, and has this writer's body or another's.
        """
        check_nonce(self.url, path, data, nonce)
        check_path(self.url, path)
        with self._private_file("create", path) as private:

            def send() -> bool:
                private.write(data)
                return private.rename(replace=False) is Renamed.DONE

            # Before the first rename nothing is in doubt: a failure to write is a plain error.
            self._patience.persist(lambda: private.write(data))
            return arbitrate(self.url, path, data, send, lambda: self._read(path, set()), self._patience)

    def get(self, path: str) -> bytes:
        check_path(self.url, path)
        avoid: set[str] = set()
        return self._patience.persist(lambda: self._read(path, avoid))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        check_path(self.url, path)
        # There is nothing to fetch, but the object must exist.
        if length == 0:
            self.size(path)
            return b""
        avoid: set[str] = set()

        def read() -> bytes:
            reply = self._client.fetch(self._address.file(path), avoid, offset=str(start), length=str(length))
            # HDFS answers so if the offset is beyond the end. A range that begins within the file is cut off without an
            # error.
            if reply.refusal == "IOException" and "out of the range" in reply.message:
                raise self._too_short(path)
            return accept(self._address, path, reply).body

        data = self._patience.persist(read)
        if len(data) != length:
            raise self._too_short(path)
        return data

    def size(self, path: str) -> int:
        check_path(self.url, path)

        def ask() -> int | None:
            reply = self._client.ask("GET", self._address.file(path), "GETFILESTATUS")
            status = accept_json(self._address, path, reply, "FileStatus")
            # A folder is no object.
            return int(status["length"]) if status["type"] == "FILE" else None

        found = self._patience.persist(ask)
        if found is None:
            raise ObjectMissing.of(self.url, path)
        return found

    def list(self, prefix: str = "", after: str | None = None) -> builtins.list[StoredObject]:
        check_prefix(self.url, prefix)
        found = (StoredObject(path, size) for path, size in self._listing.files(prefix, after) if not _is_private(path))
        return sorted(each for each in found if after is None or each.path > after)

    def folders(self, prefix: str = "") -> builtins.list[str]:
        check_prefix(self.url, prefix)
        names = sorted(self._listing.folders(prefix))
        # A folder that is not there is evidence, too: a NameNode that was replaced must not answer for the one that acts.
        self._sync_edits(f"{prefix}/any")
        return names

    def delete(self, paths: Iterable[str]) -> None:
        """Remove the files, then folders that became empty. A writer that loses its folder this way recreates it."""
        waiting = [check_path(self.url, path) for path in paths]
        self._remove(waiting)

        # The deepest first, so that a folder that becomes empty with its last subfolder goes in the same call.
        for folder in sorted({path.rpartition("/")[0] for path in waiting}, key=len, reverse=True):
            while folder and self._remove_folder(folder):
                folder = folder.rpartition("/")[0]

    def sweep(self, prefix: str = "") -> int:
        """Delete private files. Their writers, if they are alive, write again."""
        check_prefix(self.url, prefix)
        swept = [path for path, _ in self._listing.files(prefix) if _is_private(path)]
        self._remove(swept)
        return len(swept)

    @contextmanager
    def _private_file(self, operation: str, path: str) -> Iterator[PrivateFile]:
        """A private file that is deleted if it does not become the object. After a doubtful rename, that is left to `sweep`."""
        private = PrivateFile(self._client, path, operation)
        try:
            yield private
        except (StorageUnavailable, OutcomeUnknown):
            raise
        except StorageError:
            private.discard()
            raise
        private.discard()

    def _read(self, path: str, avoid: set[str]) -> bytes:
        data = accept(self._address, path, self._client.fetch(self._address.file(path), avoid)).body
        self._sync_edits(path)
        return data

    def _sync_edits(self, path: str) -> None:
        """Return when everything that was visible is durable.

        A NameNode shows a rename before it has synced its edit log, and may die in between; the reader is about to act on
        what it read. So this makes an edit, and the NameNode responds when the log is synced up to it. A user who may not
        write cannot act here, and what a NameNode in safe mode shows comes from its log.
        """
        folder = self._address.file(path.rpartition("/")[0])
        reply = self._client.ask("PUT", folder, "SETTIMES", modificationtime=str(time.time_ns() // 1_000_000))
        # A folder that is missing was emptied after the object had been read.
        if not (is_missing(reply) or is_denied(reply) or reply.refusal == "SafeModeException"):
            accept(self._address, path, reply)

    def _remove(self, paths: builtins.list[str]) -> None:
        # Threads are not worth starting for a few requests.
        if len(paths) < _DELETERS:
            for path in paths:
                self._remove_file(path)
            return
        with ThreadPoolExecutor(_DELETERS) as pool:
            list(pool.map(self._remove_file, paths))

    def _remove_file(self, path: str) -> None:
        def delete() -> None:
            reply = self._client.ask("DELETE", self._address.file(path), "DELETE", recursive="false")
            if not (is_missing(reply) or reply.refusal == "PathIsNotEmptyDirectoryException"):
                accept(self._address, path, reply)

        self._patience.persist(delete)

    def _remove_folder(self, folder: str) -> bool:
        """Try to delete a folder, which HDFS does only if it is empty."""
        try:
            return self._client.ask("DELETE", self._address.file(folder), "DELETE", recursive="false").refusal is None
        except StorageUnavailable:
            return False

    def _too_short(self, path: str) -> CorruptFile:
        return CorruptFile(
            self.url, path, f"{path!r} in {self.url} is shorter than its handle says; restore an older checkpoint."
        )


def _is_private(path: str) -> bool:
    return path.rpartition("/")[2].startswith(TEMPORARY)
