"""Races of many writers for one name, and what must be true after each."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.storage import LocalStorage, Lost, Storage, Won, new_nonce

WRITERS = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """One writer's part in one race."""

    round: int
    body: bytes
    outcome: Won | Lost


def race_of_threads(storages: Sequence[Storage], rounds: int, lanes: int) -> list[Entry]:
    """One writer for each store given; all start each round together. `lanes` rounds are under way at a time.

    Lanes are for servers that make the contenders for one name wait for a second each (SeaweedFS does).
    """
    entries: list[Entry] = []
    failures: list[BaseException] = []

    def run(storage: Storage, writer: int, lane: int, start: threading.Barrier) -> None:
        try:
            for number in range(lane, rounds, lanes):
                start.wait(120)
                entries.append(enter(storage, number, writer))
        except BaseException as error:
            failures.append(error)
            start.abort()

    starts = [threading.Barrier(len(storages)) for _ in range(lanes)]
    threads = [
        threading.Thread(target=run, args=(storage, writer, lane, start))
        for writer, storage in enumerate(storages)
        for lane, start in enumerate(starts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise next((each for each in failures if not isinstance(each, threading.BrokenBarrierError)), failures[0])
    return entries


def race_of_processes(root: Path, rounds: int) -> list[Entry]:
    """Sixteen processes; the clock starts each round, as soon as all are there."""
    command = [sys.executable, "-m", "tests.contract.storage.racing", str(root), str(rounds)]
    writers = [
        subprocess.Popen([*command, str(writer)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for writer in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
    began = f"{time.time() + 0.2}\n".encode()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(began)
        writer.stdin.flush()
    return [entry for writer in writers for entry in pickle.loads(writer.communicate()[0])]


def _run_as_process(root: Path, rounds: int, writer: int) -> None:
    storage = LocalStorage(root)
    print("ready", flush=True)
    began = float(sys.stdin.readline())
    entries = []
    for number in range(rounds):
        time.sleep(max(0.0, began + number * 0.06 - time.time()))
        entries.append(enter(storage, number, writer))
    sys.stdout.buffer.write(pickle.dumps(entries))


def enter(storage: Storage, number: int, writer: int) -> Entry:
    nonce = new_nonce()
    mine = f"writer {writer} {nonce}".encode()
    return Entry(number, mine, storage.create(f"log/{number:08d}", mine, nonce))


def assert_one_winner_each(storage: Storage, entries: list[Entry], rounds: int) -> None:
    """Each round has one winner, whose body is stored, and all others saw just that body."""
    for number in range(rounds):
        race = [entry for entry in entries if entry.round == number]
        winners = [entry.body for entry in race if entry.outcome == Won()]
        assert len(race) == WRITERS
        assert winners == [storage.get(f"log/{number:08d}")]
        assert {entry.outcome.existing for entry in race if isinstance(entry.outcome, Lost)} == set(winners)


if __name__ == "__main__":
    from tests.contract.storage.racing import _run_as_process as run  # so that what is pickled has the module's name

    run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
