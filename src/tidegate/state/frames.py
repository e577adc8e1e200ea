"""Frames: how state files of tidegate's own formats are written. A frame that was cut off or altered is detected.

payload length (4 bytes, big endian) · its CRC-32 (4 bytes) · payload (MessagePack)

The last frame of a file is {"end": number of frames after the header}. A file without it is truncated, and rejected.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from tidegate.core.errors import CorruptState

_LIMIT = (1 << 32) - 1
_FRAME_BYTES = 1 << 20
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


def read_frame(path: Path, source: BinaryIO) -> Any:
    """Read the next frame of the file at `path`. Raises `CorruptState`."""
    return msgspec.msgpack.decode(_read_payload(path, source))


def _read_payload(path: Path, source: BinaryIO) -> bytes:
    head = source.read(8)
    size = int.from_bytes(head[:4], "big")
    payload = source.read(size)
    if len(head) < 8 or len(payload) < size:
        raise corrupt(path, "it ends too early")
    if zlib.crc32(payload) != int.from_bytes(head[4:], "big"):
        raise corrupt(path, "a checksum is wrong")
    return payload


def read_rest(path: Path, source: BinaryIO) -> Iterator[Any]:
    """Yield the frames after the header. Raises `CorruptState` if one of them, or the end, is missing or damaged."""
    frames = 0
    while True:
        content = read_frame(path, source)
        if isinstance(content, dict):
            if content.get("end") != frames or source.read(1):
                raise corrupt(path, "its last frame does not fit")
            return
        yield content
        frames += 1


def copy_rest(path: Path, source: BinaryIO, out: BinaryIO) -> int:
    """Append the frames after the header to another file, except the end, and return their number. Raises `CorruptState` if one
    of them, or the end, is missing or damaged."""
    size, frames = path.stat().st_size, 0
    while True:
        payload = _read_payload(path, source)
        if source.tell() == size:
            if msgspec.msgpack.decode(payload) != {"end": frames}:
                raise corrupt(path, "its last frame does not fit")
            return frames
        _write_payload(out, payload)
        frames += 1


def corrupt(path: Path, why: str) -> CorruptState:
    return CorruptState(
        f"{path} is damaged: {why}. Remove that version and let the job restore the task from its last checkpoint."
    )
