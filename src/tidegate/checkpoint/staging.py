"""Sink rows staged in the job's storage until their checkpoint completes.

A token is `staged <path> <size> <checksum>`, or, for a job without storage, `inline <base64>`. It is part of the sink's
committable; `paths` tells clean-up which objects it needs.
"""

from __future__ import annotations

import base64

from tidegate.checkpoint.layout import JobLayout
from tidegate.core.errors import StateError
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, EpochId, Uid
from tidegate.storage import FileHandle, Storage, fetch, store, unique_name


class JobStaging:
    """The `Staging` of one sink's writer in one attempt. `paths` are the objects it stored.

    1. `put` stores the bytes under a name of this epoch, sink and attempt. A crash, or a discarded attempt, leaves an
       unreferenced object; the sweep removes it once a later checkpoint of the term is complete.
    """

    def __init__(
        self, storage: Storage | None, layout: JobLayout, epoch: EpochId, sink: Uid, attempt: AttemptId
    ) -> None:
        self._storage, self._layout, self._epoch, self._sink, self._attempt = storage, layout, epoch, sink, attempt
        self.paths: list[str] = []
        self.size_bytes = 0

    def put(self, data: bytes) -> str:
        self.size_bytes += len(data)
        if self._storage is None:
            return f"inline {base64.b64encode(data).decode()}"
        path = self._layout.staged(self._epoch, self._sink, self._attempt, unique_name())
        handle = store(self._storage, path, data)
        self.paths += handle.objects()
        reach("stage.1-stored", path=path)
        return f"staged {path} {len(data)} {handle.checksum}"


def read_staged(storage: Storage | None, token: str) -> bytes:
    """Return what `put` stored. Raises `ObjectMissing` or `CorruptFile`."""
    kind, _, rest = token.partition(" ")
    if kind == "inline":
        return base64.b64decode(rest)
    if storage is None:
        raise StateError(
            "Rows are staged in checkpoint storage, but the job was started without it. Start it with checkpoint=…."
        )
    path, size, checksum = rest.split(" ")
    return fetch(storage, FileHandle(path, int(size), checksum))
