"""The files of one task in durable storage, in packed form: about 140 bytes of JSON per file instead of six Python objects.

A job of 10,000 tasks has a million files. As objects they would take some 500 MB and seconds to build, at every
checkpoint. Packed, an unchanged task costs nothing at the next one, and encoding a checkpoint copies bytes. Objects
exist only while a list is iterated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

from tidegate.state.version import VersionId
from tidegate.storage.handle import PART_BYTES, FileHandle, parts_of

_T = TypeVar("_T")


class StateFile(msgspec.Struct, frozen=True, gc=False):
    """One immutable file of a state version, and where it is stored. A Struct for speed: there are millions of them."""

    name: str
    """Its name within the version, unique there."""
    path: str
    """Relative to the job's directory (for a savepoint: to its own); a path with `://` or a leading `/` is absolute."""
    size_bytes: int
    checksum: str
    """Algorithm and hexadecimal digest, as in `sha256:9f86…`."""
    origin: VersionId
    """The version that wrote it. (task, origin, name) is never reused for other content."""
    since: int
    """The checkpoint that uploaded it. The new files of a checkpoint are those whose `since` is its id."""
    part_bytes: int = PART_BYTES

    @property
    def stored(self) -> FileHandle:
        """Return the handle with which storage fetches and verifies it."""
        return FileHandle(self.path, self.size_bytes, self.checksum, self.part_bytes)


class _Row(msgspec.Struct, array_like=True, gc=False):
    name: str
    size: int
    part: int
    directory: int
    leaf: str
    algorithm: int
    digest: str
    origin: int
    since: int


class Packed(msgspec.Struct, gc=False):
    """The stored form. Lists other than `rows` are tables that the rows point into; `since` counts bytes too."""

    count: int
    bytes: int
    since: list[tuple[int, int]]
    parts: list[int]
    dirs: list[str]
    algorithms: list[str]
    origins: list[str]
    rows: list[_Row]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Packed).decode


class FileList:
    """An immutable list of files ordered by name. Equal to another with the same files."""

    __slots__ = ("_packed", "count", "since", "size_bytes")

    _packed: bytes
    count: int
    size_bytes: int
    since: tuple[tuple[int, int], ...]
    """(checkpoint id, bytes of the files it uploaded), ascending."""

    def __init__(self, files: Iterable[StateFile] = ()) -> None:
        packed = _pack(sorted(files, key=lambda file: file.name))
        self._fill(_encode(packed), packed.count, packed.bytes, packed.since)

    @classmethod
    def of_packed(cls, raw: bytes) -> FileList:
        """Use the stored form unchanged, after checking its structure. Raises `msgspec.ValidationError`."""
        return cls.of_unpacked(raw, unpack(raw))

    @classmethod
    def of_unpacked(cls, raw: bytes, packed: Packed) -> FileList:
        """Use the stored form together with the result of `unpack`."""
        made = cls.__new__(cls)
        made._fill(raw, packed.count, packed.bytes, packed.since)
        return made

    @property
    def packed(self) -> bytes:
        return self._packed

    def size_since(self, checkpoint_id: int) -> int:
        """Return the bytes of the files that this checkpoint uploaded."""
        return next((size for id, size in self.since if id == checkpoint_id), 0)

    def objects(self) -> Iterator[str]:
        """Yield the names of all stored objects, including the parts of files: what clean-up must keep for this list."""
        packed = _decode(self._packed)
        for row in packed.rows:
            # The stored directory has its slash, so a name is a concatenation.
            path, part_bytes = packed.dirs[row.directory] + row.leaf, packed.parts[row.part]
            if row.size <= part_bytes:
                yield path
            else:
                yield from (name for name, _ in parts_of(path, row.size, part_bytes))

    def __iter__(self) -> Iterator[StateFile]:
        packed = _decode(self._packed)
        dirs, algorithms, parts = packed.dirs, packed.algorithms, packed.parts
        origins = [VersionId.parse(text) for text in packed.origins]
        ids = [id for id, _ in packed.since]
        for row in packed.rows:
            yield StateFile(
                name=row.name,
                path=dirs[row.directory] + row.leaf,
                size_bytes=row.size,
                checksum=algorithms[row.algorithm] + row.digest,
                origin=origins[row.origin],
                since=ids[row.since],
                part_bytes=parts[row.part],
            )

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileList) and self._packed == other._packed

    def __hash__(self) -> int:
        return hash(self._packed)

    def __repr__(self) -> str:
        return f"FileList({self.count} files, {self.size_bytes} bytes)"

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"A FileList does not change; make a new one instead of setting {name!r}.")

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        # A plain function: cloudpickle pickles a class method by value, with everything in its module.
        return _unpickled, (self._packed,)

    def _fill(self, packed: bytes, count: int, size_bytes: int, since: Iterable[tuple[int, int]]) -> None:
        for name, value in (("_packed", packed), ("count", count), ("size_bytes", size_bytes), ("since", tuple(since))):
            # Past `__setattr__`, which refuses every change.
            object.__setattr__(self, name, value)


def unpack(raw: bytes) -> Packed:
    """Decode the stored form of a list to tables and rows that point into them. Raises `msgspec.ValidationError`."""
    packed = _decode(raw)
    _check(packed)
    return packed


def _unpickled(packed: bytes) -> FileList:
    return FileList.of_packed(packed)


def _pack(files: list[StateFile]) -> Packed:
    """Pack files. Tables are sorted, so that equal lists have equal bytes."""
    # They are sorted by name.
    for before, after in pairwise(files):
        if before.name == after.name:
            raise ValueError(f"A version has one file of each name; {after.name!r} came twice.")
    paths = [file.path.rpartition("/") for file in files]
    sums = [file.checksum.partition(":") for file in files]
    # How many bytes each checkpoint has brought, so that sizes of deltas need no pass over the rows later.
    brought: dict[int, int] = {}
    for file in files:
        brought[file.since] = brought.get(file.since, 0) + file.size_bytes
    parts, part_at = _table(file.part_bytes for file in files)
    dirs, dir_at = _table(head + slash for head, slash, _ in paths)
    algorithms, algorithm_at = _table(name + colon for name, colon, _ in sums)
    origins, origin_at = _table(file.origin for file in files)
    since, since_at = _table(brought)
    rows = [
        _Row(
            name=file.name,
            size=file.size_bytes,
            part=part_at[file.part_bytes],
            directory=dir_at[path[0] + path[1]],
            leaf=path[2],
            algorithm=algorithm_at[sum_[0] + sum_[1]],
            digest=sum_[2],
            origin=origin_at[file.origin],
            since=since_at[file.since],
        )
        for file, path, sum_ in zip(files, paths, sums)
    ]
    counted = [(id, brought[id]) for id in since]
    return Packed(
        count=len(rows),
        bytes=sum(brought.values()),
        since=counted,
        parts=parts,
        dirs=dirs,
        algorithms=algorithms,
        origins=[str(o) for o in origins],
        rows=rows,
    )


def _table(items: Iterable[_T]) -> tuple[list[_T], dict[_T, int]]:
    """Return the distinct items in order, and the index of each."""
    table = sorted(set(items))  # type: ignore[type-var]
    return table, {item: at for at, item in enumerate(table)}


def _check(packed: Packed) -> None:
    """Check that rows point into the tables. The decoder has checked the structure, the checksum the content."""
    if len(packed.rows) != packed.count:
        raise msgspec.ValidationError(f"{packed.count} files announced, {len(packed.rows)} listed")
    tables = (packed.parts, packed.dirs, packed.algorithms, packed.origins, packed.since)
    parts, dirs, algorithms, origins, since = (len(table) for table in tables)
    for row in packed.rows:
        # Negative indices would be valid in Python, and point at the wrong row.
        if not (
            0 <= row.part < parts
            and 0 <= row.directory < dirs
            and 0 <= row.algorithm < algorithms
            and 0 <= row.origin < origins
            and 0 <= row.since < since
        ):
            raise msgspec.ValidationError(f"file {row.name!r} points outside the tables of its task")
