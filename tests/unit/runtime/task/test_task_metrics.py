"""What a task reports of itself with its acknowledgement. No Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.tiers.profiles import examples
from tests.unit.runtime.task.test_task import Level
from tests.unit.runtime.task.test_task_savepoint import feed
from tests.unit.runtime.task.test_upload_behind_rows import Task
from tidegate.core import faults
from tidegate.core.measuring import Measuring, StateTracking
from tidegate.core.times import EpochTime
from tidegate.runtime.exchange.messages import TaskAck, TaskMetrics, encode
from tidegate.state.disk import state_sizes
from tidegate.state.rocksdb.native_metrics import NAMES
from tidegate.state.version import VersionId
from tidegate.storage import StorageUnavailable

NOTHING = Measuring(tasks=False, hot_keys=False)
EVERYTHING = Measuring(latencies=StateTracking(2), sizes=StateTracking(3))
ROCKSDB = {f"state.backend.rocksdb.metrics.{name}": "true" for name in NAMES}


class EveryState(tg.KeyedProcessFunction):
    """Uses all kinds of state, and a timer for each row."""

    n = tg.ValueState(int, default=0)
    seen = tg.ListState(int)
    by_length = tg.MapState(int, int)
    ordered = tg.SortedMapState(int, int)
    most = tg.ReducingState(int, max)

    def process_element(self, row: Any, ctx: Any) -> Any:
        n = self.n.value() + 1
        self.n.update(n)
        self.seen.add(n)
        self.by_length.put(len(row.k), n)
        self.ordered.put(n % 5, n)
        self.most.add(n)
        ctx.timer_service().register_processing_time_timer(10_000 + n)
        yield row.k, sum(self.seen.get()) + sum(self.ordered.values()) + self.most.get()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", timestamp


class SlowForOne(tg.KeyedProcessFunction):
    def open(self, ctx: Any) -> None:
        with ctx.span("connect"):
            pass

    def process_element(self, row: Any, ctx: Any) -> Any:
        with ctx.span("look up"):
            time.sleep(0.02 if row.k == "slow" else 0)
        yield row.k, 1


def run(
    folder: Path, batches: list[list[str]], measuring: Measuring, backend: str = "hashmap", function: Any = None
) -> list[TaskAck]:
    """One epoch for each batch, each on the version of the one before."""
    level = Level(
        folder, function=function or EveryState(), backend=backend, options=ROCKSDB if backend == "rocksdb" else None
    )
    acks: list[TaskAck] = []
    for number, rows in enumerate(batches, 1):
        version = VersionId.parse(acks[-1].version) if acks and acks[-1].version else None
        acks.append(feed(level, rows, number, version=version, measuring=measuring, time=EpochTime(clock_ms=number)))
        assert acks[-1].fault is None
    return acks


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a version, by the task and the version."""
    return {"/".join(path.parts[-3:]): path.read_bytes() for path in folder.rglob("v*/*") if path.is_file()}


def without_figures(ack: TaskAck) -> TaskAck:
    return msgspec.structs.replace(ack, metrics=TaskMetrics(), host="")


@settings(max_examples=examples(15), deadline=None)
@given(batches=st.lists(st.lists(st.sampled_from(["a", "b", "ccc"]), min_size=1, max_size=8), min_size=1, max_size=3))
def test_measuring_changes_neither_the_output_of_a_task_nor_its_state(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[str]]
) -> None:
    off, on = tmp_path_factory.mktemp("off"), tmp_path_factory.mktemp("on")
    plain, measured = run(off, batches, NOTHING), run(on, batches, EVERYTHING)
    assert [without_figures(ack) for ack in measured] == [without_figures(ack) for ack in plain]
    assert files(on) == files(off) != {}


def test_a_task_that_does_not_measure_reports_nothing(tmp_path: Path) -> None:
    (ack,) = run(tmp_path, [["a"]], NOTHING, "rocksdb")
    assert ack.metrics == TaskMetrics()


@pytest.mark.feature("K5")
def test_a_task_reports_the_metrics_of_rocksdb(tmp_path: Path) -> None:
    first, second = run(tmp_path, [["a", "b"], ["a"]], Measuring(), "rocksdb")
    assert first.metrics.store["estimate-num-keys"] > 10
    assert second.metrics.store["block-cache-hit"] + second.metrics.store["block-cache-miss"] > 0
    assert first.metrics.store["num-files-at-level0"] == 0  # Read before the first flush.


@pytest.mark.feature("F36")
def test_a_task_reports_the_memory_of_its_state(tmp_path: Path) -> None:
    first, second = run(tmp_path, [["a", "b"], ["a"]], Measuring(), "rocksdb")
    for ack in (first, second):
        memory = ack.metrics.memory
        assert 0 < memory["blockCacheUsage"] <= memory["blockCacheCapacity"] == 160 << 20
        assert 0 < memory["writeBufferUsage"] <= 64 << 20
        assert 0 < memory["writeCacheUsage"] < 1 << 20
    (heap,) = run(tmp_path / "heap", [["a"]], Measuring())
    assert set(heap.metrics.memory) == {"writeCacheUsage"}


def test_hits_of_the_block_cache_are_counted_in_one_epoch_out_of_ten(tmp_path: Path) -> None:
    acks = run(tmp_path, [["a"]] * 11, Measuring(), "rocksdb")
    assert [ack.number for ack in acks if "blockCacheHitRatio" in ack.metrics.memory] == [11]
    assert 0 <= acks[-1].metrics.memory["blockCacheHitRatio"] <= 1


def test_a_task_reports_sampled_accesses_by_operator_and_state(tmp_path: Path) -> None:
    (ack,) = run(tmp_path, [["a"] * 10], Measuring(latencies=StateTracking(2)))
    found = {(each.state, each.name): each for each in ack.metrics.states}
    assert {each.operator for each in ack.metrics.states} == {"two"}
    assert found["n", "valueStateGetLatency"].count == 5
    assert found["ordered", "mapStateIteratorNextLatency"].count > 5


def test_a_task_reports_its_hot_keys_and_timers(tmp_path: Path) -> None:
    (ack,) = run(tmp_path, [["a", "a", "b", "a"]], Measuring())
    assert [(hot.operator, hot.key, hot.rows) for hot in ack.metrics.hot_keys] == [("two", "a", 3), ("two", "b", 1)]
    assert ack.metrics.pending_timers == {"two": 4}


def test_timers_are_counted_in_one_epoch_out_of_ten(tmp_path: Path) -> None:
    acks = run(tmp_path, [["a"]] * 11, Measuring())
    assert [ack.number for ack in acks if ack.metrics.pending_timers] == [1, 11]


def test_a_task_names_the_key_whose_row_took_longest(tmp_path: Path) -> None:
    (ack,) = run(tmp_path, [["a", "slow", "a", "b"]], Measuring(), function=SlowForOne())
    assert ack.slowest_keys == {"two": {"look up": "slow"}}, "no key is there in `open`"
    assert ack.spans["two"]["look up"][2] >= 20_000


def test_keys_can_be_left_out(tmp_path: Path) -> None:
    (ack,) = run(tmp_path / "one", [["a", "a"]], Measuring(hot_keys=False))
    assert ack.metrics.hot_keys == ()
    (slow,) = run(tmp_path / "two", [["slow"]], Measuring(hot_keys=False), function=SlowForOne())
    assert (set(slow.spans["two"]), slow.slowest_keys) == ({"connect", "look up"}, {})
    assert ack.metrics.bytes_in > 0


def test_an_acknowledgement_stays_small(tmp_path: Path) -> None:
    (ack,) = run(tmp_path, [[f"key {n}" * 20 for n in range(300)] + ["hot"] * 50], EVERYTHING, "rocksdb")
    assert ack.metrics.hot_keys
    assert len(encode(ack.metrics)) < 4_000


def test_uploads_are_counted_with_their_failures(tmp_path: Path) -> None:
    task, failed = Task(tmp_path, "hashmap"), []

    def fail_once(point: str, **context: object) -> None:
        if point == "storage.upload.2-part-stored" and not failed:
            failed.append(point)
            raise StorageUnavailable("local", "shared", "Storage is away for a moment.")

    faults.arm(fail_once)
    try:
        acks = [task.epoch([], task.order, wait_ms=2_000)]
        while not acks[-1].uploads:
            acks.append(task.epoch([], task.order))
    finally:
        faults.arm(None)
    found = [ack.metrics for ack in acks]
    assert (found[0].uploads_queued, found[-1].uploads_queued) == (1, 0)
    assert sum(each.uploads_started for each in found) == 2
    assert sum(each.uploads_failed for each in found) == 1


@pytest.mark.feature("K4")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "rocksdb+changelog"])
def test_a_task_estimates_the_size_of_each_of_its_states(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_sizes, "SECONDS_BETWEEN", 0)
    acks = run(tmp_path, [[f"key {n}" for n in range(200)], ["a"], []], Measuring(), backend)
    for ack in acks:  # The last one has changed nothing, as after a restore.
        found = ack.metrics.state_sizes["two"]
        assert {"n", "seen", "by_length", "ordered", "most"} < found.keys(), "and the timers"
        assert min(found.values()) > 0
        assert sum(found.values()) == pytest.approx(ack.state_bytes, abs=len(found))


def test_a_task_estimates_sizes_at_most_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_sizes, "SECONDS_BETWEEN", 3600)
    first, second = run(tmp_path, [["a"], ["b"]], Measuring())
    assert first.metrics.state_sizes.keys() == {"two"}
    assert second.metrics.state_sizes == {}
