"""A job with checkpoints, stopped and started again in all the ways a user does it: every row counted once."""

from __future__ import annotations

import json
import re
import shutil
import threading
import uuid
from collections import Counter
from pathlib import Path

import httpx
import pytest

import tidegate as tg
from tests.integration.inputs import write_batches
from tests.waiting import eventually, files_below, remove
from tidegate.checkpoint.completed.retained import SnapshotNotFound
from tidegate.checkpoint.coordination.savepoint_target import BadSavepointTarget
from tidegate.checkpoint.job_log.start import StartRefused
from tidegate.checkpoint.task.assignment import UnclaimedState
from tidegate.config import OptionError
from tidegate.core import faults
from tidegate.core.errors import PreconditionFailed, RestoreError, TidegateError, UserCodeError
from tidegate.core.ids import ordinal
from tidegate.runtime.checkpoints.owned_term import UnclaimedOutput
from tidegate.runtime.driver.attempt import Attempt
from tidegate.runtime.driver.job_run import JobRun
from tidegate.runtime.driver.runs_here import RUNS_HERE
from tidegate.runtime.epochs import sent_assignments
from tidegate.runtime.epochs.runner import EpochRunner
from tidegate.savepoint.changes import Changes
from tidegate.savepoint.copy import copy_snapshot
from tidegate.savepoint.restore_compatibility import StateChanged
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.storage import StorageMisconfigured, open_storage

BACKENDS = pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
KEYS = 7


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.k, self.n.value()


class CountAsFloat(Count):
    n = tg.ValueState(float, default=0.0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.k, int(self.n.value())


class CountAsText(Count):
    n = tg.ValueState(str, default="0")


class Fails(Count):
    """Raises at one row until the epoch was given up once, which is tried twice."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def process_element(self, row, ctx):
        tried = Path(self.folder)
        tried.mkdir(exist_ok=True)
        if row.i == 30 and len(list(tried.iterdir())) < 2:
            (tried / uuid.uuid4().hex).touch()
            raise ConnectionError("not today")
        yield from super().process_element(row, ctx)


class Shop:
    """One job and its folders. Each start builds it anew, as a new process would."""

    def __init__(self, spark, folder: Path) -> None:
        self.spark, self.folder, self.rows = spark, folder, 0
        self.runs: list[JobRun] = []

    def feed(self, files: int) -> Shop:
        for _ in range(files):
            batch = [(i % KEYS, i) for i in range(self.rows, self.rows + 10)]
            write_batches(self.folder / "in", "k int, i bigint", [batch], self.rows // 10)
            self.rows += 10
        return self

    def job(self, function=None, *, parallelism=2, uid="count", name="shop"):
        job = tg.Job(name, parallelism=parallelism)
        source = self.spark.readStream.schema("k int, i bigint").option("maxFilesPerTrigger", 1)
        rows = job.source("rows", source.parquet(str(self.folder / "in")))
        counted = rows.key_by("k").process(uid, function or Count(), schema="k int, n bigint")
        counted.sink("out", tg.FileSink(str(self.folder / "out")))
        return job

    def choices(self, backend="hashmap", interval="1 s", options=None, **checkpoint):
        where = tg.Checkpointing(
            dir=str(self.folder / "checkpoints"), interval=interval, incremental=True, **checkpoint
        )
        chosen = {"local_dir": str(self.folder / "local"), **(options or {})}
        return {"checkpoint": where, "state_backend": backend, "options": chosen}

    def run(self, function=None, *, parallelism=2, uid="count", name="shop", **choices):
        job = self.job(function, parallelism=parallelism, uid=uid, name=name)
        job.run(self.spark, trigger="available-now", **self.choices(**choices))
        return self

    def start(self, **choices):
        self.runs.append(self.job().start(self.spark, **self.choices(**choices)))
        return self.runs[-1]

    def out(self) -> list[tuple[int, int]]:
        found = []
        for path in (self.folder / "out").glob("*.json"):
            found += [(row["k"], row["n"]) for row in map(json.loads, path.read_text().splitlines())]
        return sorted(found)

    def exact(self, rows: int | None = None) -> bool:
        times = Counter(i % KEYS for i in range(self.rows if rows is None else rows))
        return self.out() == sorted((k, n + 1) for k, count in times.items() for n in range(count))

    def end(self) -> None:
        """What a failing test left behind must not make the next ones fail: a name is for one running job."""
        for run in self.runs:
            if not run.has_ended:
                run.cancel()

    def newest(self) -> Path:
        return max((self.folder / "checkpoints" / "shop").glob("chk-*"), key=lambda p: int(p.name.split("-")[1]))


@pytest.fixture
def shop(spark, tmp_path):
    shop = Shop(spark, tmp_path).feed(3)
    yield shop
    shop.end()


@pytest.mark.feature("C4", "H2")
def test_a_job_resumes_wherever_its_log_of_files_was_when_it_ended(shop, spark):
    """Spark tells from two compact entries how often its log has one, and from one alone something else."""
    setting = "spark.sql.streaming.fileSource.log.compactInterval"
    spark.conf.set(setting, "3")
    try:
        for files in (5, 8, 1):
            assert shop.feed(files).run().exact()
        spark.conf.set(setting, "4")
        assert shop.feed(2).run().exact()
    finally:
        spark.conf.unset(setting)


@pytest.mark.parametrize("backend", [pytest.param("hashmap", marks=pytest.mark.slow), "rocksdb"])
@pytest.mark.feature("A8", "A14", "A35", "C3", "C4", "C16", "F2", "F20", "H2", "H3", "H4", "H13", "H14", "I27", "I36")
def test_a_job_resumes_at_another_parallelism_and_on_another_backend(shop, backend, monkeypatch):
    # As in a job of a thousand slots: tasks find in storage what they restore and publish.
    monkeypatch.setattr(sent_assignments, "_INLINE_BYTES", 0)
    assert shop.run(backend=backend).exact()
    assert {task.backend for task in StoredSnapshot.open(str(shop.newest())).metadata.tasks} == {backend}
    assert shop.feed(2).run(backend=backend).exact()
    assert shop.feed(2).run(backend=backend, parallelism=3).exact()
    other = "hashmap" if backend == "rocksdb" else "rocksdb"
    assert shop.feed(1).run(backend=other, parallelism=1).exact()
    assert not [each for each in (shop.folder / "checkpoints").rglob("assignments/*") if each.is_file()]


@pytest.mark.feature("C52")
def test_output_is_seen_when_its_checkpoint_is_complete_and_not_before(shop):
    run = shop.start(interval="1 h")
    eventually(lambda: len(run.reports) >= 3)
    assert shop.out() == []
    run.stop()
    assert shop.exact()


@pytest.mark.feature("H2")
def test_a_batch_that_waits_for_the_state_is_refused_when_the_state_does_not_come(shop, monkeypatch):
    """Spark plans the first batch while state is brought back. Without the state no epoch may run."""
    shop.run().feed(1)
    arrived, epochs, on_batch = [], [], Attempt._on_batch

    def note(attempt, batch, batch_id):
        arrived.append(batch_id)
        on_batch(attempt, batch, batch_id)

    def fail(driver, orders):
        eventually(lambda: arrived)
        raise RestoreError("not today")

    monkeypatch.setattr(Attempt, "_on_batch", note)
    monkeypatch.setattr(EpochRunner, "restore", fail)
    monkeypatch.setattr(EpochRunner, "run_epoch", lambda *given, **more: epochs.append(given))
    with pytest.raises(RestoreError, match="not today"):
        shop.job().start(shop.spark, **shop.choices())
    assert epochs == []
    assert not shop.spark.streams.active
    monkeypatch.undo()
    assert shop.run().exact()


@pytest.mark.feature("F24")
def test_a_full_checkpoint_stores_what_earlier_ones_have_and_later_ones_build_on_it(shop):
    run = shop.start(interval="1 h", backend="rocksdb", options={"state.storage.fs.memory-threshold": "0"})
    eventually(lambda: len(run.reports) >= 3)
    for full in (None, None, True, None):
        run.trigger_checkpoint(full=full).result(60)
    history = [stats for stats in run.checkpoints.history() if stats.state_size_bytes]
    run.cancel()
    shared, full, after = [
        (s.checkpointed_size_bytes, s.state_size_bytes) for s in sorted(history, key=lambda s: s.id)
    ][-3:]
    assert shared[0] < shared[1]
    assert full[0] == full[1]
    assert after[0] < after[1]


@pytest.mark.feature("D4", "J2")
def test_at_least_once_shows_output_with_its_epoch(shop):
    run = shop.start(interval="1 h", mode="AT_LEAST_ONCE")
    eventually(lambda: len(run.reports) >= 3)
    assert shop.exact()
    run.cancel()


@pytest.mark.feature("C1", "C16", "H2", "H3")
def test_a_cancelled_job_goes_back_to_its_last_checkpoint(shop):
    run = shop.start(interval="1 s")
    eventually(lambda: len(run.reports) >= 3 and run.checkpoints.latest_completed is not None)
    shop.feed(2)
    run.cancel()
    assert shop.run().exact()


@pytest.mark.feature("C1", "H1", "H2", "H9")
def test_a_function_that_raises_is_restarted_as_the_strategy_says(shop):
    flag = shop.folder / "raised"
    delays = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}
    shop.feed(2)
    job = shop.job(Fails(flag))
    run = job.start(shop.spark, trigger="available-now", **shop.choices(options=delays))
    run.await_termination()
    assert shop.exact()
    (failure,) = run.failures
    assert (failure.kind, failure.restarted) == ("user-code", True)
    assert "not today" in failure.message


@pytest.mark.feature("H3", "H4", "H5")
def test_rows_that_are_read_again_have_left_no_trace_in_the_state_or_the_output(shop):
    """No checkpoint has any of them when the function raises: three epochs are read, counted and written again."""
    delays = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}
    shop.feed(2)
    choices = shop.choices(interval="1 h", options=delays)
    run = shop.job(Fails(shop.folder / "raised")).start(shop.spark, trigger="available-now", **choices)
    run.await_termination()
    assert sum(report.rows_in for report in run.reports) == shop.rows + 30
    assert shop.exact()


@pytest.mark.feature("H1")
def test_after_an_error_while_a_checkpoint_completes_the_job_restarts_as_configured(shop):
    """Whoever does not know whether its entry is in the log claims the job again, and so learns it."""
    died = []

    def die(point, **context):
        if point == "publish.2-entry" and not died:
            died.append(context)
            raise RuntimeError("the disk of the driver is on fire")

    delays = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}
    shop.feed(2)
    faults.arm(die)
    try:
        run = shop.job().start(shop.spark, trigger="available-now", **shop.choices(options=delays))
        run.await_termination()
    finally:
        faults.arm(None)
    assert shop.exact()
    (failure,) = run.failures
    assert (failure.restarted, failure.message) == (True, "the disk of the driver is on fire")
    assert ordinal(run.checkpoints.latest_completed.epoch.term) == 2


@pytest.mark.feature("H7")
def test_without_restarts_the_first_error_ends_the_job_and_the_next_start_resumes(shop):
    flag = shop.folder / "raised"
    shop.feed(2)
    with pytest.raises(UserCodeError, match="not today"):
        shop.run(Fails(flag), options={"restart-strategy.type": "none"})
    assert shop.run(Fails(flag)).exact()


@pytest.mark.feature("E15", "I15")
def test_a_run_may_begin_from_a_retained_checkpoint_by_its_path(shop):
    # More than a slow machine takes, at one a second, in the time of the second run.
    retained = 1_000
    shop.run(num_retained=retained)
    old = shop.newest()
    shop.feed(2).run(num_retained=retained)
    assert shop.exact()
    seen = shop.out()
    # Back to the older one: what came after is counted again, under a new term, beside what is already there.
    shop.run(num_retained=retained, options={"execution.state-recovery.path": str(old)})
    times = Counter(shop.out()) - Counter(seen)
    assert sum(times.values()) == 20
    assert set(times.values()) == {1}


def test_a_path_without_a_checkpoint_is_refused(shop):
    with pytest.raises(SnapshotNotFound, match="chk-77"):
        shop.run(options={"execution.state-recovery.path": str(shop.folder / "checkpoints" / "shop" / "chk-77")})


@pytest.mark.feature("I16", "I17")
def test_state_that_no_operator_claims_is_refused_unless_it_may_be_dropped(shop):
    shop.run()
    with pytest.raises(UnclaimedState, match="'count'"):
        shop.feed(1).run(uid="renamed")
    shop.run(uid="renamed", options={"execution.state-recovery.ignore-unclaimed-state": True})
    assert max(n for _, n in shop.out()) == max(Counter(i % KEYS for i in range(30)).values())


@BACKENDS
@pytest.mark.feature("I31")
def test_a_wider_type_is_accepted_and_any_other_is_refused_before_anything_is_written(shop, backend, caplog):
    caplog.set_level("INFO", "tidegate")
    job = shop.folder / "checkpoints" / "shop"
    shop.run(backend=backend)
    before = sorted(job.glob("entries/*/*"))
    with pytest.raises(StateChanged, match="State 'n' of 'count' is incompatible: it was int and is str"):
        shop.feed(1).run(CountAsText(), backend=backend)
    assert sorted(job.glob("entries/*/*")) == before != []
    assert shop.run(CountAsFloat(), backend=backend).exact()
    assert "count/n: migrated (values: int becomes float)" in caplog.text
    with pytest.raises(StateChanged, match="it was float and is int"):
        shop.feed(1).run(backend=backend)
    assert shop.run(CountAsFloat(), backend=backend).exact()


@pytest.mark.feature("I37")
def test_an_operator_keeps_its_state_under_a_mapped_uid(shop):
    shop.run()
    for _ in range(2):  # the map may stay where it is
        shop.feed(1).run(uid="renamed", map_uids={"count": "renamed"})
        assert shop.exact()


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_damaged_file_is_an_error_that_names_it(shop, damage):
    shop.run(backend="rocksdb", inline_threshold=0)
    victim = max((shop.folder / "checkpoints" / "shop" / "shared").rglob("chk-*"), key=lambda p: p.stat().st_size)
    if damage == "gone":
        victim.unlink()
    else:
        content = victim.read_bytes()
        victim.unlink()
        victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    remove(shop.folder / "local")  # Its host would not need the file.
    with pytest.raises(RestoreError, match=victim.name):
        shop.feed(1).run(backend="rocksdb", inline_threshold=0)


def test_a_job_that_runs_cannot_be_started_a_second_time(shop, monkeypatch):
    run = shop.start()
    try:
        with pytest.raises(PreconditionFailed, match="already running in this process"):
            shop.job().start(shop.spark, **shop.choices())
        # Another process knows nothing of the runs of this one.
        monkeypatch.setattr(RUNS_HERE, "stop_earlier", lambda job, restart: None)
        with pytest.raises(StartRefused, match="running elsewhere"):
            shop.job().start(shop.spark, **shop.choices())
    finally:
        run.stop()
    assert shop.exact()


class Away:
    """A target that refuses."""

    def __call__(self, rows, epoch):
        raise ConnectionError("the target is away")


def test_output_that_waits_for_a_sink_that_is_gone_is_not_dropped_silently(shop):
    two = tg.Job("shop", parallelism=2)
    source = shop.spark.readStream.schema("k int, i bigint").option("maxFilesPerTrigger", 1)
    counted = two.source("rows", source.parquet(str(shop.folder / "in"))).key_by("k")
    stream = counted.process("count", Count(), schema="k int, n bigint")
    stream.sink("out", tg.FileSink(str(shop.folder / "out")))
    stream.sink("fragile", tg.CallbackSink(Away()))
    choices = shop.choices(timeout="5 s", options={"restart-strategy.type": "none"})
    with pytest.raises(TidegateError, match="did not accept its output"):
        two.run(shop.spark, trigger="available-now", **choices)
    with pytest.raises(UnclaimedOutput, match="'fragile'"):
        shop.feed(1).run()
    shop.run(options={"execution.state-recovery.ignore-unclaimed-state": True})
    assert shop.exact()


def test_a_callback_that_raised_once_gets_its_rows_again(shop):
    seen: list[tuple[int, int]] = []
    tries: list[int] = []

    def take(rows, epoch):
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("the target is away")
        seen.extend((row.k, row.n) for row in rows)

    job = tg.Job("callback", parallelism=2)
    source = shop.spark.readStream.schema("k int, i bigint").parquet(str(shop.folder / "in"))
    counted = job.source("rows", source).key_by("k").process("count", Count(), schema="k int, n bigint")
    counted.sink("out", tg.CallbackSink(take))
    job.run(shop.spark, trigger="available-now", **shop.choices())
    times = Counter(i % KEYS for i in range(30))
    assert sorted(seen) == sorted((k, n + 1) for k, count in times.items() for n in range(count))


class CountAndSeen(Count):
    seen = tg.ValueState(bool, default=False)


class Seen(tg.KeyedProcessFunction):
    """The state `n` is gone for a while."""

    seen = tg.ValueState(bool, default=False)

    def process_element(self, row, ctx):
        self.seen.update(True)
        yield row.k, 0


def test_a_redeclared_state_finds_its_values_unless_its_type_changed(shop):
    shop.run(CountAndSeen())
    shop.feed(1).run(Seen())
    with pytest.raises(StateChanged, match="State 'n'"):
        shop.feed(1).run(CountAsText())
    shop.run(CountAndSeen())
    # Thirty rows were counted before, ten by nobody, ten now.
    assert max(n for _, n in shop.out()) == max(Counter([i % KEYS for i in (*range(30), *range(40, 50))]).values())


class Other(tg.KeyedProcessFunction):
    """The state `n` is gone, and there is another one: a rename that nobody declared, or not."""

    m = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.m.update(self.m.value() + 1)
        yield row.k, self.m.value()


class Renamed(Other):
    m = tg.ValueState(int, default=0, renamed_from="n")


def test_a_renamed_state_keeps_the_values_of_all_keys(shop):
    shop.run()
    with pytest.raises(StateChanged, match='renamed_from="n"'):
        shop.feed(1).run(Other())
    shop.run(Renamed())
    assert max(n for _, n in shop.out()) == max(Counter(i % KEYS for i in range(40)).values())


def test_a_new_state_in_place_of_a_dropped_one_begins_empty(shop):
    shop.run().feed(1)
    shop.run(Other(), options={"execution.state-recovery.drop-state": "count/n"})
    shop.feed(1).run(Other())  # said once: the first checkpoint has recorded it
    assert Counter(shop.out()) == counted(range(30), 0) + counted(range(30, 50), 0)


def test_operators_and_sources_keep_state_and_positions_under_new_uids(shop):
    def run(orders: str, totals: str) -> None:
        job = tg.Job("shop", parallelism=2)
        source = shop.spark.readStream.schema("k int, i bigint").option("maxFilesPerTrigger", 1)
        rows = job.source(orders, source.parquet(str(shop.folder / "in")))
        counts = rows.key_by("k").process(totals, Count(), schema="k int, n bigint")
        counts.sink("out", tg.FileSink(str(shop.folder / "out")))
        job.run(shop.spark, trigger="available-now", **shop.choices())

    shop.run().feed(1)
    run(tg.Uid("orders", renamed_from="rows"), tg.Uid("totals", renamed_from="count"))
    assert shop.exact()
    shop.feed(1)
    run("orders", "totals")
    assert shop.exact()


def test_a_place_without_an_interval_is_refused(shop):
    with pytest.raises(OptionError, match="no interval"):
        shop.job().run(shop.spark, checkpoint=tg.Checkpointing(dir=str(shop.folder / "x")))


@pytest.mark.feature("C6")
def test_where_the_sources_begin_is_fixed_before_the_first_row(shop):
    """The rate source has no start of its own but the moment it was first asked."""
    sink = tg.FileSink(str(shop.folder / "out"))

    def start(interval: str):
        job = tg.Job("rate", parallelism=2)
        rate = shop.spark.readStream.format("rate").option("rowsPerSecond", 20).load().selectExpr("value")
        files = (
            shop.spark.readStream.schema("k int, i bigint").parquet(str(shop.folder / "in")).selectExpr("-1 - i value")
        )
        rows = job.source("rate", rate).union(job.source("files", files))
        rows.key_by("value").process("seen", Once(), schema="value bigint, n bigint").sink("out", sink)
        return job.start(shop.spark, **shop.choices(interval=interval))

    first = start("1 h")
    eventually(lambda: sum(r.rows_in for r in first.reports) > 40)
    first.cancel()
    second = start("1 s")
    eventually(lambda: sum(r.rows_in for r in second.reports) > 60)
    second.stop()
    rows = [json.loads(line) for path in (shop.folder / "out").glob("*.json") for line in path.read_text().splitlines()]
    values = sorted(row["value"] for row in rows)
    assert values == list(range(-30, len(values) - 30))
    assert {row["n"] for row in rows} == {1}


class Once(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.value, self.n.value()


@pytest.mark.feature("E11")
def test_an_idle_job_completes_its_checkpoint(shop):
    run = shop.start(interval="500 ms")
    eventually(shop.exact)
    assert run.checkpoints.latest_completed is not None
    run.stop()


@pytest.mark.feature("D14", "D15", "D31", "E13")
@pytest.mark.parametrize(("retention", "kept"), [("RETAIN_ON_CANCELLATION", True), ("DELETE_ON_CANCELLATION", False)])
def test_cancelling_a_job_keeps_or_deletes_its_checkpoints(shop, retention, kept):
    run = shop.start(retention=retention, interval="500 ms")
    eventually(shop.exact)
    local = {path.name for path in files_below(shop.folder / "local")}
    assert "manifest.json" in local, "tasks keep their state in the local directory"
    run.cancel()
    assert bool(list((shop.folder / "checkpoints" / "shop").glob("chk-*"))) is kept


@pytest.mark.feature("D7")
def test_a_checkpoint_that_fails_takes_the_job_back_to_the_one_before(shop):
    in_the_way = shop.folder / "checkpoints" / "shop" / "shared"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file where tasks need a folder")
    run = shop.start(interval="500 ms", inline_threshold=0)
    eventually(lambda: run.failures)
    in_the_way.unlink()
    eventually(shop.exact)
    run.stop()
    failure = run.failures[0]
    assert failure.restarted
    assert "Exceeded checkpoint tolerable failure threshold" in failure.message


@pytest.mark.feature("D33")
def test_storage_that_cannot_hold_checkpoints_is_refused_before_the_job_starts(shop):
    (shop.folder / "checkpoints").write_text("a file")
    with pytest.raises(StorageMisconfigured, match=r"is a file\. Choose a path"):
        shop.start()


def test_stop_within_a_callback_ends_the_job_in_order(shop):
    job = tg.Job("callback", parallelism=2)
    source = shop.spark.readStream.schema("k int, i bigint").option("maxFilesPerTrigger", 1)
    seen: list[int] = []
    stopped = threading.Event()

    def take(rows, epoch):
        seen.extend(row.n for row in rows)
        if not stopped.is_set():
            stopped.set()
            run.stop()

    counted = job.source("rows", source.parquet(str(shop.folder / "in"))).key_by("k")
    counted.process("count", Count(), schema="k int, n bigint").sink("out", tg.CallbackSink(take))
    run = job.start(shop.spark, **shop.choices(interval="500 ms"))
    run.await_termination(60)
    assert seen


@pytest.mark.feature("I1", "I2", "I7", "I8", "I9", "I22", "I24", "I30")
@pytest.mark.parametrize(
    ("backend", "form", "then"), [("rocksdb", "NATIVE", "rocksdb"), ("hashmap", "CANONICAL", "rocksdb")]
)
def test_a_savepoint_is_self_contained_and_can_be_moved(shop, backend, form, then):
    run = shop.start(backend=backend, interval="1 h")
    eventually(lambda: len(run.reports) >= 3)
    with pytest.raises(OptionError, match="no directory for the savepoint"):
        run.savepoint(format=form)
    with pytest.raises(BadSavepointTarget, match="is not supported"):
        run.savepoint("ftp://host/savepoints", format=form)
    taken = Path(run.savepoint(str(shop.folder / "savepoints"), format=form).result(60))
    assert re.fullmatch("savepoint-[0-9a-f]{6}-[0-9a-f]{12}", taken.name)
    assert bool(list(taken.glob("count/n/*.parquet"))) == (form == "CANONICAL")
    assert (run.checkpoints.latest_savepoint.savepoint_format, run.status) == (form, "RUNNING")
    shop.feed(2)
    eventually(lambda: sum(r.rows_in for r in run.reports) >= shop.rows)
    run.cancel()
    moved = shop.folder / "elsewhere" / "copied"
    moved.parent.mkdir()
    shutil.move(taken, moved)
    remove(shop.folder / "checkpoints")
    # Another job begins with that state: only what came after the savepoint is read, and counted on.
    before = len(shop.out())
    shop.run(name="branch", backend=then, options={"execution.state-recovery.path": str(moved)})
    assert before == 30
    assert shop.exact()


@pytest.mark.feature("D28", "I3", "I11", "I14")
def test_a_job_stopped_with_a_savepoint_resumes_from_it(shop):
    run = shop.start(interval="1 h", savepoint_dir=str(shop.folder / "savepoints"))
    eventually(lambda: len(run.reports) >= 3)
    path = run.stop_with_savepoint()
    assert path.startswith(str(shop.folder / "savepoints"))
    assert (Path(path) / "_metadata").exists()
    assert shop.exact()
    assert shop.feed(2).run(parallelism=3).exact()


def counted(rows: range, before: int) -> Counter:
    """The output of a job that counts these rows, and had counted those up to `before` in its state."""
    times, seen = Counter(i % KEYS for i in range(before)), Counter()
    for i in rows:
        times[i % KEYS] += 1
        seen[i % KEYS, times[i % KEYS]] += 1
    return seen


@pytest.mark.feature("I2", "I9", "I15", "I19", "I20")
def test_a_rollback_to_a_savepoint_shows_what_both_histories_completed(shop):
    run = shop.start(interval="1 s", savepoint_dir=str(shop.folder / "not here"))
    eventually(lambda: sum(r.rows_in for r in run.reports) >= 30)
    taken = run.savepoint(str(shop.folder / "savepoints")).result(60)
    assert Path(taken).parent == shop.folder / "savepoints"
    shop.feed(2)
    eventually(lambda: sum(r.rows_in for r in run.reports) >= 50)
    run.stop()
    first = Counter(shop.out())
    assert first == counted(range(50), 0)
    # Back, under the same name: what came after the savepoint is read and counted again, and the sink has both.
    shop.feed(1).run(options={"execution.state-recovery.path": taken})
    assert Counter(shop.out()) - first == counted(range(30, 60), 30)
    # The first checkpoint after that is full: the savepoint may go, and was not touched before.
    shutil.rmtree(taken)
    remove(shop.folder / "local")
    shop.feed(1).run()
    assert Counter(shop.out()) - first == counted(range(30, 70), 30)


@pytest.mark.feature("I20")
def test_a_claimed_savepoint_is_deleted_once_the_job_has_completed_a_checkpoint(shop):
    shop.run()
    given = shop.folder / "given"
    copy_snapshot(StoredSnapshot.open(str(shop.newest())), open_storage(str(given)), "NATIVE")
    claim = {"execution.state-recovery.path": str(given), "execution.state-recovery.claim-mode": "CLAIM"}
    assert shop.feed(1).run(options=claim).exact()
    assert not [path for path in given.rglob("*") if path.is_file()]
    with pytest.raises(SnapshotNotFound):
        shop.run(options=claim)
    assert shop.feed(1).run().exact()


@pytest.mark.feature("I14")
def test_a_job_is_watched_and_stopped_over_rest(shop):
    run = shop.start(interval="1 h")
    with tg.serve(run, port=0) as server, httpx.Client(base_url=server.url) as client:
        client.headers["Authorization"] = f"Bearer {server.token}"
        (job,) = client.get("/jobs").json()["jobs"]
        assert job["status"] == "RUNNING"
        eventually(lambda: len(run.reports) >= 3)
        path = f"/jobs/{job['id']}"
        taken = client.post(f"{path}/checkpoints", json={}).json()["request-id"]
        eventually(lambda: client.get(f"{path}/checkpoints/{taken}").json()["status"]["id"] == "COMPLETED")
        assert client.get(f"{path}/checkpoints").json()["counts"]["completed"] >= 1
        stop = client.post(f"{path}/stop", json={"targetDirectory": str(shop.folder / "savepoints")}).json()[
            "request-id"
        ]
        eventually(lambda: client.get(f"{path}/savepoints/{stop}").json()["status"]["id"] == "COMPLETED")
        location = client.get(f"{path}/savepoints/{stop}").json()["operation"]["location"]
        assert (Path(location) / "_metadata").exists()
        assert client.get(f"{path}/status").json() == {"status": "FINISHED"}
    assert shop.exact()


@pytest.mark.feature("I28", "I40")
@BACKENDS
def test_a_job_begins_from_tables_that_were_made_of_its_checkpoint(shop, backend):
    """The whole walk: run, convert offline into a canonical savepoint with another max parallelism, go on from it."""
    shop.run(backend=backend)
    tables = shop.folder / "tables"
    copy_snapshot(
        StoredSnapshot.open(str(shop.newest())), open_storage(str(tables)), "CANONICAL", Changes(max_parallelism=64)
    )
    remove(shop.folder / "checkpoints")
    job = shop.feed(2).job(parallelism=3, name="branch")
    job.max_parallelism = 64
    choices = shop.choices(backend=backend, options={"execution.state-recovery.path": str(tables)})
    job.run(shop.spark, trigger="available-now", **choices)
    assert shop.exact()


class Switched:
    """A target that takes rows while the file `up` is there."""

    def __init__(self, up):
        self.up = up
        self.rows = []

    def __call__(self, rows, epoch):
        if not self.up.exists():
            raise ConnectionError("the target is away")
        self.rows += [tuple(row) for row in rows]


def test_a_successful_stop_leaves_no_uncommitted_output_and_a_failed_one_says_where_it_is(shop):
    target = Switched(shop.folder / "up")
    job = tg.Job("stopped", parallelism=2)
    source = shop.spark.readStream.schema("k int, i bigint").parquet(str(shop.folder / "in"))
    counted = job.source("rows", source).key_by("k").process("count", Count(), schema="k int, n bigint")
    counted.sink("out", tg.CallbackSink(target))
    choices = shop.choices(savepoint_dir=str(shop.folder / "sp"), options={"execution.output.stop-timeout": "1 s"})
    run = job.start(shop.spark, **choices)
    eventually(lambda: sum(report.rows_in for report in run.reports) == 30)
    with pytest.raises(TidegateError, match=r"savepoint-.*sink 'out'.*the target is away") as failed:
        run.stop_with_savepoint()
    assert (run.status, target.rows) == ("FAILED", [])
    assert Path(failed.value.path.split()[-1]).joinpath("_metadata").exists()  # type: ignore[attr-defined]
    target.up.touch()
    again = job.start(shop.spark, **choices)
    again.stop_with_savepoint(drain=True)
    assert (again.status, len(target.rows)) == ("FINISHED", 30)
