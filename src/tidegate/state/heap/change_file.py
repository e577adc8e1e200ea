"""The heap backend's files: a *full* file holds all entries, a *delta* file what changed since the file before it.

    "TGHEAP1\\n", then frames: payload length (4 bytes, big endian) · its CRC-32 (4 bytes) · payload (MessagePack)
    first frame   {"kind": "full" | "delta", "origins": [...]}
    others        [[key, value, key, value, ...], [deleted key, ...]]
    last frame    {"end": number of frames between}

A file without its last frame is truncated, and rejected. A delta names the versions whose changes it holds (`origins`,
newest last). Applied to the state of any of them, it yields the state after the last, since it holds the final value of
each key.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tidegate.core.errors import CorruptState
from tidegate.state.version import VersionId

Changes = dict[bytes, bytes | None]
"""The new value of each key; None: deleted."""

_MAGIC = b"TGHEAP1\n"
_FRAME_BYTES = 1 << 20
_STEPS = (1, 15, 240, 3840)
_LIMIT = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Header:
    """The kind of a file, readable without its entries."""

    full: bool
    origins: tuple[VersionId, ...]


def write(path: Path, header: Header, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Write a new file. If the disk fails, raises OSError and leaves a file without a last frame."""
    frames = 0
    rows = iter(entries)
    kind = "full" if header.full else "delta"
    with path.open("xb") as out:
        out.write(_MAGIC)
        _write_frame(out, {"kind": kind, "origins": [str(origin) for origin in header.origins]})
        while chunk := _next_rows(rows):
            gone = [key for key, value in chunk if value is None]
            kept = chunk if not gone else [row for row in chunk if row[1] is not None]
            _write_frame(out, (list(chain.from_iterable(kept)), gone))
            frames += 1
        _write_frame(out, {"end": frames})


def _next_rows(rows: Iterator[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
    """Return the rows of one frame: a fixed number, or fewer if they are large."""
    chunk: list[tuple[bytes, bytes | None]] = []
    for step in _STEPS:
        more = list(islice(rows, step))
        chunk += more
        if len(more) < step or sum(len(value) for _, value in chunk if value) >= _FRAME_BYTES:
            break
    return chunk


def _write_frame(out: BinaryIO, content: Any) -> None:
    payload = msgspec.msgpack.encode(content)
    if len(payload) > _LIMIT:
        raise OSError(f"one entry of {len(payload)} bytes is more than a heap file can hold (4 GB)")
    out.write(len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big"))
    out.write(payload)


def read_header(path: Path) -> Header:
    with path.open("rb") as source:
        return _header(path, source)


def read_into(path: Path, entries: dict[bytes, bytes] | Changes, *, keep_deletes: bool) -> None:
    """Apply the file to `entries`. Deleted keys are removed, or kept as None with `keep_deletes`. Raises `CorruptState`."""
    with path.open("rb") as source:
        _header(path, source)
        frames = 0
        while True:
            content = _read_frame(path, source)
            if isinstance(content, dict):
                if content.get("end") != frames or source.read(1):
                    raise _corrupt(path, "its last frame does not fit")
                return
            flat, gone = content
            pairs = iter(flat)
            entries.update(zip(pairs, pairs))
            if keep_deletes:
                entries.update(dict.fromkeys(gone))
            else:
                for key in gone:
                    entries.pop(key, None)
            frames += 1


def _header(path: Path, source: BinaryIO) -> Header:
    if source.read(len(_MAGIC)) != _MAGIC:
        raise _corrupt(path, "it does not begin as a heap state file")
    content = _read_frame(path, source)
    try:
        return Header(content["kind"] == "full", tuple(VersionId.parse(origin) for origin in content["origins"]))
    except (TypeError, KeyError, ValueError) as error:
        raise _corrupt(path, "its header cannot be read") from error


def _read_frame(path: Path, source: BinaryIO) -> Any:
    head = source.read(8)
    size = int.from_bytes(head[:4], "big")
    payload = source.read(size)
    if len(head) < 8 or len(payload) < size:
        raise _corrupt(path, "it ends too early")
    if zlib.crc32(payload) != int.from_bytes(head[4:], "big"):
        raise _corrupt(path, "a checksum is wrong")
    return msgspec.msgpack.decode(payload)


def _corrupt(path: Path, why: str) -> CorruptState:
    return CorruptState(
        f"{path} is damaged: {why}. Remove that version and let the job restore the task from its last checkpoint."
    )
