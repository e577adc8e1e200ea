"""How long a task takes to restore its state from an incremental checkpoint, a full one and a canonical savepoint: from local
disk, from an S3 server on the same machine, and from that server over a line of 20 MB/s.

State is a text of 100 characters for each key, in RocksDB. After it was filled, a twentieth of the keys changed in each of 20
intervals, and every interval ended with an incremental checkpoint, so the version consists of tables of several checkpoints and
holds values that later ones replace. The full checkpoint is of the same version: all its files, stored by one checkpoint. The
canonical savepoint has the entries alone, as Parquet. All three restore the same entries.

From local disk and from a server that is as fast as the machine, processor and disk are the limit; over the line, its bytes are.
The line is a proxy in a process of its own. The page cache is dropped before each restore; the server may keep a cache.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.savepoint import ENTRY_BYTES, GROUPS, LAYOUT, TERM, metadata_of, operator_info, state_layout
from tidegate.checkpoint.files.task_part import decode_part, digest_of
from tidegate.checkpoint.metadata import TaskState
from tidegate.checkpoint.task.assignment import RestoreTarget, plan_restore
from tidegate.checkpoint.task.version_restore import RestoreOrder, restore
from tidegate.checkpoint.task.version_upload import Stored, UploadOrder, VersionUpload
from tidegate.core.ids import AttemptId, EpochId, Slot, TaskId, Term, Uid
from tidegate.savepoint.canonical_read import CanonicalTask
from tidegate.savepoint.canonical_write import CanonicalWriter
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import VOID_NAMESPACE, key_group_range, state_prefix
from tidegate.state.version import VersionId
from tidegate.storage import LocalStorage, MeteredStorage, Storage, open_storage

INCREMENTAL, FULL, CANONICAL = "incremental checkpoint", "full checkpoint", "canonical savepoint"
DISK, SERVER = "local disk", "S3 server"
TASK, ALL_GROUPS = TaskId(1, Slot(0)), (0, GROUPS - 1)
_FULL_ID = 100_000
_CHUNK = 100_000


@dataclass(frozen=True, slots=True)
class RestoreSize:
    repetitions: int = 3
    megabytes: int = 200
    intervals: int = 20
    changed_share: float = 0.05
    line_mb_per_s: float = 20.0


QUICK = RestoreSize(repetitions=1, megabytes=4, intervals=3)


def run(
    json_path: Path, quick: bool, *, repetitions: int | None = None, megabytes: int | None = None
) -> dict[str, Any]:
    from tests.servers.seaweedfs import SeaweedFS

    size = QUICK if quick else RestoreSize()
    size = replace(size, repetitions=repetitions or size.repetitions, megabytes=megabytes or size.megabytes)
    line = f"S3 server over {size.line_mb_per_s:g} MB/s"
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
        work = Path(scratch)
        snapshots = _Snapshots(work, size)
        server = SeaweedFS(work / "s3")
        try:
            with _line(server.address.host, server.address.port, size.line_mb_per_s) as port:
                url = f"s3://{server.address.bucket}/bench"
                near = open_storage(url, **server.address.options())
                far = open_storage(url, **server.address.behind(port).options())
                _copy(snapshots.storage, near)
                contestants = {
                    f"{where}: {what}": _Restore(work, storage, state)
                    for where, storage in ((DISK, snapshots.storage), (SERVER, near), (line, far))
                    for what, state in snapshots.states.items()
                }
                took = harness.interleave(
                    {name: each.sample for name, each in contestants.items()},
                    size.repetitions,
                    what="restore",
                    unit="ms",
                )
        finally:
            server.stop()
    stored = {
        f"stored: {what}": harness.Figure("MB", (state.size_bytes / 1e6,)) for what, state in snapshots.states.items()
    }
    return {
        "size": asdict(size) | {"keys": snapshots.keys},
        "read_mb": {name: each.read_mb for name, each in contestants.items()},
        "stored_files": {what: len(state.files) for what, state in snapshots.states.items()},
        "figures": {name: figure.as_json() for name, figure in (took | stored).items()},
        "ratios": {
            f"{where}: {INCREMENTAL} / {other}": harness.ratio(took, f"{where}: {INCREMENTAL}", f"{where}: {other}")
            for where in (DISK, SERVER, line)
            for other in (FULL, CANONICAL)
        },
    }


class _Snapshots:
    """One task after many incremental checkpoints, and its state stored in three ways in one folder."""

    def __init__(self, work: Path, size: RestoreSize) -> None:
        self._local, self._number, self._version = work / "local", 0, None
        self._backend, self._layout, self._chance = backend_named("rocksdb"), state_layout(), random.Random(24)
        self.keys = size.megabytes * 1_000_000 // ENTRY_BYTES
        self.storage = LocalStorage(work / "storage")
        harness.say(f"filling a version with {self.keys:,} keys")
        for first in range(0, self.keys, _CHUNK):
            self._change(range(first, min(self.keys, first + _CHUNK)))
        incremental = self._upload(1, None)
        for id in range(2, size.intervals + 2):
            self._change(sorted(self._chance.sample(range(self.keys), int(self.keys * size.changed_share))))
            incremental = self._upload(id, (id - 1, incremental))
        shutil.rmtree(self._local / "uploads", ignore_errors=True)
        self.states: dict[str, TaskState] = {
            INCREMENTAL: incremental,
            FULL: self._upload(_FULL_ID, None),
            CANONICAL: self._tables(),
        }
        for what, state in self.states.items():
            harness.say(f"{what}: {state.size_bytes / 1e6:,.1f} MB in {len(state.files)} files")

    def _change(self, keys: Any) -> None:
        self._number += 1
        target = VersionId(EpochId(TERM, self._number), AttemptId(self._number))
        store = self._backend.begin(self._local, self._version, target, ALL_GROUPS)
        keyed = sorted((state_prefix(n % GROUPS, 1) + self._layout.keys.encode(f"user-{n:09d}"), n) for n in keys)
        store.write(
            (key + VOID_NAMESPACE, self._layout.values.encode(self._chance.randbytes(50).hex())) for key, _ in keyed
        )
        store.seal()
        self._backend.tidy(self._local, TERM, [target])
        self._version = target

    def _upload(self, id: int, base: tuple[int, TaskState] | None) -> TaskState:
        order = UploadOrder(
            checkpoint_id=id, version=self._version, inline_threshold=0, inline_total=0,
            base=None if base is None else Stored(TERM, base[0], digest_of(base[1])),
        )  # fmt: skip
        upload = VersionUpload(self.storage, LAYOUT, self._local, TASK, TERM, order)
        part = upload.run(self._backend.manifest(self._local, self._version), AttemptId(1), lambda: True, lambda: None)
        assert part is not None
        return decode_part(part)[0]

    def _tables(self) -> TaskState:
        target = VersionId(EpochId(TERM, self._number + 1), AttemptId(1))
        store = self._backend.begin(self._local, self._version, target, ALL_GROUPS)
        try:
            writer = CanonicalWriter(self.storage, "bench", TASK, ALL_GROUPS, self._version, 1)
            writer.add_bytes([operator_info(1)], store.scan(*key_group_range(*ALL_GROUPS)))
            return writer.finish()
        finally:
            store.abandon()


def _copy(source: Storage, target: Storage) -> None:
    for stored in source.list():
        target.put(stored.path, source.get(stored.path))


@contextmanager
def _line(host: str, port: int, mb_per_s: float) -> Iterator[int]:
    """The port of a proxy whose requests share a line."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_line, args=(host, port, mb_per_s * 1e6, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join(10)


def _serve_line(host: str, port: int, bytes_per_s: float, pipe: Connection) -> None:
    from tests.servers.proxy import FaultyProxy, Line, Rule

    proxy = FaultyProxy(host, port)
    proxy.script(Rule(Line(bytes_per_s), method="GET", times=None))
    pipe.send(proxy.port)
    pipe.recv()
    proxy.stop()


class _Restore:
    """One snapshot in one storage, restored again and again."""

    def __init__(self, work: Path, storage: Storage, state: TaskState) -> None:
        (plan,) = plan_restore(metadata_of([state], 1), RestoreTarget(GROUPS, 1, {Uid("op"): 1}))
        self._order = RestoreOrder(plan=plan, sources=(state,), root=LAYOUT.root, stored=None, from_local=False)
        self._work, self._storage = work, storage
        self.read_mb = 0.0
        """What the last restore has read from storage."""

    def sample(self) -> float:
        """Milliseconds until the version exists."""
        harness.drop_cache(self._work / "storage")
        version, target = VersionId(EpochId(Term(2), 1), AttemptId(1)), self._work / "back"
        storage = MeteredStorage(self._storage)
        before = storage.read_bytes
        begun = time.monotonic()
        restore(storage, target, self._order, backend_named("rocksdb"), {}, version, CanonicalTask)
        took = time.monotonic() - begun
        self.read_mb = (storage.read_bytes - before) / 1e6
        shutil.rmtree(target)
        return took * 1_000
