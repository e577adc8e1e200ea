"""Protocols as generators: each step yields an effect and receives its result. They do no I/O themselves.

The same code is run by `perform` on real storage, one call after another, and by a simulation that lets any amount of
time pass between two steps, loses results, and stops a driver anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from tidegate.connectors.sink import Committable
from tidegate.core.errors import TidegateError
from tidegate.core.history import History
from tidegate.storage.errors import ObjectMissing
from tidegate.storage.port import Nonce, Storage

T = TypeVar("T")
E = TypeVar("E")
F = TypeVar("F")

_READERS = 16
"""Concurrent reads of many small objects."""
_DELETERS = 8
"""Concurrent deletions."""
_FEWEST, _MOST = 100, 1000
"""Names that one of several deletions gets. An object store takes up to a thousand in one request."""


class CommitFailed(TidegateError):
    """A target did not accept a committable.

    It is kept and retried later; nothing after it in its order was tried.
    """

    code = "COMMIT_FAILED"
    retryable = True


@dataclass(frozen=True, slots=True)
class Create:
    """Put if absent. Result: `Won` or `Lost`."""

    path: str
    data: bytes
    nonce: Nonce


@dataclass(frozen=True, slots=True)
class Put:
    """Write or overwrite. Only for heartbeats and for unique names."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Get:
    """Result: the bytes, or None if the name does not exist."""

    path: str


@dataclass(frozen=True, slots=True)
class GetMany:
    """Result: the bytes of each name that exists, by name. They are read concurrently."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListNames:
    """Result: all names below a folder, sorted."""

    prefix: str


@dataclass(frozen=True, slots=True)
class ListFolders:
    """Result: names of the folders directly below a folder, without reading their contents."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the names that exist, in no certain order."""

    paths: tuple[str, ...]
    parallel: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """Remove what interrupted writes have left below a folder. Only for folders that nobody needs to write to."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit committables of one sink, given in order of (epoch, partition), each together with its marker.

    Those that a marker already covers are skipped. Raises `CommitFailed` at the first one that the target does not
    accept: those before it stay committed, those after it were not tried.
    """

    committables: tuple[Committable, ...]
    compare_with: History | None = None
    """Compare all markers of the sink with this history first. Raises `ForeignOutput` if the target has output of another one."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait on this driver's own clock."""

    ms: int


Effect: TypeAlias = Create | Put | Get | GetMany | ListNames | ListFolders | Delete | Sweep | Commit | Sleep
Steps: TypeAlias = Generator[Effect, Any, T]


def perform(
    steps: Steps[T],
    storage: Storage,
    commit: Callable[[Commit], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Run a protocol to its end on real storage."""
    return run(steps, lambda effect: do(effect, storage, commit, sleep))


def run(steps: Generator[E, Any, T], carry_out: Callable[[E], Any]) -> T:
    """Run steps to their end. An error in carrying out an effect is raised inside them, at the step that caused it."""
    try:
        effect = next(steps)
        while True:
            try:
                answer = carry_out(effect)
            except Exception as error:
                # Also an error that the steps do not expect: it leaves them at the step that caused it, and reaches the
                # caller from there.
                effect = steps.throw(error)
            else:
                effect = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def expand(steps: Generator[E, Any, T], carry_out: Callable[[E], Generator[F, Any, Any]]) -> Generator[F, Any, T]:
    """The same, where carrying out an effect takes steps itself."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            effect = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        answer, error = None, None
        try:
            answer = yield from carry_out(effect)
        except Exception as problem:
            error = problem


def _get_many(storage: Storage, paths: Sequence[str]) -> dict[str, bytes]:
    def get(path: str) -> bytes | None:
        try:
            return storage.get(path)
        except ObjectMissing:
            return None

    with ThreadPoolExecutor(_READERS, "tidegate-read") as pool:
        found = zip(paths, pool.map(get, paths))
        return {path: data for path, data in found if data is not None}


def _delete_in_parallel(storage: Storage, paths: Sequence[str]) -> None:
    """An error is raised when all deletions have ended."""
    # -(-a // b) rounds up. Few names go out in one request instead of one for each thread.
    size = min(_MOST, max(_FEWEST, -(-len(paths) // _DELETERS)))
    with ThreadPoolExecutor(_DELETERS, "tidegate-delete") as pool:
        # `list` waits for all of them, and raises the first error.
        list(pool.map(storage.delete, [paths[start : start + size] for start in range(0, len(paths), size)]))


def do(  # noqa: C901 one case for each effect
    effect: Effect,
    storage: Storage,
    commit: Callable[[Commit], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Any:
    """Carry out one effect on real storage."""
    match effect:
        case Create(path, data, nonce):
            return storage.create(path, data, nonce)
        case Put(path, data):
            return storage.put(path, data)
        case Get(path):
            try:
                return storage.get(path)
            except ObjectMissing:
                return None
        case GetMany(paths):
            return _get_many(storage, paths)
        case ListNames(prefix):
            return [found.path for found in storage.list(prefix)]
        case ListFolders(prefix):
            return storage.folders(prefix)
        case Delete(paths, parallel):
            return _delete_in_parallel(storage, paths) if parallel else storage.delete(paths)
        case Sweep(prefix):
            return storage.sweep(prefix)
        case Sleep(ms):
            return sleep(ms / 1000)
        case Commit(committables):
            if commit is None:
                raise CommitFailed(
                    f"Sink {committables[0].sink!r} has output to commit, but no committer was provided."
                )
            return commit(effect)
