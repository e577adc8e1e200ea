"""What a task hands to the committer of an Iceberg table."""

from __future__ import annotations

import msgspec


class IcebergFile(msgspec.Struct, frozen=True):
    """One data file, as a manifest will describe it. Keys of the maps are column ids."""

    path: str
    size: int
    partition: tuple[int | str | bool | None, ...]
    record_count: int
    column_sizes: dict[int, int]
    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]
    split_offsets: list[int]


class IcebergCommittable(msgspec.Struct, frozen=True):
    table: str
    """The table's UUID: a new table under an old name has different columns behind the same ids."""
    spec: int
    files: tuple[IcebergFile, ...]
