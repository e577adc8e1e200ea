"""Tells how the bytes of a table file of RocksDB are divided among states, without reading its entries.

The binding has neither the size of a range of keys nor a reader of tables, so this reads the file itself, in RocksDB's
block-based format. `database` writes format version 6 and nothing else.

    data blocks · … · index · … · properties · metaindex · footer (53)
    block = entries · restarts (4 each, little endian) · their number (4); after it the compression (1), a checksum (4)
    entry = shared bytes of the key · further bytes · bytes of the value (varints) · key · value
    index = an entry for each data block, without the size of its value: a key between the block and the next one
            → its place (varints: offset, size)

Most blocks lie within one key group of one state, and the index says so. Of the others, a sample is read and stands for all of
them. What belongs to no state, such as the index itself, is divided in the same shares.
"""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from tidegate.state.disk.state_sizes import scaled
from tidegate.state.keys.entry_keys import state_of

SAMPLE = 16
"""Blocks with several states that are read. A block of 4 KB takes some 50 µs."""

_FOOTER = struct.Struct("<B4s4s4sI24xIQ")
_EXTENDED, _FORMAT_VERSION, _MAGIC = b"\x3e\x00\x7a\x00", 6, 0x88E241B785F4CFF7
# Compression (1) and checksum (4), after each block.
_TRAILER_BYTES = 5
_PARTITIONED = b"\x02\x00\x00\x00"
_CODECS = {1: "snappy", 4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}
"""Names of Arrow by numbers of RocksDB."""
_SIZED = (4, 5, 7)
"""Compressions that have the size of the block before it. Snappy's format contains the size anyway."""
_HEAD_BYTES = 4
"""Key group and state id, which start every key."""


class UnknownTable(Exception):
    """The file is not as RocksDB of this release writes it. Nobody needs the sizes so much that anything fails for it."""


class _Place(NamedTuple):
    offset: int
    size: int

    @property
    def end(self) -> int:
        """Where the next block starts."""
        return self.offset + self.size + _TRAILER_BYTES


def bytes_by_state(path: Path) -> dict[int, int]:
    """Estimate the bytes of a table by state id. Their sum is the size of the file, or nothing if the table has no entries.

    Raises `UnknownTable`, or OSError if the file cannot be read.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as table:
            shares: Counter[int] = Counter()
            mixed: list[_Place] = []
            for index in _indexes(table, size):
                index.divide(shares, mixed)
            _add_mixed(table, mixed, shares)
        # Sizes are differences of places.
        if min(shares.values(), default=0) < 0:
            raise ValueError("its blocks are not in order")
    except (IndexError, KeyError, ValueError, struct.error, OverflowError, MemoryError, pa.ArrowException) as error:
        # In a damaged table, a place or a size can be any number of 64 bits.
        raise UnknownTable(f"{path}: {error!r}") from error
    return scaled(shares, size)


class _Index:
    """One index block. It has a restart for every entry, so that each can be read by itself."""

    def __init__(self, block: bytes, suffix: int) -> None:
        """`suffix` is the length of what RocksDB has added to the keys."""
        (count,) = struct.unpack("<I", block[-4:])
        self._count = count
        start = len(block) - 4 - 4 * self._count
        self._restarts = struct.unpack(f"<{self._count}I", block[start:-4])
        self._block = block
        self._suffix = suffix

    def places(self) -> Iterator[_Place]:
        return map(self._place, range(self._count))

    def divide(self, shares: Counter[int], mixed: list[_Place]) -> None:
        """Add the sizes of blocks that lie within one key group of one state to `shares`, and the others to `mixed`.

        Reads an entry for each block with several states, and a few for each run of other blocks.
        """
        at, before = 0, b""
        while at < self._count:
            head = self._head(at)
            if head == before and len(head) == _HEAD_BYTES:
                until = self._end_of_run(at, head)
                shares[state_of(head)] += self._place(until - 1).end - self._place(at).offset
                at = until
            else:
                mixed.append(self._place(at))
                before = head
                at += 1

    def _end_of_run(self, at: int, head: bytes) -> int:
        """The first place after `at` with a greater head: short runs are the most frequent, so steps start small and double."""
        step = 1
        while at + step < self._count and self._head(at + step) == head:
            at += step
            step *= 2
        return bisect_right(range(self._count), head, at, min(self._count, at + step), key=self._head)

    def _head(self, at: int) -> bytes:
        """At most four bytes: RocksDB shortens the keys of an index."""
        _, start, length = self._entry(at)
        return self._block[start : start + min(_HEAD_BYTES, length - self._suffix)]

    def _place(self, at: int) -> _Place:
        _, start, length = self._entry(at)
        return _place(self._block, start + length)

    def _entry(self, at: int) -> tuple[int, int, int]:
        shared, start = _varint(self._block, self._restarts[at])
        if shared:
            raise ValueError("an entry of the index depends on the one before it")
        length, start = _varint(self._block, start)
        return shared, start, length


def _indexes(table: BinaryIO, size: int) -> Iterator[_Index]:
    """The index blocks in the order of their keys: one, unless the index is partitioned."""
    table.seek(size - _FOOTER.size)
    _, extended, _, _, metaindex_size, version, magic = _FOOTER.unpack(table.read())
    if (magic, extended, version) != (_MAGIC, _EXTENDED, _FORMAT_VERSION):
        raise ValueError(f"its format version is {version}")
    # The footer of format version 6 has only its size: it ends where the footer begins.
    metaindex = _Place(size - _FOOTER.size - _TRAILER_BYTES - metaindex_size, metaindex_size)
    places = {name: _place(value) for name, value in _entries(_read(table, metaindex))}
    properties = dict(_entries(_read(table, places[b"rocksdb.properties"])))
    if properties[b"rocksdb.index.value.is.delta.encoded"] != b"\x01":
        raise ValueError("its index has another form")
    # Otherwise each key has the sequence number and the type at its end, 8 bytes.
    suffix = 0 if properties[b"rocksdb.index.key.is.user.key"] == b"\x01" else 8
    index = _Index(_read(table, places[b"rocksdb.index"]), suffix)
    if properties[b"rocksdb.block.based.table.index.type"] != _PARTITIONED:
        yield index
        return
    for part in index.places():
        yield _Index(_read(table, part), suffix)


def _add_mixed(table: BinaryIO, mixed: list[_Place], shares: Counter[int]) -> None:
    """Divide these blocks like a sample of them: one at random out of each of some equal parts of the table. Even distances would
    not do: every key group has the same states in the same order, so they could always hit the same ones."""
    if not mixed:
        return
    chance = random.Random(mixed[-1].end)  # The same table gets the same estimate.
    count = min(SAMPLE, len(mixed))
    seen: Counter[int] = Counter()
    for at in range(count):
        _divide_block(_read(table, mixed[int((at + chance.random()) * len(mixed) / count)]), seen)
    for state, size in scaled(seen, sum(place.size + _TRAILER_BYTES for place in mixed)).items():
        shares[state] += size


def _read(table: BinaryIO, place: _Place) -> bytes:
    table.seek(place.offset)
    # With the byte that says how the block is compressed.
    data = table.read(place.size + 1)
    block, compression = data[:-1], data[-1]
    if compression == 0:
        return block
    size, start = _varint(block, 0)
    codec = pa.Codec(_CODECS[compression])
    found: bytes = codec.decompress(block[start:] if compression in _SIZED else block, size, asbytes=True)
    return found


def _divide_block(block: bytes, seen: Counter[int]) -> None:
    """Add the stored bytes of entries by state. Of a key, only what is not shared with the key before it is stored."""
    end, at = _end_of_entries(block), 0
    head, run = b"", 0
    while at < end:
        start = at
        shared, at = _varint(block, at)
        further, at = _varint(block, at)
        length, at = _varint(block, at)
        # Key group or state differ from the entry before: a run ends here.
        if shared < _HEAD_BYTES:
            if run:
                seen[state_of(head)] += run
            head, run = head[:shared] + block[at : at + _HEAD_BYTES - shared], 0
        at += further + length
        run += at - start
    if run:
        seen[state_of(head)] += run


def _end_of_entries(block: bytes) -> int:
    return len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    end, at, key = _end_of_entries(block), 0, b""
    while at < end:
        shared, at = _varint(block, at)
        further, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + further]
        at += further
        yield key, block[at : at + length]
        at += length


def _place(data: bytes, at: int = 0) -> _Place:
    offset, at = _varint(data, at)
    return _Place(offset, _varint(data, at)[0])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits in each byte, the lowest first, and the place after it."""
    number = data[at]
    at += 1
    if number < 0x80:
        return number, at
    number &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
