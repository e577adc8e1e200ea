"""A whole driver in one process: reads the numbers 1..N, keeps their sum, and writes every number to a table once.

`python -m tests.recovery.drivers.counter ROOT NAME UNTIL [--force] [--patience MS] [--slow MS] [--beat]`
Exits with 0 at the end, 3 when it lost the job, 4 when it was refused.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import sqlite3
import sys
import threading
import time
from itertools import count
from pathlib import Path

from tests.unit.checkpoint.history_kit import release
from tidegate.checkpoint.completed.cleaner import Cleaner
from tidegate.checkpoint.completed.completed_store import CompletedCheckpointStore, Draft
from tidegate.checkpoint.effects import Commit, Steps, perform
from tidegate.checkpoint.files.contents import CheckpointContents
from tidegate.checkpoint.files.shared import InFlight
from tidegate.checkpoint.job_log.claim import claim, show_life
from tidegate.checkpoint.job_log.entry import RunOutcome, Signature
from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.checkpoint.job_log.start import Start, StartRefused
from tidegate.checkpoint.layout import JobLayout
from tidegate.connectors.sink import Committable
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Uid
from tidegate.storage import LocalStorage, new_nonce, unique_name

LAYOUT = JobLayout("counter")
LOST, REFUSED = 3, 4


def read(path: str, data: bytes) -> CheckpointContents:
    body = json.loads(data)
    waiting = tuple(
        Committable(
            lineage=Lineage(c["lineage"]),
            sink=Uid("table"),
            slot=0,
            epoch=EpochId(*c["epoch"]),
            payload=c["rows"].encode(),
        )
        for c in body["committables"]
    )
    return CheckpointContents(frozenset({body["file"]}), frozenset(c.payload.decode() for c in waiting), waiting)


class Counter:
    def __init__(self, root: Path, name: str, until: int, patience_ms: int, slow_ms: int, beats: bool) -> None:
        self.storage = LocalStorage(root / "storage")
        self.table = root / "table.db"
        self.name, self.until, self.patience_ms, self.slow_ms = name, until, patience_ms, slow_ms
        self.silence = root / name / "silence"
        self.beats = beats  # not for those that sleep at a point: a sleeping process has no threads that go on

    def sign(self) -> Signature:
        return Signature(new_nonce(), self.name, int(time.time() * 1000))

    def do(self, steps: Steps[object]) -> object:
        return perform(steps, self.storage, self.commit)

    def commit(self, effect: Commit) -> None:
        for committable in effect.committables:
            self.commit_one(committable)

    def commit_one(self, committable: Committable) -> None:
        """Rows and marker in one transaction; a repeat sees the marker."""
        epoch = [committable.epoch.term, committable.epoch.number]
        with sqlite3.connect(self.table, timeout=30, isolation_level="IMMEDIATE") as table:
            table.execute("create table if not exists marker (lineage text primary key, term int, number int)")
            table.execute("create table if not exists rows (number int, writer text)")
            table.execute("begin immediate") if not table.in_transaction else None
            found = table.execute("select term, number from marker where lineage = ?", [committable.lineage]).fetchone()
            if found is not None and list(found) >= epoch:
                return
            first, last = json.loads(self.storage.get(committable.payload.decode()))
            table.executemany("insert into rows values (?, ?)", [(n, self.name) for n in range(first, last + 1)])
            table.execute("insert or replace into marker values (?, ?, ?)", [committable.lineage, *epoch])

    def run(self, force: bool) -> None:
        mint = lambda: Lineage(unique_name())  # noqa: E731
        entry = perform(claim(LAYOUT, Start(), self.sign, mint, self.patience_ms, force), self.storage)
        store = CompletedCheckpointStore(LAYOUT, entry, read, self.sign, num_retained=2)
        cleaner = Cleaner(store)
        if self.beats:
            threading.Thread(target=self.beat, args=[store], daemon=True).start()
        data = self.do(store.recover())
        self.do(release(store))
        at, total, file = 0, 0, None
        if isinstance(data, bytes):
            body = json.loads(data)
            at, file = body["at"], body["file"]
            total = json.loads(self.storage.get(file))["sum"]
            assert total == at * (at + 1) // 2, "the state is not that of its position"
        id = entry.last_id
        while at < self.until:
            id += 1
            time.sleep(self.slow_ms / 1000)
            first, at = at + 1, min(at + 10, self.until)
            total += sum(range(first, at + 1))
            epoch = EpochId(store.term, id)
            rows = LAYOUT.staged(epoch, Uid("table"), AttemptId(id), unique_name())
            self.storage.put(rows, json.dumps([first, at]).encode())
            store.ledger.accept(
                [Committable(lineage=entry.lineage, sink=Uid("table"), slot=0, epoch=epoch, payload=rows.encode())]
            )
            file = LAYOUT.shared(store.term, TaskId(1, Slot(0)), AttemptId(id), id, unique_name())
            self.storage.put(file, json.dumps({"sum": total}).encode())
            reach("driver.checked", id=id)
            perform(store.append_checkpoint(self.draft(store, id, epoch, at, file)), self.storage, self.commit)
            self.do(release(store))
            self.do(cleaner.clean(InFlight(id + 1)))
            self.do(cleaner.sweep(InFlight(id + 1)))
        self.do(cleaner.sweep(InFlight(id + 1)))
        self.do(store.finish(RunOutcome.SUSPENDED, keep=True))
        self.do(cleaner.clean(InFlight(id + 1)))

    def beat(self, store: CompletedCheckpointStore) -> None:
        """Show life, and write down the longest time in which this process showed none, and when it last did."""
        longest_s = 0.0
        shown = time.monotonic()
        with contextlib.suppress(ClaimLost):
            for beat in count(1):
                time.sleep(0.1)
                try:
                    perform(show_life(LAYOUT, store.entry, beat), self.storage)
                finally:
                    # Also when the job is lost: this silence is then the reason.
                    longest_s = max(longest_s, time.monotonic() - shown)
                    shown = time.monotonic()
                    self.silence.write_text(f"{longest_s} {shown}")

    def draft(self, store: CompletedCheckpointStore, id: int, epoch: EpochId, at: int, file: str) -> Draft:
        carried = [
            {"lineage": c.lineage, "epoch": [c.epoch.term, c.epoch.number], "rows": c.payload.decode()}
            for c in store.ledger.carried_by(epoch)
        ]
        checksum = hashlib.sha256(f"{self.name} {store.term} {id}".encode()).hexdigest()
        body = json.dumps({"checksum": checksum, "at": at, "file": file, "committables": carried}).encode()
        return Draft(id=id, epoch=epoch, metadata=body, checksum=checksum, contents=read("", body))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("name")
    parser.add_argument("until", type=int)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--patience", type=int, default=200)
    parser.add_argument("--beat", action="store_true")
    parser.add_argument("--slow", type=int, default=0)
    options = parser.parse_args()
    counter = Counter(options.root, options.name, options.until, options.patience, options.slow, options.beat)
    try:
        counter.run(options.force)
    except ClaimLost:
        return LOST
    except StartRefused:
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
