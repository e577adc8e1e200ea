"""Sink rows that wait until their checkpoint completes: in the job's storage or, if they are few, in the committable itself.

A token is `staged <path> <size> <checksum>` or `inline <base64>`. It is part of the sink's committable, which travels in the
acknowledgement of the task and is carried by `_metadata` until it is committed. Without storage, every token is inline.

How much may be inline is bounded twice, since the driver holds all committables: by `InlineLimits` for each task and epoch, and
for everything that waits. See decision 0031.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.checkpoint.layout import JobLayout
from tidegate.connectors.outcome import CommitRefused
from tidegate.connectors.sink import Committable, untrusted
from tidegate.core.errors import CorruptState, StateError
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, EpochId, Uid
from tidegate.storage import FileHandle, Storage, encode_segment, fetch, store, unique_name

_STAGED_TOKEN = re.compile(r"staged ([^ ]+) [0-9]{1,15} [a-z0-9]{1,20}:[0-9a-f]{1,128}")

_INLINE = "inline"


@dataclass(frozen=True, slots=True)
class InlineLimits:
    """How many bytes of rows may wait in committables instead of objects. Bytes are those of the tokens."""

    task_bytes: int
    """For one task in one epoch, all its sinks together. 0: none."""
    waiting_bytes: int
    """For everything that waits: the driver holds it, and every checkpoint carries it."""

    def share(self, waiting_bytes: int, tasks: int) -> int:
        """Return how many bytes each of `tasks` may add in the next epoch, if committables of `waiting_bytes` wait.

        One epoch runs at a time, so all shares together never exceed the limit, however many of them are used.
        """
        room = max(0, self.waiting_bytes - waiting_bytes)
        return min(self.task_bytes, room // max(1, tasks))


class InlineRoom:
    """The bytes that the sinks of one attempt may still put into their committables."""

    def __init__(self, size_bytes: int = 0) -> None:
        self._left_bytes = size_bytes

    def take(self, size_bytes: int) -> bool:
        """Use some of it. Return False, and use nothing, if there is not enough."""
        if size_bytes > self._left_bytes:
            return False
        self._left_bytes -= size_bytes
        return True


class JobStaging:
    """The `Staging` of one sink's writer in one attempt. `paths` are the objects it stored.

    1. `put` returns the bytes themselves if they fit into `room`. Nothing is durable until the checkpoint that carries the
       committable is complete; a crash, or a discarded attempt, leaves nothing.
    2. Otherwise `put` stores the bytes under a name of this epoch, sink and attempt. A crash, or a discarded attempt, leaves an
       unreferenced object; the sweep removes it once a later checkpoint of the term is complete.
    """

    def __init__(
        self,
        storage: Storage | None,
        layout: JobLayout,
        epoch: EpochId,
        sink: Uid,
        attempt: AttemptId,
        room: InlineRoom | None = None,
    ) -> None:
        self._storage = storage
        self._layout = layout
        self._epoch = epoch
        self._sink = sink
        self._attempt = attempt
        self._room = InlineRoom() if room is None else room
        self.paths: list[str] = []
        self.size_bytes = 0

    def put(self, data: bytes) -> str:
        self.size_bytes += len(data)
        # A job without checkpoints has nowhere else to keep rows until its epoch has ended.
        if self._storage is None or self._room.take(_inline_size(len(data))):
            reach("stage.1-inline", sink=self._sink)
            return f"{_INLINE} {base64.b64encode(data).decode()}"
        # Two attempts of a task may stage at the same time: neither the attempt nor the name is ever shared.
        path = self._layout.staged(self._epoch, self._sink, self._attempt, unique_name())
        handle = store(self._storage, path, data)
        self.paths += handle.objects()
        reach("stage.1-stored", path=path)
        return f"staged {path} {len(data)} {handle.checksum}"


def _inline_size(size_bytes: int) -> int:
    """Return the length of the token of so many bytes."""
    return len(_INLINE) + 1 + -(-size_bytes // 3) * 4


@dataclass(frozen=True, slots=True)
class StagedReader:
    """Reads what the writers of one sink staged, for its committer.

    Tokens come from a snapshot, which somebody else may have written. A token that names anything outside the folder
    of this job and sink is refused: it would read any file that the driver or a worker can read, or call any host.
    """

    storage: Storage | None = field(repr=False)
    layout: JobLayout
    sink: Uid

    def read(self, token: str) -> bytes:
        """Return what `put` stored. Raises `ObjectMissing`, `CorruptFile`, or `CommitRefused` for anything else."""
        path = _path_in(token)
        if path is not None and self._epoch_in(path) is None:
            raise CommitRefused(
                f"The committer of sink {self.sink!r} asks for {path[:200]!r}, which no writer of this sink staged. "
                "Somebody else wrote or changed the snapshot that names it."
            )
        return read_staged(self.storage, token)

    def check(self, request: Committable, tokens: Sequence[str]) -> None:
        """Raise `UntrustedOutput` unless all tokens name rows of the sink and the epoch of the request."""
        expected = request.sink, f"{request.epoch.term}/{request.epoch.number}"
        for token in tokens:
            path = _path_in(token)
            if path is not None and (self.sink, self._epoch_in(path)) != expected:
                raise untrusted(request, f"names the rows {path[:200]!r}")

    def _epoch_in(self, path: str) -> str | None:
        """Return the epoch whose rows a name in the folder of the sink holds; None for any other name."""
        root, *rest = path.split("/")
        match rest:
            case ["taskowned", term, number, sink, attempt, name] if (
                root == self.layout.root
                and sink == encode_segment(self.sink)
                # `isdigit` alone accepts digits of other scripts, which no writer of ours uses.
                and all(each.isascii() and each.isdigit() for each in (term, number, attempt))
                and name not in ("", ".", "..")
            ):
                return f"{term}/{number}"
        return None


def _path_in(token: str) -> str | None:
    """Return the object that a token names, or None if the token holds the rows itself."""
    if token.startswith(f"{_INLINE} "):
        return None
    found = _STAGED_TOKEN.fullmatch(token)
    # Any other text is taken as a name, which `_epoch_in` does not know: nothing is read by it.
    return token if found is None else found[1]


def read_staged(storage: Storage | None, token: str) -> bytes:
    """Return what `put` was given. Raises `ObjectMissing`, `CorruptFile` or `CorruptState`."""
    kind, _, rest = token.partition(" ")
    if kind == _INLINE:
        try:
            return base64.b64decode(rest, validate=True)
        except (binascii.Error, ValueError) as error:
            raise CorruptState(f"Rows in a committable are damaged: {error}") from error
    if storage is None:
        raise StateError(
            "Rows are staged in checkpoint storage, but the job was started without it. Start it with checkpoint=…."
        )
    path, size, checksum = rest.split(" ")
    return fetch(storage, FileHandle(path, int(size), checksum))
