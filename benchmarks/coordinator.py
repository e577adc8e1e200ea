"""What a checkpoint costs the driver, without Spark: time, memory and requests to storage, whatever the size of the state.

The product's classes run against a storage that keeps its objects in memory and counts requests as an object store would
charge them: a delete is one request per 1,000 names, and so is a listing. What tasks do is made up: each acknowledges a list
of 1,000 files of which it has replaced ten, and has stored that list. Lists that nobody reads are not kept. Seconds are those
of the processor: the driver waits for nothing here.

- *checkpoint*: from the request to the metadata (`Coordinator`, `read_part`, `encode`), its publication, and the deletion of
  what the dropped one leaves. Once with every task changing 1 % of its files, once with 1 % of the tasks doing so.
- *start*: claim, recovery and restore orders at full size.
- *waiting output*: 1,000 slots and 100 epochs that a target has not taken; see `waiting_output`.
- *log*: the same at ten thousand and ten million log entries. The entries below the last ones are made up when they are read,
  since no entry but the last is looked at more closely.
"""

from __future__ import annotations

import builtins
import gc
import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks import harness, waiting_output
from tidegate.checkpoint.completed.cleaner import Cleaner
from tidegate.checkpoint.completed.completed_store import CompletedCheckpointStore, Draft
from tidegate.checkpoint.coordination.coordinator import Action, CompleteCheckpoint, Coordinator, StartUpload
from tidegate.checkpoint.coordination.pending import PendingCheckpoint
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.coordination.timing import Cadence, Timing
from tidegate.checkpoint.effects import perform
from tidegate.checkpoint.files.contents import contents_of, reader
from tidegate.checkpoint.files.task_part import ListChange, encode_part, list_digest, read_part
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.claim import claim
from tidegate.checkpoint.job_log.entry import Signature
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    OperatorInfo,
    SnapshotKind,
    StateInfo,
    StoredFileList,
    TaskState,
    checksum_in,
    decode,
    encode,
)
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Uid
from tidegate.runtime.checkpoints.restore_point import RestorePoint
from tidegate.state.keys.key_groups import range_of_slot
from tidegate.state.version import VersionId
from tidegate.storage.errors import ObjectMissing
from tidegate.storage.port import Lost, Nonce, StoredObject, Won, new_nonce

LAYOUT, LINE = JobLayout("bench"), Lineage("line")
PAGE = 1_000
"""Names per request, for listings and deletes."""


@dataclass(frozen=True, slots=True)
class Size:
    repetitions: int = 5
    tasks: int = 10_000
    files: int = 1_000
    changed: int = 10
    few_entries: int = 10_000
    many_entries: int = 10_000_000
    waiting_slots: int = 1_000
    waiting_epochs: int = 100


QUICK = Size(
    repetitions=2,
    tasks=200,
    files=50,
    changed=1,
    few_entries=100,
    many_entries=10_000,
    waiting_slots=50,
    waiting_epochs=5,
)


def run(
    json_path: Path, quick: bool, *, repetitions: int | None = None, only: list[str] | None = None
) -> dict[str, Any]:
    size = QUICK if quick else Size()
    size = replace(size, repetitions=repetitions or size.repetitions)
    result: dict[str, Any] = {"size": asdict(size), "figures": {}, "ratios": {}}
    job = _Job(size, size.many_entries)
    job.start()
    job.checkpoint(1.0)
    samples: dict[str, list[_Cost]] = {"all tasks change": [], "1 % of the tasks change": []}
    for name, share in (("all tasks change", 1.0), ("1 % of the tasks change", 0.01)):
        job.checkpoint(share)
        for _ in range(size.repetitions):
            samples[name].append(job.checkpoint(share))
            harness.say(f"{name}: {samples[name][-1]}")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for name, costs in samples.items():
        _report(result, name, costs, size)
    starts = {entries: _starts(job, entries, size.repetitions) for entries in (size.few_entries, size.many_entries)}
    few, many = starts[size.few_entries], starts[size.many_entries]
    result["figures"]["start"] = harness.Figure("s", tuple(seconds for seconds, _ in many)).as_json()
    result["figures"]["peak memory of the process"] = harness.Figure("MB", (peak_mb,)).as_json()
    long_log, short_log = [each.seconds for each in samples["all tasks change"]], _at_few_entries(size)
    result["figures"]["all tasks change, short log"] = harness.Figure("s", tuple(short_log)).as_json()
    start_s, short_start_s = (_median([seconds for seconds, _ in each]) for each in (many, few))
    result["ratios"] |= {
        "peak memory of the process, in GB": harness.bounded(peak_mb / 1024, at_most=1.0),
        "start, in seconds": harness.bounded(start_s, at_most=5.0),
        "checkpoint at many / few log entries": harness.bounded(_median(long_log) / _median(short_log), at_most=1.2),
        "start at many / few log entries": harness.bounded(start_s / short_start_s, at_most=1.2),
        "requests of a start": harness.bounded(max(requests for _, requests in many), at_most=100),
    }
    waiting = waiting_output.Waiting(size.waiting_slots, size.waiting_epochs)
    waiting_output.measure(result, waiting, size.repetitions, _Job(size, size.few_entries).claimed())
    return result


def _report(result: dict[str, Any], name: str, costs: list[_Cost], size: Size) -> None:
    result["figures"][name] = harness.Figure("s", tuple(each.seconds for each in costs)).as_json()
    result["figures"][f"{name}, memory held more"] = harness.Figure(
        "MB", tuple(each.grown_mb for each in costs)
    ).as_json()
    result["figures"][f"{name}, requests"] = harness.Figure("", tuple(float(each.requests) for each in costs)).as_json()
    result["figures"][f"{name}, metadata"] = harness.Figure("MB", tuple(each.metadata_mb for each in costs)).as_json()
    changed = max(1, round(size.tasks * (1.0 if name.startswith("all") else 0.01)))
    most = max(each.requests for each in costs)
    result["ratios"] |= {
        f"{name}, in seconds": harness.bounded(_median([each.seconds for each in costs]), at_most=2.0),
        f"{name}, requests / (changed tasks + 50)": harness.bounded(most / (changed + 50), at_most=1.0),
    }


def _at_few_entries(size: Size) -> list[float]:
    job = _Job(size, size.few_entries)
    job.start()
    job.checkpoint(1.0)
    job.checkpoint(1.0)
    return [job.checkpoint(1.0).seconds for _ in range(size.repetitions)]


def _starts(job: _Job, log_entries: int, repetitions: int) -> list[tuple[float, int]]:
    job.storage.lengthen(log_entries)
    found = [job.start() for _ in range(repetitions)]
    harness.say(f"start with {log_entries:,} log entries: {found}")
    return found


def _median(values: list[float]) -> float:
    return harness.Figure("", tuple(values)).median


class CountingStorage:
    """Objects in memory. Lists of tasks are not kept, and log entries below the last ones are made up."""

    url = "memory://bench"

    def __init__(self, first_slot: int) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: Counter[str] = Counter()
        self._first_slot = first_slot
        """Entries below it are made up."""

    def lengthen(self, log_entries: int) -> None:
        """Move the end of the log: the newest entry becomes the one of this slot."""
        names = [name for name in self.objects if "/log/" in name or "/entries/" in name]
        if names:
            last = max((entries.from_bytes(self.objects[name], name) for name in names), key=lambda entry: entry.slot)
            for name in names:
                del self.objects[name]
            moved = replace(last, slot=log_entries, folder=log_entries, next_folder=log_entries)
            self.objects[LAYOUT.log(log_entries, log_entries)] = entries.to_bytes(moved)
            self.objects.pop(LAYOUT.owner, None)
        self._first_slot = log_entries

    def put(self, path: str, data: bytes) -> None:
        self.requests["put"] += 1
        self.objects[path] = data

    def create(self, path: str, data: bytes, nonce: Nonce) -> Won | Lost:
        self.requests["put"] += 1
        existing = self.objects.setdefault(path, data)
        return Won() if existing == data else Lost(existing)

    def get(self, path: str) -> bytes:
        self.requests["get"] += 1
        found = self.objects.get(path)
        if found is None and "/log/" in path and int(path.rpartition("/")[2]) < self._first_slot:
            return self._made_up(int(path.rpartition("/")[2]))
        if found is None:
            raise ObjectMissing(self.url, path, f"{path} is missing")
        return found

    def _made_up(self, slot: int) -> bytes:
        claimed = entries.claim(None, Signature(new_nonce(), "former", slot), LINE, None)
        return entries.to_bytes(replace(claimed, slot=slot, next_folder=slot + 1))

    def size(self, path: str) -> int:
        return len(self.get(path))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self.get(path)[start : start + length]

    def list(self, prefix: str = "", after: str | None = None) -> builtins.list[StoredObject]:
        found = [StoredObject(p, len(d)) for p, d in sorted(self.objects.items()) if p.startswith(f"{prefix}/")]
        self.requests["list"] += 1 + len(found) // PAGE
        return found

    def folders(self, prefix: str = "") -> builtins.list[str]:
        below = (p[len(prefix) + 1 :] for p in self.objects if p.startswith(f"{prefix}/"))
        found = sorted({p.partition("/")[0] for p in below if "/" in p})
        self.requests["list"] += 1 + len(found) // PAGE
        return found

    def delete(self, paths: Iterable[str]) -> None:
        names = builtins.list(paths)
        self.requests["delete"] += -(-len(names) // PAGE)
        for name in names:
            self.objects.pop(name, None)

    def sweep(self, prefix: str = "") -> int:
        return 0


@dataclass(frozen=True, slots=True)
class _Cost:
    seconds: float
    requests: int
    grown_mb: float
    metadata_mb: float


class _Task:
    """What a task would know: its list, by the names of objects."""

    __slots__ = ("digest", "files", "id", "names")

    def __init__(self, id: TaskId) -> None:
        self.id = id
        self.names: list[str] = []
        self.files: StoredFileList | None = None
        self.digest: bytes | None = None


class _Job:
    """A driver of a big job, from checkpoint to checkpoint."""

    def __init__(self, size: Size, log_entries: int) -> None:
        self.size, self.storage = size, CountingStorage(log_entries)
        self._numbers, self._clock = count(1), count(1_000)
        self._tasks = [_Task(TaskId(1, Slot(slot))) for slot in range(size.tasks)]
        self._chance = random.Random(7)
        self._epoch, self._metadata = 0, b""
        state = StateInfo(name="total", id=1, kind="value", value={"type": "float"})
        self._operators = (OperatorInfo(Uid("totals"), 1, size.tasks, "rocksdb", {"type": "str"}, (state,)),)

    # -- start -------------------------------------------------------------------------------------------------------

    def start(self) -> tuple[float, int]:
        """Claim, recover, plan the restore. Return seconds and requests."""
        before, begin = self.storage.requests.total(), time.process_time()
        entry = self._perform(claim(LAYOUT, Start(), self._sign, lambda: LINE, 0, force=True))
        self._store = CompletedCheckpointStore(LAYOUT, entry, reader(lambda c: c.staged), self._sign)
        body = self._perform(self._store.recover())
        if body is not None:
            base = entry.base
            point = RestorePoint(
                lineage=LINE,
                term=entry.term,
                snapshot=decode(body),
                root=LAYOUT.root,
                stored=(base.term, base.id),
                storage=self.storage,  # type: ignore[arg-type]
            )
            orders = point.orders(self._described(), False, {})
            assert len(orders) == self.size.tasks
        tasks = [task.id for task in self._tasks]
        self._coordinator = Coordinator(Timing(Cadence(None)), tasks, entry.last_id, entry.base)
        self._cleaner = Cleaner(self._store)
        took = time.process_time() - begin
        self._epoch = 0
        return took, self.storage.requests.total() - before

    def claimed(self) -> Any:
        """The store of a new owner, and how protocols are performed."""
        self.start()
        return SimpleNamespace(store=self._store, perform=self._perform)

    def _described(self) -> Any:
        """The part of a `JobDescription` that restore orders depend on."""
        tasks = self.size.tasks
        return SimpleNamespace(
            operators=self._operators, sources=(), parallelism=tasks, max_parallelism=tasks, dropped_states=frozenset()
        )

    # -- a checkpoint ------------------------------------------------------------------------------------------------

    def checkpoint(self, share: float) -> _Cost:
        """One checkpoint with this share of the tasks changed. What tasks do is not measured."""
        self._epoch += 1
        epoch = EpochId(self._store.term, self._epoch)
        coordinator = self._coordinator
        seconds, before = 0.0, self.storage.requests.total()
        gc.collect()
        grown = _resident_mb()
        actions, took = _timed(lambda: self._request(epoch))
        seconds += took
        started = next(action for action in actions if isinstance(action, StartUpload))
        parts = list(self._uploads(started, share))
        publish, took = _timed(lambda: self._acknowledge(started.id, parts))
        seconds += took
        parts.clear()
        _, took = _timed(lambda: self._publish(publish.pending))
        seconds += took
        assert not coordinator.pending
        gc.collect()
        requests = self.storage.requests.total() - before
        return _Cost(seconds, requests, _resident_mb() - grown, len(self._metadata) / 1e6)

    def _request(self, epoch: EpochId) -> list[Action]:
        now = self._now()
        actions = self._coordinator.epoch_finished(epoch, True, now)
        return actions + self._coordinator.request(
            CheckpointRequest(kind=RequestKind.MANUAL, at_ms=now.monotonic_ms), now
        )

    def _uploads(self, started: StartUpload, share: float) -> Iterable[bytes]:
        """What each task sends. Of the lists only what the driver gets to see is made: lengths and digests are made up."""
        size = self.size
        changing = set(self._chance.sample(range(size.tasks), max(1, round(size.tasks * share))))
        version = VersionId(started.epoch, AttemptId(1))
        for number, task in enumerate(self._tasks):
            change = ListChange(task.digest, (), ())
            if number in changing or task.files is None:
                change = self._changed(task, started.id)
            assert task.files is not None
            groups = range_of_slot(number, size.tasks, size.tasks)
            state = TaskState(task=task.id, key_groups=groups, backend="rocksdb", version=version, files=task.files)
            yield encode_part(state, change)

    def _changed(self, task: _Task, id: int) -> ListChange:
        size, base, old = self.size, task.digest, task.files
        new = [self._name(task, id) for _ in range(size.changed)]
        # Of a thousand names only a few exist here: those that the next changes release.
        released = [] if base is None else task.names[: size.changed]
        task.names = [*task.names[len(released) :], *new]
        path = self._name(task, id)
        task.files = StoredFileList(
            path=path.removeprefix(f"{LAYOUT.root}/"),
            stored_bytes=140 * size.files,
            checksum=f"sha256:{next(self._numbers):064x}",
            count=size.files,
            size_bytes=size.files << 20,
            since=(id, size.changed << 20),
        )
        task.digest = list_digest(task.files)
        if old is not None:
            released.append(f"{LAYOUT.root}/{old.path}")
        return ListChange(base, (*new, path), tuple(released))

    def _name(self, task: _Task, id: int) -> str:
        return LAYOUT.shared(self._store.term, task.id, AttemptId(1), id, f"{next(self._numbers):032x}")

    def _acknowledge(self, id: int, parts: Iterable[bytes]) -> CompleteCheckpoint:
        actions: list[Action] = []
        for data in parts:
            actions = self._coordinator.acknowledge(read_part(data).acknowledges(id), self._now())
        return next(action for action in actions if isinstance(action, CompleteCheckpoint))

    def _publish(self, pending: PendingCheckpoint) -> None:
        store, now = self._store, self._now()
        before = store.entry.retained
        metadata = CheckpointMetadata(
            job=LAYOUT.job,
            lineage=LINE,
            checkpoint_id=pending.id,
            term=store.term,
            epoch=pending.epoch,
            kind=SnapshotKind.CHECKPOINT,
            triggered_ms=0,
            completed_ms=1,
            tidegate_version="0",
            spark_version="4",
            max_parallelism=self.size.tasks,
            parallelism=self.size.tasks,
            clock_ms=0,
            operators=self._operators,
            tasks=tuple(pending.states.values()),
        )
        data = self._metadata = encode(metadata)
        draft = Draft(
            id=pending.id,
            epoch=pending.epoch,
            metadata=data,
            checksum=checksum_in(data),
            contents=contents_of(LAYOUT.metadata(pending.id), metadata, lambda c: c.staged),
            changes={str(task): ack.change for task, ack in pending.acks.items()},
        )
        ref = self._perform(store.append_checkpoint(draft))
        dropped = [old.id for old in before if old not in store.entry.retained]
        self._coordinator.on_completed(pending.id, ref, dropped, now)
        self._perform(self._cleaner.clean(self._coordinator.in_flight()))
        if self._cleaner.wants_sweep:
            self._perform(self._cleaner.sweep(self._coordinator.in_flight()))
        self._coordinator.cleaned(len(dropped), now)

    def _perform(self, steps: Any) -> Any:
        return perform(steps, self.storage, sleep=lambda seconds: None)  # type: ignore[arg-type]

    def _sign(self) -> Signature:
        return Signature(new_nonce(), "bench", next(self._clock))

    def _now(self) -> Instant:
        ms = next(self._clock)
        return Instant(MonotonicMs(ms), WallMs(ms))


def _timed(act: Callable[[], Any]) -> tuple[Any, float]:
    """The processor time of this process: storage is in memory, so the driver never waits, and other processes do not count."""
    begin = time.process_time()
    result = act()
    return result, time.process_time() - begin


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6
