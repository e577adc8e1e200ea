"""Messages of tidegate's own paths about the state in a snapshot. Flink has no such answers."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class StateLine(Struct, frozen=True, kw_only=True):
    """A state of an operator. Types are shown as Python writes them."""

    name: str
    kind: str
    type: str
    map_key_type: str | None
    distribution: str
    ttl_ms: int | None
    bytes: int | None
    """None where states share files."""


class StatesOfOperator(Struct, frozen=True, kw_only=True):
    uid: str
    level: int
    parallelism: int
    max_parallelism: int
    backend: str
    key_type: str
    bytes: int
    """Size of the files that hold the state of its level."""
    states: list[StateLine]


class StateOverview(Struct, frozen=True, kw_only=True):
    """The states in a checkpoint or savepoint."""

    snapshot: str
    id: int
    at_ms: int
    operators: list[StatesOfOperator]


class StoredValue(Struct, frozen=True, kw_only=True):
    """What a state holds for a key. `value` is None if there is nothing, or if values are not shown."""

    name: str
    kind: str
    found: bool
    value: Any
    redacted: bool


class KeyLookup(Struct, frozen=True, kw_only=True):
    snapshot: str
    operator: str
    key: Any
    states: list[StoredValue]


class StateEntries(Struct, frozen=True, kw_only=True):
    """The first entries of a state; none if values are not shown."""

    operator: str
    state: str
    entries: list[dict[str, Any]]
    more: bool
    redacted: bool


class SnapshotLine(Struct, frozen=True, kw_only=True):
    """A retained checkpoint, or a savepoint that the job was given."""

    id: int
    kind: str
    path: str
    at_ms: int
    size_bytes: int
    format: str
    claimed: bool
    restart_from: bool
    operators: list[str]


class SnapshotList(Struct, frozen=True):
    """Newest first."""

    snapshots: list[SnapshotLine]


class SnapshotProblem(Struct, frozen=True):
    """`where` is a task, a source or a state."""

    where: str
    what: str


class SnapshotCheck(Struct, frozen=True, kw_only=True):
    """Whether every file of a snapshot exists with its size. Contents are not read."""

    snapshot: str
    files: int
    bytes: int
    whole: bool
    """False if the time was over before all files were looked at."""
    problems: list[SnapshotProblem]
