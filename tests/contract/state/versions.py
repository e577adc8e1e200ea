"""Short words for building and reading versions in tests, and for doing so in another process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.state.backends import backend_named
from tidegate.state.heap import table
from tidegate.state.port import StateBackend
from tidegate.state.rocksdb import shared_memory
from tidegate.state.version import Manifest, VersionId

NAMES = ("hashmap", "rocksdb", "hashmap+changelog", "rocksdb+changelog")
EVERYTHING = (b"", b"\xff" * 64)
KEY_GROUPS = (0, 127)

P = ParamSpec("P")
T = TypeVar("T")


def v(number: int, attempt: int = 1, term: int = 1) -> VersionId:
    return VersionId(EpochId(Term(term), number), AttemptId(attempt))


def build(
    backend: StateBackend,
    directory: Path,
    base: VersionId | None,
    target: VersionId,
    puts: Mapping[bytes, bytes],
    deletes: Iterable[bytes] = (),
) -> Manifest:
    """Version `target`: `base` with `puts` and `deletes`."""
    store = backend.begin(directory, base, target, KEY_GROUPS)
    store.write(puts.items(), deletes)
    return store.seal()


def contents(backend: StateBackend, directory: Path, version: VersionId) -> dict[bytes, bytes]:
    """All entries of a version."""
    store = backend.begin(directory, version, v(10**9, 10**9, 10**9), KEY_GROUPS)
    try:
        return dict(store.scan(*EVERYTHING))
    finally:
        store.abandon()


def contents_by_name(name: str, directory: Path, version: VersionId) -> dict[bytes, bytes]:
    return contents(backend_named(name), directory, version)


def forget() -> None:
    """Drop what a process keeps between attempts, as its death would: tables, and blocks of RocksDB's tables."""
    table.forget()
    shared_memory._shared.clear()


def in_fresh_process(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of a module in a new process that has opened nothing yet."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result(timeout=120)
