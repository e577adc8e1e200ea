"""The file to which one writer of HDFS writes before its content gets its name."""

from __future__ import annotations

import contextlib
import enum
import uuid

import msgspec

from tidegate.core.errors import StorageError
from tidegate.core.faults import reach
from tidegate.storage.errors import StorageMisconfigured
from tidegate.storage.hdfs.client import WebHdfsClient
from tidegate.storage.hdfs.refusals import accept, is_missing

TEMPORARY = ".tmp-"


class Renamed(enum.Enum):
    """What became of a rename that the NameNode responded to."""

    DONE = "done"
    TAKEN = "taken"
    """The target exists, and stays as it is."""
    GONE = "gone"
    """The private file does not exist: an earlier rename was applied, or someone swept it."""


class PrivateFile:
    """One body on its way to the name `path`. Used by one thread."""

    def __init__(self, client: WebHdfsClient, path: str, operation: str) -> None:
        self._client = client
        self._path = path
        self._point = f"storage.hdfs.{operation}"
        self._name: str | None = None
        """Its path below the root, while it is complete."""
        self._avoid: set[str] = set()

    def write(self, data: bytes) -> None:
        """Write the body, unless that has been done. When this returns, DataNodes have synced it to disk and closed it.

        Each attempt has a name of its own: a DataNode that stopped responding may still hold the file of an earlier one.
        """
        if self._name is not None:
            return
        address = self._client.address
        folder, slash, _ = self._path.rpartition("/")
        name = f"{folder}{slash}{TEMPORARY}{uuid.uuid4().hex}"
        file = address.file(name)
        # `sync_block`: the DataNode syncs each block to disk when it closes it. Without it, the body would be in page
        # caches when it gets its name.
        flags = {"overwrite": "false", "createflag": "create,sync_block"}
        found = self._client.locate("PUT", file, "CREATE", self._avoid, **flags)
        if found.location is None:
            accept(address, self._path, found, writing=True)
        reach(f"{self._point}.0-located", path=self._path)
        try:
            accept(
                address,
                self._path,
                self._client.follow("PUT", file, found.location or "", self._avoid, data),
                writing=True,
            )
        except StorageError:
            # Best effort: a DataNode that stopped responding may still hold the lease. `sweep` finds the file.
            self._delete(name)
            raise
        self._name = name
        reach(f"{self._point}.1-written", path=self._path)

    def rename(self, *, replace: bool) -> Renamed:
        """Give the body its name. With `renameoptions`, HDFS says why it refuses, and never moves a file into a folder."""
        assert self._name is not None
        address = self._client.address
        target = {"destination": address.file(self._path), "renameoptions": "OVERWRITE" if replace else "NONE"}
        reply = self._client.ask("PUT", address.file(self._name), "RENAME", **target)
        # With `NONE` only; `OVERWRITE` replaces a file.
        if reply.refusal == "FileAlreadyExistsException":
            return Renamed.TAKEN
        if is_missing(reply):
            self._name = None
            return Renamed.GONE
        if _ignored_options(accept(address, self._path, reply, writing=True).body):
            raise StorageMisconfigured(
                address.url,
                self._path,
                f"The server of {address.url} ignores renameoptions, as HttpFS does, and cannot decide who created a file. "
                "Use the web addresses of the NameNodes (hdfs.web-address).",
            )
        self._name = None
        reach(f"{self._point}.2-named", path=self._path)
        return Renamed.DONE

    def discard(self) -> None:
        """Delete it if it has not become the object. If the store does not respond, `sweep` deletes it later."""
        if self._name is not None:
            self._delete(self._name)

    def _delete(self, name: str) -> None:
        with contextlib.suppress(StorageError):
            self._client.ask("DELETE", self._client.address.file(name), "DELETE", recursive="false")


def _ignored_options(body: bytes) -> bool:
    """Whether a rename without options was carried out: it says whether it did anything; one with options says nothing."""
    with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
        return "boolean" in msgspec.json.decode(body, type=dict[str, bool])
    return False
