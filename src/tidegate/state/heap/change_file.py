"""The heap backend's files: a *full* file holds all entries, a *delta* file what changed since the file before it.

    "TGHEAP1\\n", then frames (see `frames`):
    first frame   {"kind": "full" | "delta", "origins": [...]}
    others        [[key, value, key, value, ...], [deleted key, ...]]
    last frame    {"end": number of frames between}

A file without its last frame is truncated, and rejected. A delta names the versions whose changes it holds (`origins`,
newest last). Applied to the state of any of them, it yields the state after the last, since it holds the final value of
each key.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from tidegate.state.disk.state_sizes import scaled
from tidegate.state.frames import corrupt, frames_after, read_frame, read_rest, rows_of_a_frame, write_frame
from tidegate.state.keys.entry_keys import state_of
from tidegate.state.version import VersionId

Changes = dict[bytes, bytes | None]
"""The new value of each key; None: deleted."""

_SAMPLED_FRAMES, _SAMPLED_ROWS = 16, 256
"""What `bytes_by_state` looks at: frames of a file, and about so many entries of each."""
_MAGIC = b"TGHEAP1\n"


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
        write_frame(out, {"kind": kind, "origins": [str(origin) for origin in header.origins]})
        while chunk := rows_of_a_frame(rows):
            gone = [key for key, value in chunk if value is None]
            kept = chunk if not gone else [row for row in chunk if row[1] is not None]
            write_frame(out, (list(chain.from_iterable(kept)), gone))
            frames += 1
        write_frame(out, {"end": frames})


def read_header(path: Path) -> Header:
    with path.open("rb") as source:
        return _header(path, source)


def read_into(path: Path, entries: dict[bytes, bytes] | Changes, *, keep_deletes: bool) -> None:
    """Apply the file to `entries`. Deleted keys are removed, or kept as None with `keep_deletes`. Raises `CorruptState`."""
    with path.open("rb") as source:
        _header(path, source)
        for flat, gone in read_rest(path, source):
            pairs = iter(flat)
            # The same iterator twice: keys and values alternate.
            entries.update(zip(pairs, pairs))
            if keep_deletes:
                entries.update(dict.fromkeys(gone))
            else:
                for key in gone:
                    entries.pop(key, None)


def bytes_by_state(path: Path) -> dict[int, int]:
    """Estimate the bytes of a file by state id, from a sample of its frames and of their entries. Their sum is the size of the
    file, or nothing if it has no entries."""
    sizes: Counter[int] = Counter()
    with path.open("rb") as source:
        _header(path, source)
        frames = frames_after(source)[:-1]  # The last one is the end.
        chance = random.Random(len(frames))  # The same file gets the same estimate.
        count = min(_SAMPLED_FRAMES, len(frames))
        for at in range(count):
            # At random, because even distances may hit the same state again and again: operators write one after another.
            source.seek(frames[int((at + chance.random()) * len(frames) / count)])
            flat, gone = read_frame(path, source)
            step = max(1, (len(flat) // 2 + len(gone)) // _SAMPLED_ROWS)
            first = chance.randrange(step)
            for key, value in zip(flat[2 * first :: 2 * step], flat[2 * first + 1 :: 2 * step]):
                sizes[state_of(key)] += step * (len(key) + len(value))
            for key in gone[first::step]:
                sizes[state_of(key)] += step * len(key)
    return scaled(sizes, path.stat().st_size)


def _header(path: Path, source: BinaryIO) -> Header:
    if source.read(len(_MAGIC)) != _MAGIC:
        raise corrupt(path, "it does not begin as a heap state file")
    content = read_frame(path, source)
    try:
        return Header(content["kind"] == "full", tuple(VersionId.parse(origin) for origin in content["origins"]))
    except (TypeError, KeyError, ValueError) as error:
        raise corrupt(path, "its header cannot be read") from error
