"""Does the time of an epoch depend on how large the state is, or on how long the job has run?

An epoch is 20,000 random read-modify-writes of 100-byte values over 0.1, 1 and 10 million keys, 80 of them: once
through the rocksdb backend (a version per epoch: begin, read, write, seal, tidy), once in a bare RocksDB of the same
options that stays open and never has to be a version. Each size and contestant has a process of its own; they take
turns, one epoch each, so that whatever else the machine does falls on all of them alike.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Generator, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import harness

UPDATES = 20_000
VALUE_BYTES = 100
_NOISE = 1 << 20

Epoch = dict[str, float]


class _Load:
    """The same keys and values for both contestants."""

    def __init__(self, keys: int, updates: int) -> None:
        self._dice = random.Random(20_000)
        self._noise = random.Random(1).randbytes(_NOISE)
        self.keys = keys
        self.updates = updates

    def value(self) -> bytes:
        at = self._dice.randrange(_NOISE - VALUE_BYTES)
        return self._noise[at : at + VALUE_BYTES]

    def all_entries(self) -> Iterator[tuple[bytes, bytes]]:
        return ((n.to_bytes(8, "big"), self.value()) for n in range(self.keys))

    def some_keys(self) -> list[bytes]:
        """An epoch's keys, in order, as the write cache of a task asks for them."""
        return sorted({self._dice.randrange(self.keys).to_bytes(8, "big") for _ in range(self.updates)})


def tidegate_epochs(root: str, keys: int, updates: int) -> Generator[Epoch, None, None]:
    """Epochs through the port, each when asked for."""
    from tidegate.core.ids import AttemptId, EpochId, Term
    from tidegate.state.rocksdb import RocksDBBackend
    from tidegate.state.version import VersionId

    def version(number: int) -> VersionId:
        return VersionId(EpochId(Term(1), number), AttemptId(number))

    load, backend, directory = _Load(keys, updates), RocksDBBackend(), Path(root) / "task"
    store = backend.begin(directory, None, version(0), (0, 127))
    store.write(load.all_entries())
    store.seal()
    yield {}
    for number in itertools.count(1):
        wanted = load.some_keys()
        begun = time.perf_counter()
        store = backend.begin(directory, version(number - 1), version(number), (0, 127))
        store.get(wanted[0])
        opened = time.perf_counter()
        found = store.get_many(wanted)
        read = time.perf_counter()
        changed = [(key, load.value()) for key, old in zip(wanted, found, strict=True) if old is not None]
        computed = time.perf_counter()
        store.write(changed)
        written = time.perf_counter()
        manifest = store.seal()
        sealed = time.perf_counter()
        backend.tidy(directory, Term(1), [version(number)])
        tidied = time.perf_counter()
        assert len(changed) == len(wanted)
        yield {
            "open_s": opened - begun,
            "read_s": read - opened,
            "write_s": written - computed,
            "seal_s": sealed - written,
            "tidy_s": tidied - sealed,
            "total_s": (tidied - begun) - (computed - read),
            "files": len(manifest.files),
            "bytes": manifest.size_bytes,
            "new_bytes": sum(file.size_bytes for file in manifest.files if file.origin == manifest.version),
        }


def bare_epochs(root: str, keys: int, updates: int) -> Generator[Epoch, None, None]:
    """The same reads and writes in one database that stays open."""
    from rocksdict import WriteBatch

    from tidegate.state.rocksdb.database import open_database, without_wal
    from tidegate.state.rocksdb.database_directory import DatabaseDirectory
    from tidegate.state.rocksdb.options import RocksDBOptions

    def write(entries: Iterator[tuple[bytes, bytes]]) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in entries:
            batch.put(key, value)
            if batch.len() == 1000:
                database.write(batch, no_wal)
                batch = WriteBatch(raw_mode=True)
        database.write(batch, no_wal)

    load, no_wal, path = _Load(keys, updates), without_wal(), Path(root) / "bare"
    path.mkdir()
    home = DatabaseDirectory(path)
    database = open_database(home, RocksDBOptions(), create=True)[0]
    write(load.all_entries())
    database.flush()
    try:
        yield {}
        while True:
            wanted = load.some_keys()
            begun = time.perf_counter()
            database.get(wanted[0])
            found = database.get(wanted)
            read = time.perf_counter()
            changed = [(key, load.value()) for key, old in zip(wanted, found, strict=True) if old is not None]
            computed = time.perf_counter()
            write(iter(changed))
            written = time.perf_counter()
            files = database.live_files()
            yield {
                "read_s": read - begun,
                "write_s": written - computed,
                "total_s": (written - begun) - (computed - read),
                "files": len(files),
                "bytes": sum(file["size"] for file in files),
            }
    finally:
        database.close()
        home.discard()


CONTESTANTS = {"tidegate": tidegate_epochs, "bare": bare_epochs}


def _serve(who: str, root: str, keys: int, updates: int, line: Connection) -> None:
    """In a process of its own: one epoch for each message, until told to end."""
    epochs = CONTESTANTS[who](root, keys, updates)
    while line.recv():
        line.send(next(epochs))
    epochs.close()


class _Player:
    """A contestant at one size, seen from the parent."""

    def __init__(self, who: str, keys: int, updates: int, root: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._line, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(who, root, keys, updates, theirs), daemon=True)
        self._process.start()
        self.epochs: list[Epoch] = []

    def turn(self) -> Epoch:
        self._line.send(True)
        while not self._line.poll(1):
            if not self._process.is_alive():
                raise RuntimeError("a contestant died; its error is above")
        epoch: Epoch = self._line.recv()
        return epoch

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._line.send(False)
        self._process.join(30)


def _median(epochs: list[Epoch], what: str) -> float:
    return statistics.median(epoch[what] for epoch in epochs)


def _mean(epochs: list[Epoch], what: str) -> float:
    return statistics.fmean(epoch[what] for epoch in epochs)


def _judge(results: dict[str, dict[str, list[Epoch]]], sizes: list[int]) -> dict[str, dict[str, Any]]:
    """Ratios of one run, with what is wanted of each."""
    ratios: dict[str, dict[str, Any]] = {}

    def note(name: str, value: float, most: float | None = None) -> None:
        ratios[name] = harness.bounded(value, at_most=most)

    def growth(who: str) -> float:
        return _median(results[str(sizes[-1])][who], "total_s") / _median(results[str(sizes[0])][who], "total_s")

    for size in sizes:
        ours, bare = results[str(size)]["tidegate"], results[str(size)]["bare"]
        early, late = ours[10:30], ours[-20:]
        note(
            f"{size:,} keys: time of the last 20 epochs / of epochs 11 to 30",
            _median(late, "total_s") / _median(early, "total_s"),
            1.3,
        )
        # Levels take some forty epochs to fill up; what must not happen is that files go on growing after that.
        files = max(e["files"] for e in late) / max(e["files"] for e in ours[-40:-20])
        note(f"{size:,} keys: files of the last 20 epochs / of the 20 before", files, 1.1)
        note(f"{size:,} keys: median epoch / bare", _median(ours, "total_s") / _median(bare, "total_s"))
        note(f"{size:,} keys: mean epoch / bare", _mean(ours, "total_s") / _mean(bare, "total_s"))
    note("median epoch, most keys / fewest", growth("tidegate"))
    note("median epoch, most keys / fewest, bare", growth("bare"))
    note("the former / the latter", growth("tidegate") / growth("bare"), 1.1)
    return ratios


def run(json_path: Path, quick: bool) -> dict[str, Any]:
    sizes = [10_000, 100_000] if quick else [100_000, 1_000_000, 10_000_000]
    updates, epochs = (2_000, 60) if quick else (UPDATES, 80)
    root = tempfile.mkdtemp(prefix="state-growth-")
    players: dict[tuple[int, str], _Player] = {}
    try:
        for size, who in itertools.product(sizes, CONTESTANTS):
            directory = os.path.join(root, f"{who}-{size}")
            os.mkdir(directory)
            players[size, who] = _Player(who, size, updates, directory)
            players[size, who].turn()
            harness.say(f"{who}: {size:,} keys loaded")
        for number in range(1, epochs + 1):
            for player in players.values():
                player.epochs.append(player.turn())
            if number % 10 == 0:
                harness.say(f"{number} of {epochs} epochs")
    finally:
        for player in players.values():
            player.end()
        shutil.rmtree(root, ignore_errors=True)
    results = {str(size): {who: players[size, who].epochs for who in CONTESTANTS} for size in sizes}
    return {
        "size": {"updates_per_epoch": updates, "epochs": epochs, "keys": sizes},
        "figures": {
            f"epoch, {size:,} keys, {who}": harness.Figure(
                "s", tuple(e["total_s"] for e in players[size, who].epochs)
            ).as_json()
            for size, who in players
        },
        "ratios": _judge(results, sizes),
        "epochs": results,
    }
