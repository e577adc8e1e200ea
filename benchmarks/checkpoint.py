"""What a checkpoint costs: bytes uploaded for bytes changed, upload and restore against a plain copy, rows/s meanwhile.

Four measurements, all but one on at least 500 MB of state in RocksDB:
- *Amplification*: 1 % of the keys change in every interval; bytes uploaded for each byte changed, over many intervals.
- *Changelog*: the same with and without a changelog, over 200 intervals, on 60 MB of state: bytes, seconds and processor time.
  With it, a whole version is uploaded in the background every 50 intervals; its bytes are counted apart.
- *Copying*: uploading a whole version into a directory, and bringing it back, in MB/s against `shutil` copying the same
  files. The page cache is dropped before each.
- *Throughput*: rows/s of a job whose epochs change 1 % of the keys, without checkpoints, while they upload, and with a changelog.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate as tg
from benchmarks import harness, streams
from tidegate.checkpoint.files.task_part import decode_part, digest_of
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import TaskState
from tidegate.checkpoint.task.assignment import TaskRestore
from tidegate.checkpoint.task.version_restore import RestoreOrder, restore
from tidegate.checkpoint.task.version_upload import Stored, UploadOrder, VersionUpload
from tidegate.core.ids import AttemptId, EpochId, Slot, TaskId, Term
from tidegate.state.backends import backend_named
from tidegate.state.changelog import without_changelog
from tidegate.state.disk.version_directory import version_path
from tidegate.state.keys.entry_keys import state_prefix
from tidegate.state.version import VersionId
from tidegate.storage import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK, TERM, LAYOUT = TaskId(1, Slot(0)), Term(1), JobLayout("bench")
GROUPS = 128
VALUE_BYTES = 100


@dataclass(frozen=True, slots=True)
class Size:
    repetitions: int = 3
    keys: int = 5_000_000
    intervals: int = 20
    changelog_keys: int = 500_000
    changelog_intervals: int = 200
    job_epochs: int = 60
    job_load_epochs: int = 5


QUICK = Size(
    repetitions=1,
    keys=20_000,
    intervals=4,
    changelog_keys=20_000,
    changelog_intervals=8,
    job_epochs=4,
    job_load_epochs=1,
)


def run(
    json_path: Path, quick: bool, *, repetitions: int | None = None, only: list[str] | None = None
) -> dict[str, Any]:
    size = QUICK if quick else Size()
    rounds = repetitions or size.repetitions
    parts = only or ["files", "changelog", "throughput"]
    result: dict[str, Any] = {"size": asdict(size) | {"repetitions": rounds}, "figures": {}, "ratios": {}}
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
        if "files" in parts:
            _files(Path(scratch), size, rounds, result)
        if "changelog" in parts:
            _changelog(Path(scratch), size, result)
        if "throughput" in parts:
            _throughput(Path(scratch), size, rounds, result)
    return result


# -- a version and its files -------------------------------------------------------------------------------------------


class _Task:
    """One task's directory, filled with keys of 100 bytes."""

    def __init__(self, work: Path, keys: int, backend: str = "rocksdb") -> None:
        self.directory, self.keys = work / "task", keys
        self.backend = backend_named(backend)
        self.number, self.version = 0, None
        for first in range(0, keys, 250_000):
            self.change(range(first, min(keys, first + 250_000)))

    def change(self, keys: Any) -> int:
        """Write these keys anew. Answer: how many bytes of keys and values that is."""
        self.number += 1
        target = VersionId(EpochId(TERM, self.number), AttemptId(self.number))
        store = self.backend.begin(self.directory, self.version, target, (0, GROUPS - 1))
        rows = [(state_prefix(n % GROUPS, 1) + b"%012d" % n, random.randbytes(VALUE_BYTES)) for n in keys]
        store.write(rows)
        store.seal()
        self.backend.tidy(self.directory, TERM, [target])
        self.version = target
        return sum(len(key) + len(value) for key, value in rows)

    @property
    def path(self) -> Path:
        return version_path(self.directory, self.version)

    def upload(
        self, storage: LocalStorage, id: int, base: tuple[int, TaskState] | None = None, *, changelog: bool = False,
        whole: tuple[int, TaskState] | None = None,
    ) -> TaskState:  # fmt: skip
        """`base` is the last checkpoint, `whole` a version that was stored in the background since."""
        order = UploadOrder(
            checkpoint_id=id,
            version=self.version,
            base=None if base is None else Stored(TERM, base[0], digest_of(base[1])),
            inline_threshold=0,
            inline_total=0,
            changelog=changelog,
            materialized=None if whole is None else Stored(TERM, whole[0], digest_of(whole[1])),
        )
        upload = VersionUpload(storage, LAYOUT, self.directory, TASK, TERM, order)
        manifest = self.backend.manifest(self.directory, self.version)
        part = upload.run(manifest, AttemptId(1), lambda: True, lambda: None)
        assert part is not None
        return decode_part(part)[0]


def _files(work: Path, size: Size, rounds: int, result: dict[str, Any]) -> None:
    harness.say(f"filling a version with {size.keys:,} keys")
    task = _Task(work, size.keys)
    storage = LocalStorage(work / "storage")
    state = task.upload(storage, 1)
    megabytes = state.size_bytes / 1e6
    harness.say(f"{megabytes:,.0f} MB in {len(state.files)} files")
    copies = _Copies(work, task, storage, state, megabytes)
    speeds = harness.interleave(
        {"upload": copies.upload, "restore": copies.restore, "plain copy": copies.plain},
        rounds,
        what="copy",
        unit="MB/s",
    )
    ratios, figures = [], []
    known, chance = (1, state), random.Random(7)
    for interval in range(size.intervals):
        changed = task.change(sorted(chance.sample(range(size.keys), size.keys // 100)))
        after = task.upload(storage, 100_000 + interval, known)
        known = (100_000 + interval, after)
        figures.append(after.delta_bytes(100_000 + interval))
        ratios.append(figures[-1] / changed)
    result["state_mb"] = megabytes
    result["figures"] |= {name: figure.as_json() for name, figure in speeds.items()}
    result["figures"]["bytes uploaded per byte changed"] = harness.Figure("", tuple(ratios)).as_json()
    result["ratios"] |= {
        "upload / plain copy": harness.ratio(speeds, "upload", "plain copy"),
        "restore / plain copy": harness.ratio(speeds, "restore", "plain copy", at_least=0.7),
        "write amplification": _amplification(ratios),
        "full upload / mean increment": harness.bounded(state.size_bytes / (sum(figures) / len(figures))),
    }


def _amplification(ratios: list[float]) -> dict[str, Any]:
    """Bounded: over the whole run, compaction included, an increment stays far below the full state (100 × a change)."""
    mean = sum(ratios) / len(ratios)
    return harness.bounded(mean, at_most=30) | {"rounds": ratios}


_WHOLE_EVERY = 50


def _stored_bytes(folder: Path) -> int:
    """All that was ever stored: nothing is deleted meanwhile."""
    return sum(path.stat().st_size for path in (folder / "storage").rglob("*") if path.is_file())


@dataclass(slots=True)
class _Intervals:
    """What each interval took: bytes stored for each byte changed, seconds until the version was sealed and from then until it
    was stored, processor seconds. Whole versions in the background count apart."""

    stored: list[float] = field(default_factory=list)
    sealed_s: list[float] = field(default_factory=list)
    uploaded_s: list[float] = field(default_factory=list)
    processor_s: list[float] = field(default_factory=list)
    whole_mb: list[float] = field(default_factory=list)
    whole_processor_s: list[float] = field(default_factory=list)
    restored_s: float = 0.0

    def figures(self, name: str) -> dict[str, Any]:
        told = {
            f"bytes stored per byte changed, {name}": harness.Figure("", tuple(self.stored)),
            f"an epoch until it is sealed, {name}": harness.Figure("s", tuple(self.sealed_s)),
            f"its upload, {name}": harness.Figure("s", tuple(self.uploaded_s)),
            f"processor for both, {name}": harness.Figure("s", tuple(self.processor_s)),
            f"restore, {name}": harness.Figure("s", (self.restored_s,)),
        }
        if self.whole_mb:
            told["whole versions in the background"] = harness.Figure("MB", tuple(self.whole_mb))
        return {key: figure.as_json() for key, figure in told.items()}

    def mean_processor_s(self) -> float:
        return (sum(self.processor_s) + sum(self.whole_processor_s)) / len(self.processor_s)


def _changelog(work: Path, size: Size, result: dict[str, Any]) -> None:
    """The same changes with and without a changelog."""
    plain, logged = _intervals(work / "files", size, False), _intervals(work / "changes", size, True)
    for name, each in (("without a changelog", plain), ("changelog", logged)):
        result["figures"] |= each.figures(name)
        mean = sum(each.stored) / len(each.stored)
        harness.say(f"{name}: p99 {_p99(each.stored):.2f}, mean {mean:.2f} bytes for each changed byte")
    result["ratios"] |= {
        "changelog: bytes per byte changed, p99": harness.bounded(_p99(logged.stored), at_most=1.3),
        "without a changelog: bytes per byte changed, p99": harness.bounded(_p99(plain.stored)),
        "upload with / without a changelog, p99": harness.bounded(_p99(logged.uploaded_s) / _p99(plain.uploaded_s)),
        "seal with / without a changelog, p99": harness.bounded(_p99(logged.sealed_s) / _p99(plain.sealed_s)),
        "processor with / without a changelog, mean": harness.bounded(
            logged.mean_processor_s() / plain.mean_processor_s()
        ),
        "processor with / without a changelog, p99": harness.bounded(
            _p99(logged.processor_s) / _p99(plain.processor_s)
        ),
        "restore with / without a changelog": harness.bounded(logged.restored_s / plain.restored_s),
    }


def _p99(samples: list[float]) -> float:
    return sorted(samples)[round(0.99 * (len(samples) - 1))]


def _intervals(folder: Path, size: Size, changelog: bool) -> _Intervals:
    harness.say(f"{size.changelog_intervals} intervals, {'changelog' if changelog else 'without a changelog'}")
    chance, took, ids = random.Random(11), _Intervals(), count(1)
    task = _Task(folder, size.changelog_keys, "rocksdb+changelog" if changelog else "rocksdb")
    storage, whole = LocalStorage(folder / "storage"), None
    known = (id := next(ids)), task.upload(storage, id)
    for number in range(1, size.changelog_intervals + 1):
        keys = sorted(chance.sample(range(size.changelog_keys), size.changelog_keys // 100))
        before, begun, worked = _stored_bytes(folder), time.monotonic(), time.process_time()
        changed = task.change(keys)
        sealed = time.monotonic()
        known = (id := next(ids)), task.upload(storage, id, known, changelog=changelog, whole=whole)
        took.processor_s.append(time.process_time() - worked)
        took.uploaded_s.append(time.monotonic() - sealed)
        took.sealed_s.append(sealed - begun)
        took.stored.append((_stored_bytes(folder) - before) / changed)
        whole = None
        if changelog and number % _WHOLE_EVERY == 0:
            before, worked = _stored_bytes(folder), time.process_time()
            whole = (id := next(ids)), task.upload(storage, id, known)
            took.whole_processor_s.append(time.process_time() - worked)
            took.whole_mb.append((_stored_bytes(folder) - before) / 1e6)
    plan = TaskRestore(task=TASK, key_groups=(0, GROUPS - 1), as_is=TASK)
    order = RestoreOrder(plan=plan, sources=(known[1],), root=LAYOUT.root, stored=None)
    target = VersionId(EpochId(Term(2), 1), AttemptId(1))
    begun = time.monotonic()
    restore(storage, folder / "restored", order, without_changelog(task.backend), {}, target)
    took.restored_s = time.monotonic() - begun
    shutil.rmtree(folder)
    return took


class _Copies:
    def __init__(self, work: Path, task: _Task, storage: LocalStorage, state: TaskState, megabytes: float) -> None:
        self._work, self._task, self._storage, self._state, self._megabytes = work, task, storage, state, megabytes
        self._count = 1

    def upload(self) -> float:
        self._count += 1
        harness.drop_cache(self._task.path)
        return self._speed(lambda: self._task.upload(self._storage, self._count))

    def restore(self) -> float:
        target = self._work / "elsewhere"
        harness.drop_cache(self._work / "storage")
        plan = TaskRestore(task=TASK, key_groups=(0, GROUPS - 1), as_is=TASK)
        order = RestoreOrder(plan=plan, sources=(self._state,), root=LAYOUT.root, stored=None)
        version = VersionId(EpochId(Term(2), 1), AttemptId(1))
        speed = self._speed(lambda: restore(self._storage, target, order, self._task.backend, {}, version))
        shutil.rmtree(target)
        return speed

    def plain(self) -> float:
        target = self._work / "plain"
        harness.drop_cache(self._task.path)
        speed = self._speed(lambda: shutil.copytree(self._task.path, target))
        shutil.rmtree(target)
        return speed

    def _speed(self, act: Callable[[], Any]) -> float:
        begin = time.monotonic()
        act()
        return self._megabytes / (time.monotonic() - begin)


# -- a job ---------------------------------------------------------------------------------------------------------------


class Keep(tg.KeyedProcessFunction):
    last = tg.ValueState(bytes)

    def process_element(self, row, ctx):
        self.last.update(row.v)
        yield (row.k,)


def _throughput(work: Path, size: Size, rounds: int, result: dict[str, Any]) -> None:
    harness.say("preparing data")
    folder = _job_data(work / "in", size)
    partitions = 2 * len(os.sched_getaffinity(0))
    spark = streams.session(partitions)
    job = _Job(spark, work, folder, size, partitions)
    try:
        rates = harness.interleave(
            {
                "without checkpoints": lambda: job.rate(None),
                "with checkpoints": lambda: job.rate("5 s"),
                "with a changelog": lambda: job.rate("5 s", changelog=True),
            },
            rounds,
            what="rate",
            unit="rows/s",
        )
    finally:
        spark.stop()
    result["figures"] |= {f"rate {name}": figure.as_json() for name, figure in rates.items()}
    result["ratios"]["throughput with / without checkpoints"] = harness.ratio(
        rates, "with checkpoints", "without checkpoints", at_least=0.9
    )
    result["ratios"]["throughput with a changelog / without checkpoints"] = harness.ratio(
        rates, "with a changelog", "without checkpoints", at_least=0.9
    )
    result["checkpoints"] = job.checkpoints


def _job_data(folder: Path, size: Size) -> Path:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    chance = np.random.default_rng(7)
    chunk = size.keys // size.job_load_epochs

    def write(number: int, keys: Any) -> None:
        values = [chance.bytes(VALUE_BYTES) for _ in range(len(keys))]
        table = pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.binary())})
        path = folder / f"{number:05d}.parquet"
        pq.write_table(table, path, compression="none")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    for number in range(size.job_load_epochs):
        write(number, np.arange(number * chunk, (number + 1) * chunk))
    for number in range(size.job_epochs):
        write(size.job_load_epochs + number, chance.integers(0, size.keys, size.keys // 100))
    return folder


class _Job:
    def __init__(self, spark: SparkSession, work: Path, folder: Path, size: Size, partitions: int) -> None:
        self._spark, self._work, self._folder, self._size, self._partitions = spark, work, folder, size, partitions
        self._runs = 0
        self.checkpoints: list[dict[str, int]] = []

    def rate(self, interval: str | None, *, changelog: bool = False) -> float:
        """Rows/s of the epochs that change 1 % of the keys, after those that fill the state."""
        self._runs += 1
        work = self._work / f"run-{self._runs}"
        job = tg.Job("keep", parallelism=self._partitions)
        rows = self._spark.readStream.schema("k bigint, v binary").option("maxFilesPerTrigger", 1)
        kept = job.source("rows", rows.parquet(str(self._folder))).key_by("k")
        kept.process("keep", Keep(), schema="k bigint").sink("out", tg.DiscardSink())
        checkpoint = (
            None
            if interval is None
            else tg.Checkpointing(dir=str(work / "checkpoints"), interval=interval, incremental=True)
        )
        running = job.start(
            self._spark, trigger="available-now", state_backend="rocksdb", checkpoint=checkpoint,
            options={"local_dir": str(work / "local"), "state.changelog.enabled": changelog},
        )  # fmt: skip
        running.await_termination()
        epochs = streams.epochs_of(running.query)[self._size.job_load_epochs :]
        if running.checkpoints is not None:
            self.checkpoints += [
                {
                    "id": s.id,
                    "bytes": s.checkpointed_size_bytes,
                    "full_bytes": s.state_size_bytes,
                    "ms": s.end_to_end_ms,
                }
                for s in reversed(running.checkpoints.history())
            ]
        shutil.rmtree(work, ignore_errors=True)
        return sum(epoch.rows for epoch in epochs) / sum(epoch.seconds for epoch in epochs)
