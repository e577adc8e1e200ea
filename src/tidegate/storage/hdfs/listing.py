"""Listings of folders in HDFS, a page at a time."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from tidegate.storage.hdfs.client import WebHdfsClient
from tidegate.storage.hdfs.refusals import accept_json, is_missing
from tidegate.storage.retry import Patience


class Listing:
    """Reads folders below the root. A folder that vanishes meanwhile has no entries."""

    def __init__(self, client: WebHdfsClient, patience: Patience) -> None:
        self._client = client
        self._patience = patience

    def files(self, folder: str, after: str | None = None) -> Iterator[tuple[str, int]]:
        """Yield the paths and sizes of all files at any depth; those up to `after` may be left out."""
        for entry in self._entries(folder, start_of_listing(folder, after)):
            path = f"{folder}/{entry['pathSuffix']}" if folder else str(entry["pathSuffix"])
            if entry["type"] == "DIRECTORY":
                yield from self.files(path, after)
            else:
                yield path, int(entry["length"])

    def folders(self, folder: str) -> Iterator[str]:
        """Yield the names of the folders directly below."""
        return (str(each["pathSuffix"]) for each in self._entries(folder, "") if each["type"] == "DIRECTORY")

    def _entries(self, folder: str, after: str) -> Iterator[dict[str, Any]]:
        """Yield the entries whose names come after `after`. A file has itself as its entry, without a name."""
        while True:
            page = self._patience.persist(functools.partial(self._page, folder, after))
            listed = page["partialListing"]["FileStatuses"]["FileStatus"]
            found = [each for each in listed if each["pathSuffix"] > after]
            yield from found
            if not found or not page["remainingEntries"]:
                return
            after = found[-1]["pathSuffix"]

    def _page(self, folder: str, after: str) -> Any:
        address = self._client.address
        # Versions of Hadoop differ in how they spell this parameter.
        start = {"startafter": after, "startAfter": after} if after else {}
        reply = self._client.ask("GET", address.file(folder), "LISTSTATUS_BATCH", **start)
        if is_missing(reply):
            return {"partialListing": {"FileStatuses": {"FileStatus": []}}, "remainingEntries": 0}
        return accept_json(address, folder, reply, "DirectoryListing")


def start_of_listing(folder: str, after: str | None) -> str:
    """Return a name before all entries of `folder` that come after `after` or have files after it.

    A folder of that very name has files after it. So has `log` if the name is `log-1`, since `log/x` comes after that:
    wherever a character of the name comes before the slash, what precedes it may be such a folder.
    """
    if after is None or after.rpartition("/")[0] != folder:
        return ""
    name = after.rpartition("/")[2]
    end = next((index for index, letter in enumerate(name) if letter < "/"), len(name))
    return name[: max(end - 1, 0)]
