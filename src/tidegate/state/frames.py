"""Frames: how state files of tidegate's own formats are written. A frame that was cut off or altered is detected.

payload length (4 bytes, big endian) · its CRC-32 (4 bytes) · payload (MessagePack)

The last frame of a file is {"end": number of frames after the header}. A file without it is truncated, and rejected.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import msgspec

from tidegate.core.content_check import ContentCheck
from tidegate.core.errors import CorruptState

_LIMIT = (1 << 32) - 1
_FRAME_BYTES = 1 << 20
# 4,096 rows, unless they are large: after each step, the size decides whether more are taken.
_STEPS = (1, 15, 240, 3840)

_Value = TypeVar("_Value", bytes, "bytes | None")


def write_frame(out: BinaryIO, content: Any) -> int:
    """Append a frame, and return the bytes written. Raises OSError if the content does not fit into one."""
    payload = msgspec.msgpack.encode(content)
    if len(payload) > _LIMIT:
        raise OSError(f"one entry of {len(payload)} bytes is more than a state file can hold (4 GB)")
    _write_payload(out, payload)
    return len(payload) + 8


def _write_payload(out: BinaryIO, payload: bytes) -> None:
    out.write(len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big"))
    out.write(payload)


def rows_of_a_frame(rows: Iterator[tuple[bytes, _Value]]) -> list[tuple[bytes, _Value]]:
    """Return the rows of the next frame: a fixed number, or fewer if they are large."""
    chunk: list[tuple[bytes, _Value]] = []
    for step in _STEPS:
        more = list(islice(rows, step))
        chunk += more
        if len(more) < step or sum(len(value) for _, value in chunk if value) >= _FRAME_BYTES:
            break
    return chunk


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class CheckedReader:
    """Reads a file, and computes the checksum of what was read."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self.check = ContentCheck()

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        self.check.update(data)
        return data


def read_frame(path: Path, source: Readable) -> Any:
    """Read the next frame of the file at `path`. Raises `CorruptState`."""
    return _decoded(path, _read_payload(path, source))


def _decoded(path: Path, payload: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(payload)
    except msgspec.DecodeError as error:
        # A frame of zeros has the right checksum: that of no bytes.
        raise corrupt(path, "a frame cannot be read") from error


def _read_payload(path: Path, source: Readable) -> bytes:
    return _payload_after(path, source, source.read(8))


def _payload_after(path: Path, source: Readable, head: bytes) -> bytes:
    size = int.from_bytes(head[:4], "big")
    payload = source.read(size)
    if len(head) < 8 or len(payload) < size:
        raise corrupt(path, "it ends too early")
    if zlib.crc32(payload) != int.from_bytes(head[4:], "big"):
        raise corrupt(path, "a checksum is wrong")
    return payload


def check_rest(path: Path, source: Readable) -> None:
    """Read the frames after the header, and decode none but the last. Raises `CorruptState` as `read_rest` does."""
    frames = 0
    before: bytes | None = None
    # A frame is known to be the last only when the file ends, so each is checked once the next has begun.
    while head := source.read(8):
        if before is not None:
            frames += 1
        before = _payload_after(path, source, head)
    if before is None or _decoded(path, before) != {"end": frames}:
        raise corrupt(path, "its last frame does not fit")


def read_rest(path: Path, source: Readable) -> Iterator[Any]:
    """Yield the frames after the header. Raises `CorruptState` if one of them, or the end, is missing or damaged."""
    frames = 0
    while True:
        content = read_frame(path, source)
        if isinstance(content, dict):
            # Nothing may follow the end.
            if content.get("end") != frames or source.read(1):
                raise corrupt(path, "its last frame does not fit")
            return
        yield content
        frames += 1


def frames_after(source: BinaryIO) -> list[int]:
    """Return where the frames start that follow in a file. Reads their lengths only."""
    starts: list[int] = []
    while len(head := source.read(8)) == 8:
        starts.append(source.tell() - 8)
        source.seek(int.from_bytes(head[:4], "big"), os.SEEK_CUR)
    return starts


def copy_rest(path: Path, source: BinaryIO, out: BinaryIO) -> int:
    """Append the frames after the header to another file, except the end, and return their number. Raises `CorruptState` if one
    of them, or the end, is missing or damaged."""
    size, frames = path.stat().st_size, 0
    while True:
        payload = _read_payload(path, source)
        if source.tell() == size:
            if _decoded(path, payload) != {"end": frames}:
                raise corrupt(path, "its last frame does not fit")
            return frames
        _write_payload(out, payload)
        frames += 1


def corrupt(path: Path, why: str) -> CorruptState:
    return CorruptState(
        f"{path} is damaged: {why}. This copy is discarded; storage has the state of the latest checkpoint."
    )
