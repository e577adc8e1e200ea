"""What is decided about a job before Spark runs anything of it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tidegate as tg
from tests.unit.api.shop import Frame
from tests.unit.runtime.checkpoints.test_loop import COUNT, WAIT_S, Place
from tests.unit.runtime.checkpoints.test_output import Place as OutputPlace
from tests.unit.runtime.checkpoints.test_output import Target
from tests.unit.runtime.driver.driver_kit import Driver
from tests.unit.runtime.driver.test_attempt_directory import driver, kill
from tests.unit.runtime.epochs.test_runner import runner_of
from tidegate.checkpoint.job_log.start import DirectoryMoved
from tidegate.checkpoint.task.assignment import UnclaimedState
from tidegate.connectors.files.committer import FileCommitter
from tidegate.connectors.outcome import CommitRefused, ForeignOutput, RetryLater
from tidegate.connectors.sink import Settled, sweeps
from tidegate.core.errors import EpochFailed, PreconditionFailed
from tidegate.core.ids import EpochId, Lineage, Slot, TaskId, Uid, ordinal, term_of
from tidegate.core.times import MAX_WATERMARK
from tidegate.graph.model import Graph
from tidegate.runtime.checkpoints.committers import Committers
from tidegate.runtime.checkpoints.history import JobHistory
from tidegate.runtime.checkpoints.ownership import Ownership
from tidegate.runtime.driver import launch
from tidegate.runtime.driver.interrupts import Interrupt
from tidegate.runtime.driver.launch import _identity, _Launch, _origin, run_bounded, run_job
from tidegate.runtime.driver.running_job import RunningJob
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.run_options import RunOptions
from tidegate.runtime.epochs.settings import read_settings
from tidegate.runtime.epochs.trigger import EpochTrigger
from tidegate.runtime.monitoring.job_events import JobEvents
from tidegate.runtime.sources.source_notes import UnclaimedPositions
from tidegate.runtime.spark_versions import requirements
from tidegate.savepoint.restore_compatibility import StateChanged
from tidegate.storage import RoutedStorage, StorageMisconfigured, open_storage

KEYS_8 = 8
SETTINGS = {requirement.key: requirement.wanted for requirement in requirements("4.2.0")}


class Session:
    """As much of a SparkSession as is asked before the first row."""

    version = "4.2.0"

    class conf:
        @staticmethod
        def get(key: str, default: str | None = None) -> str | None:
            return SETTINGS.get(key, default)

        @staticmethod
        def isModifiable(key: str) -> bool:
            return key.startswith("spark.sql.")


class Socket(Frame):
    """A stream that keeps no row, as Spark prints its plan."""

    def explain(self, extended: bool) -> None:
        print(
            "StreamingRelationV2 org.apache.spark.sql.execution.streaming.sources.TextSocketSourceProvider@4bb4, socket"
        )


@pytest.fixture
def checkpoint(tmp_path: Path) -> tg.Checkpointing:
    return tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 s")


@pytest.mark.feature("D33", "J11")
def test_a_job_with_checkpoints_does_not_start_on_a_source_that_cannot_be_read_again(
    checkpoint: tg.Checkpointing,
) -> None:
    job = tg.Job("forgets", parallelism=1)
    job.source("in", Socket("value string")).sink("out", tg.DiscardSink())
    with pytest.raises(tg.errors.PreconditionFailed, match=r"source 'in' reads a socket.*at_most_once=True"):
        job.start(Session(), checkpoint=checkpoint)  # type: ignore[arg-type]


class Kafka(Frame):
    """A stream that can be read again, as Spark prints its plan."""

    def explain(self, extended: bool) -> None:
        print("StreamingRelationV2 org.apache.spark.sql.kafka010.KafkaSourceProvider@4bb4, kafka, [subscribe=orders]")


@pytest.mark.feature("J11")
def test_a_job_without_checkpoints_may_read_a_source_that_cannot_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*given: Any) -> Any:
        raise RuntimeError("begins to run")

    monkeypatch.setattr(launch, "_start", start)
    monkeypatch.setattr(launch, "_settings", lambda session, options: (None, None))
    job = tg.Job("forgets", parallelism=1)
    job.source("in", Socket("value string")).sink("out", tg.DiscardSink())
    with pytest.raises(RuntimeError, match="begins to run"):
        job.start(Session())  # type: ignore[arg-type]


def test_an_interrupt_during_a_start_that_fails_ends_it_as_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noted, and keeps the restart strategy from trying again."""

    def start(*given: Any) -> Any:
        (interrupt,) = [each for each in given if isinstance(each, Interrupt)]
        signal.raise_signal(signal.SIGINT)
        assert interrupt.has_come
        raise EpochFailed("Spark has not started the tasks of the job")

    monkeypatch.setattr(launch, "_start", start)
    monkeypatch.setattr(launch, "_settings", lambda session, options: (None, None))
    job = tg.Job("forgets", parallelism=1)
    job.source("in", Socket("value string")).sink("out", tg.DiscardSink())
    with pytest.raises(KeyboardInterrupt):
        job.start(Session())  # type: ignore[arg-type]


def test_a_start_removes_what_killed_drivers_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, left = driver(tmp_path)
    kill(dead)

    def run(job: RunningJob) -> Any:
        return SimpleNamespace(parallelism=1, state_backend="hashmap", follow=lambda: None)

    monkeypatch.setattr(launch, "JobRun", run)
    monkeypatch.setattr(launch, "RUNS_HERE", SimpleNamespace(add=lambda run: None))
    events, job = JobEvents("orders"), SimpleNamespace(name="orders", runner=SimpleNamespace(epoch=None))
    begun = _Launch(Session(), counting().graph(), None, EpochTrigger.parse(None), events)  # type: ignore[arg-type]
    begun._follow(job, "without checkpoints")  # type: ignore[arg-type]
    events.close()
    assert not left.exists()


@pytest.mark.feature("D33", "J11")
def test_every_source_of_a_job_is_checked(checkpoint: tg.Checkpointing) -> None:
    job = tg.Job("forgets", parallelism=1)
    rows = job.source("orders", Kafka("value string")).union(job.source("in", Socket("value string")))
    rows.sink("out", tg.DiscardSink())
    with pytest.raises(tg.errors.PreconditionFailed, match="source 'in' reads a socket"):
        job.start(Session(), checkpoint=checkpoint)  # type: ignore[arg-type]


@pytest.mark.feature("L2")
def test_a_bounded_job_takes_no_checkpoints(checkpoint: tg.Checkpointing) -> None:
    job = tg.Job("bounded", parallelism=1)
    job.source("in", Frame("a int", isStreaming=False)).sink("out", tg.DiscardSink())
    with pytest.raises(tg.errors.PreconditionFailed, match="takes no checkpoints: Spark repeats tasks that fail"):
        job.run(Session(), checkpoint=checkpoint)  # type: ignore[arg-type]
    with pytest.raises(tg.errors.PreconditionFailed, match="Call run\\(\\), which reads them once"):
        job.start(Session(), checkpoint=checkpoint)  # type: ignore[arg-type]


def mixed() -> tg.Job:
    job = tg.Job("mixed", parallelism=1)
    rows = job.source("orders", Kafka("a int")).union(job.source("table", Frame("a int", isStreaming=False)))
    rows.sink("out", tg.DiscardSink())
    return job


@pytest.mark.feature("L2")
@pytest.mark.parametrize("run", ["run", "start"])
def test_a_job_with_a_bounded_and_a_streaming_source_is_no_batch_program(
    checkpoint: tg.Checkpointing, run: str
) -> None:
    with pytest.raises(tg.errors.GraphError, match=r"mixes bounded sources \(table\) with streaming ones \(orders\)"):
        getattr(mixed(), run)(Session(), checkpoint=checkpoint)


@pytest.mark.feature("L2")
def test_one_bounded_source_among_streams_does_not_make_a_run_a_batch_program(
    checkpoint: tg.Checkpointing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would be read once, and those that a stream has not received yet never."""
    started: list[str] = []

    def start(graph: Graph, options: RunOptions, spark: Any) -> Any:
        started.append(graph.job)
        raise RuntimeError("as a stream")

    monkeypatch.setattr(launch, "start_job", start)
    with pytest.raises(RuntimeError, match="as a stream"):
        run_job(mixed().draft(), RunOptions(checkpoint=checkpoint), Session())  # type: ignore[arg-type]
    assert started == ["mixed"]


class Counter(tg.KeyedProcessFunction):
    n = tg.ValueState(int)

    def process_element(self, row: Any, ctx: Any) -> Any:
        yield row.k, self.n.value()


class RenamedCounter(tg.KeyedProcessFunction):
    seen = tg.ValueState(int, renamed_from="n")

    def process_element(self, row: Any, ctx: Any) -> Any:
        yield row.k, self.seen.value()


class SilentCounter(tg.KeyedProcessFunction):
    seen = tg.ValueState(int)

    def process_element(self, row: Any, ctx: Any) -> Any:
        yield row.k, self.seen.value()


def counting(
    name: str = "job", uid: str = "count", source: str = "in", function: type[tg.KeyedProcessFunction] = Counter
) -> tg.Job:
    job = tg.Job(name, parallelism=2)
    rows = job.source(source, Frame("k string")).key_by("k")
    rows.process(uid, function(), schema="k string, n bigint").sink("out", tg.DiscardSink())
    return job


def where(folder: Path) -> tg.Checkpointing:
    return tg.Checkpointing(dir=str(folder), interval="1 h")


@contextlib.contextmanager
def claimed(
    job: tg.Job,
    folder: Path,
    key_groups: int = 128,
    *,
    fresh: bool = False,
    force: bool = True,
    drain: bool = False,
    mode: str | None = None,
    **recovery: Any,
) -> Iterator[Ownership]:
    """Claim a job with its checkpoints in a folder, as its start does. `recovery` are options of that name."""
    graph = job.graph()
    settings, durability = read_settings(
        1,
        RunOptions(
            parallelism=job.parallelism,
            max_parallelism=key_groups,
            checkpoint=replace(where(folder), mode=mode),
            fresh=fresh,
            force=force,
            options={f"execution.state-recovery.{key.replace('_', '-')}": value for key, value in recovery.items()},
        ),
    )
    assert durability is not None
    session: Any = Session()
    storage = RoutedStorage(open_storage(durability.archive.url))
    trigger = EpochTrigger(available_now=True, drain=True) if drain else EpochTrigger.parse(None)
    launch = _Launch(session, graph, settings, trigger, events=JobEvents(graph.job))
    owned = launch._claim(durability, storage, Committers(graph, storage))
    try:
        yield owned
    finally:
        owned.stop()


@pytest.fixture
def savepoint(tmp_path: Path) -> str:
    """Of a job with the operator `count` and the source `in`, which has read up to 10."""
    place = Place(tmp_path)
    with place.run(operators=(COUNT,), sources=(Uid("in"),)) as loop:
        loop.begin_at(replace(place.epoch(loop, "10"), versions={}))
        return loop.savepoint(str(tmp_path / "savepoints"), terminal=False, format="NATIVE").result(WAIT_S)


@pytest.mark.feature("E15", "I15")
def test_a_job_starts_from_the_snapshot_it_is_given_the_path_of_and_else_from_its_latest_checkpoint(
    tmp_path: Path,
) -> None:
    with Driver(tmp_path, interval="1 h", num_retained=2) as driver:
        driver.checkpoint()
        driver.checkpoint()
    folder, job = tmp_path / "checkpoints", tg.Job("job", parallelism=1)
    job.source("rows", Frame("a int")).sink("out", tg.DiscardSink())
    for path, found in [({}, 2), ({"path": f"{folder}/job/chk-1"}, 1), ({"path": "job/chk-2/_metadata"}, 2)]:
        with claimed(job, folder, KEYS_8, **path) as owned:
            assert owned.restore_point().checkpoint_id == found
    with claimed(job, folder, KEYS_8, fresh=True) as owned:
        assert owned.restore_point().snapshot is None


@pytest.mark.feature("E15")
def test_the_line_of_a_start_says_where_it_begins(tmp_path: Path, savepoint: str) -> None:
    job = counting()
    with claimed(job, tmp_path / "next", path=savepoint) as owned:
        assert _origin(owned.snapshot, savepoint) == f"restored from {savepoint}, a savepoint of job 'job'"
    with claimed(job, tmp_path / "next", fresh=True) as owned:
        assert _origin(owned.snapshot, None) == "from the beginning"


@pytest.mark.feature("E15")
def test_a_job_starts_from_a_retained_checkpoint_of_another_job_in_the_same_directory(tmp_path: Path) -> None:
    with Driver(tmp_path, interval="1 h") as driver:
        driver.checkpoint()
    folder, job = tmp_path / "checkpoints", tg.Job("next", parallelism=1)
    job.source("rows", Frame("a int")).sink("out", tg.DiscardSink())
    with claimed(job, folder, KEYS_8, path=f"{folder}/job/chk-1") as owned:
        found = owned.restore_point()
        assert (found.checkpoint_id, found.stored) == (1, None)
        assert found.lineage != driver.owned.restore_point().lineage


@pytest.mark.feature("E15")
def test_a_fresh_start_from_a_snapshot_checks_that_it_fits(tmp_path: Path, savepoint: str) -> None:
    with pytest.raises(UnclaimedState), claimed(counting(uid="sum"), tmp_path / "ckpt", fresh=True, path=savepoint):
        pass
    with claimed(counting(), tmp_path / "ckpt", fresh=True, path=savepoint) as owned:
        assert owned.restore_point().snapshot is not None


@pytest.mark.feature("I19", "I20")
@pytest.mark.parametrize(("chosen", "given_away"), [({}, False), ({"claim_mode": "CLAIM"}, True)])
def test_a_snapshot_stays_the_users_unless_the_start_claims_it(
    tmp_path: Path, savepoint: str, chosen: dict[str, str], given_away: bool
) -> None:
    with claimed(counting("next"), tmp_path / "next", path=savepoint, **chosen) as owned:
        assert owned.restore_point().snapshot is not None
        assert [ref.claimed for ref in owned.store.entry.retained] == [True] * given_away
    assert (Path(savepoint) / "_claimed").exists() == given_away


@pytest.mark.feature("I16", "I17", "I37")
def test_state_must_find_its_operator_unless_it_is_mapped_to_another_uid_or_may_be_dropped(
    tmp_path: Path, savepoint: str
) -> None:
    job, folder = counting("next", uid="sum"), tmp_path / "next"
    with pytest.raises(UnclaimedState, match="'count'"), claimed(job, folder, path=savepoint):
        pass
    assert not folder.exists() or not list(folder.rglob("log/*")), "nothing is written before the snapshot fits"
    with claimed(job, folder, path=savepoint, map_uids="count=sum") as owned:
        assert owned.snapshot is not None
        assert [operator.uid for operator in owned.snapshot.operators] == ["sum"]
    with claimed(counting("other", uid="sum"), folder, path=savepoint, ignore_unclaimed_state=True) as owned:
        assert owned.restore_point().snapshot is not None


@pytest.mark.feature("I16", "I17")
def test_positions_of_a_source_that_the_job_no_longer_has_are_refused_unless_they_may_be_dropped(
    tmp_path: Path, savepoint: str
) -> None:
    job = counting("next", source="elsewhere")
    with pytest.raises(UnclaimedPositions, match="'in'"), claimed(job, tmp_path / "next", path=savepoint):
        pass
    with claimed(job, tmp_path / "next", path=savepoint, ignore_unclaimed_state=True):
        pass


@pytest.mark.feature("I31")
def test_a_start_refuses_a_state_that_was_renamed_without_a_word_until_it_is_declared_or_dropped(
    tmp_path: Path, savepoint: str
) -> None:
    silent, folder = counting("next", function=SilentCounter), tmp_path / "next"
    for refused in ({}, {"ignore_unclaimed_state": True}):
        with pytest.raises(StateChanged, match='renamed_from="n"'), claimed(silent, folder, path=savepoint, **refused):
            pass
    assert not list(folder.rglob("log/*")), "nothing is written before the snapshot fits"
    with claimed(silent, folder, path=savepoint, drop_state="count/n") as owned:
        assert owned.restore_point().snapshot is not None


@pytest.mark.feature("I31", "I37")
def test_a_start_finds_renamed_states_operators_and_sources_and_leaves_the_savepoint_as_it_was(
    tmp_path: Path, savepoint: str
) -> None:
    before = {path: path.read_bytes() for path in Path(savepoint).rglob("*") if path.is_file()}
    uid, source = tg.Uid("sum", renamed_from="count"), tg.Uid("rows", renamed_from="in")
    with claimed(counting("next", uid, source, RenamedCounter), tmp_path / "next", path=savepoint) as owned:
        assert owned.snapshot is not None
        (operator,) = owned.snapshot.operators
        assert (operator.uid, [(state.name, state.id) for state in operator.states]) == ("sum", [("seen", 1)])
        assert [position.uid for position in owned.snapshot.positions] == ["rows"]
    assert {path: path.read_bytes() for path in Path(savepoint).rglob("*") if path.is_file()} == before


@pytest.mark.feature("E15", "I15")
def test_a_start_from_a_savepoint_that_got_nowhere_is_repeated_by_the_same_command(
    tmp_path: Path, savepoint: str
) -> None:
    with claimed(counting("next"), tmp_path / "next", path=savepoint) as owned:
        lineage = owned.restore_point().lineage
    with claimed(counting("next"), tmp_path / "next", path=savepoint) as owned:
        assert owned.restore_point().lineage == lineage
        assert owned.restore_point().snapshot is not None


@pytest.mark.feature("D24", "D33")
def test_storage_is_probed_below_the_folder_of_the_job_before_it_is_claimed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageMisconfigured, match="is a file"), claimed(counting(), tmp_path / "file"):
        pass
    with claimed(counting("orders"), tmp_path / "folder"):
        assert [path.name for path in (tmp_path / "folder").iterdir()] == ["orders"]


@pytest.mark.feature("F23")
def test_the_driver_opens_storage_with_the_options_of_the_job(checkpoint: tg.Checkpointing) -> None:
    job = tg.Job("orders", parallelism=1)
    job.source("in", Kafka("value string")).sink("out", tg.DiscardSink())
    with pytest.raises(StorageMisconfigured, match="Remove them"):  # A local folder takes none.
        job.start(Session(), checkpoint=checkpoint, options={"s3.region": "eu"})  # type: ignore[arg-type]


@pytest.mark.feature("F23")
def test_tasks_get_the_storage_and_the_term_that_the_driver_claimed(tmp_path: Path) -> None:
    for number in (1, 2):
        with claimed(counting(), tmp_path) as owned:
            _, chosen = read_settings(1, RunOptions(parallelism=2, checkpoint=where(tmp_path)))
            assert chosen is not None
            identity = _identity(owned, chosen)
            entry = owned.store.entry
            assert (identity.term, identity.archive, identity.lineage) == (entry.term, chosen.archive, entry.lineage)
            assert identity.history == entry.history
            assert ordinal(identity.term) == number


@pytest.mark.feature("A13", "C5", "F2", "F23", "I39")
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_checkpoints_describe_the_job_as_it_runs(backend: str) -> None:
    runner, session = runner_of(state_backend=backend), Session()
    launch = _Launch(
        spark=session,
        graph=runner.graph,
        settings=runner.settings,
        trigger=EpochTrigger.parse(None),
        events=JobEvents("j"),
    )  # type: ignore[arg-type]
    told = launch._described(runner)
    assert (told.parallelism, told.max_parallelism, told.backend, told.levels) == (2, 40, backend, 2)
    assert told.tasks == [TaskId(level, Slot(slot)) for level in (1, 2) for slot in (0, 1)]
    assert told.sources == ("rows",)
    assert {operator.uid: (operator.level, operator.backend) for operator in told.operators} == {
        "one": (1, backend),
        "two": (2, backend),
    }
    assert told.state_ids == runner.state_ids
    assert {uid for uid, _ in told.state_ids} == {"one", "two"}


@pytest.mark.feature("C39", "D1", "D2", "F22", "F23")
@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"state_backend": "no_such_module.Factory"}, r"'no_such_module\.Factory' cannot be imported"),
        ({"options": {"state.backend.type": "no_such_module.Factory"}}, r"no_such_module\.Factory"),
        ({"checkpoint": "/checkpoints"}, "a directory but no interval, so none would be taken"),
        ({"options": {"execution.state-recovery.path": "x"}}, "a job without checkpoints restores nothing"),
        ({"checkpoint": tg.Checkpointing(interval="1 s")}, "does not say where"),
        ({"options": {"execution.checkpointing.intervall": "1 s"}}, "intervall is not an option"),
        ({"options": {"execution.checkpointing.unaligned": True, "execution.checkpointing.mode": "AT_LEAST_ONCE"}}, "needs"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("streaming", [True, False])
def test_a_wrong_choice_is_refused_before_the_job_starts(streaming: bool, choices: dict[str, Any], said: str) -> None:
    job = tg.Job("wrong", parallelism=1)
    job.source("in", Frame("a int", isStreaming=streaming)).sink("out", tg.DiscardSink())
    with pytest.raises(tg.errors.ConfigurationError, match=said):
        job.run(Session(), **choices)


class SmallExecutors(Session):
    """Spark's settings leave the state of a task too little memory."""

    class conf(Session.conf):
        @staticmethod
        def get(key: str, default: str | None = None) -> str | None:
            return {"spark.executor.memoryOverhead": "300m"}.get(key, Session.conf.get(key, default))


@pytest.mark.feature("F45")
@pytest.mark.parametrize("changelog", [False, True])
@pytest.mark.parametrize("streaming", [True, False])
def test_a_job_does_not_start_if_spark_leaves_no_room_for_the_memory_that_it_fixes(
    tmp_path: Path, streaming: bool, changelog: bool
) -> None:
    job = tg.Job("large", parallelism=1)
    job.source("in", Frame("a int", isStreaming=streaming)).sink("out", tg.DiscardSink())
    options = {"state.backend.rocksdb.memory.fixed-per-slot": "200 mb", "state.changelog.enabled": changelog}
    choices: dict[str, Any] = {"state_backend": "rocksdb", "options": options}
    if streaming:
        choices["checkpoint"] = where(tmp_path)
    with pytest.raises(tg.errors.ConfigurationError, match=r"memoryOverhead leaves 300 MB for all of them"):
        job.run(SmallExecutors(), **choices)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("drains", "savepoint_format", "is_given", "is_refused"),
    [
        (True, "CANONICAL", True, True),
        (True, "CANONICAL", False, True),
        (True, None, True, True),
        (True, None, False, False),
        (False, "CANONICAL", True, False),
    ],
    ids=["-s", "own savepoint", "-s of a checkpoint", "its driver died at its end", "without drain"],
)
def test_a_run_that_drains_does_not_start_from_a_drained_savepoint_and_read_nothing(
    drains: bool, savepoint_format: str | None, is_given: bool, is_refused: bool
) -> None:
    """It used to finish at once with exit code 0, whatever there was to read."""
    settings, _ = read_settings(1, RunOptions(parallelism=2, max_parallelism=8))
    trigger = EpochTrigger(available_now=True, drain=drains)
    nothing: Any = None
    launch = _Launch(nothing, counting().graph(), settings, trigger, events=JobEvents("job"))
    snapshot: Any = SimpleNamespace(watermark_ms=MAX_WATERMARK, savepoint_format=savepoint_format)
    with pytest.raises(PreconditionFailed, match="every row would be late") if is_refused else contextlib.nullcontext():
        launch._check_drain(snapshot, is_given=is_given)


def test_a_start_that_drains_from_a_drained_savepoint_is_refused_before_the_claim(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.run(operators=(COUNT,), sources=(Uid("in"),)) as loop:
        drained = replace(place.epoch(loop, "10"), versions={}, clocks=Clocks(watermark_ms=MAX_WATERMARK))
        loop.begin_at(drained)
        path = loop.savepoint(str(tmp_path / "savepoints"), terminal=False, format="NATIVE").result(WAIT_S)
    with (
        pytest.raises(PreconditionFailed, match="every row would be late"),
        claimed(counting("next"), tmp_path / "next", path=path, drain=True),
    ):
        pass
    with claimed(counting("next"), tmp_path / "next", path=path):
        pass


def writing(folder: Path, rows: Frame | None = None) -> tg.Job:
    """A job whose only target is a folder."""
    job = tg.Job("job", parallelism=1)
    job.source("rows", rows or Frame("a int")).sink("out", tg.FileSink(str(folder)))
    return job


def test_the_first_start_of_a_job_is_refused_by_a_target_that_will_never_take_its_output(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    job, folder = writing(tmp_path / "file" / "out"), tmp_path / "checkpoints"
    with pytest.raises(CommitRefused, match="is a file"), claimed(job, folder, KEYS_8):
        pass
    assert not list(folder.rglob("log/*")), "the job is not claimed"


def test_a_run_without_checkpoints_is_refused_by_a_target_that_will_never_take_its_output(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings, _ = read_settings(1, RunOptions(parallelism=1, checkpoint=None))
    session: Any = Session()
    with pytest.raises(CommitRefused, match="is a file"):
        writing(tmp_path / "file" / "out", Socket("a int")).start(session)
    with pytest.raises(CommitRefused, match="is a file"):
        run_bounded(writing(tmp_path / "file" / "out").graph(), session, settings)


def test_a_run_of_one_epoch_does_not_wait_for_a_target_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_target(self: Any) -> None:
        raise OSError("connection to 127.0.0.1:5999 failed")

    monkeypatch.setattr(FileCommitter, "check_target", check_target)
    settings, _ = read_settings(1, RunOptions(parallelism=1, checkpoint=None))
    session: Any = Session()
    with pytest.raises(RetryLater, match="Sink 'out': its target does not answer"):
        run_bounded(writing(Path("out")).graph(), session, settings)


def test_a_target_that_refuses_after_a_checkpoint_does_not_keep_a_job_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows can be published when somebody has mended the target."""
    with Driver(tmp_path, interval="1 h") as driver:
        driver.checkpoint()
    (tmp_path / "file").touch()
    with claimed(writing(tmp_path / "file" / "out"), tmp_path / "checkpoints", KEYS_8) as owned:
        assert owned.restore_point().checkpoint_id == 1
    assert "the target of sink out does not accept output now" in caplog.text


def leave_marker(folder: Path, lineage: Lineage, epoch: EpochId) -> None:
    """Leave the marker of a run that the log does not know, as a run does that was lost with its directory."""
    committer = Committers(writing(folder).graph(), None).committers[Uid("out")]
    assert sweeps(committer)
    committer.sweep(Settled(lineage, Uid("out"), epoch))


@pytest.mark.feature("H5")
def test_a_start_with_output_of_a_lost_history_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    job, checkpoints = writing(tmp_path / "out"), tmp_path / "checkpoints"
    with claimed(job, checkpoints) as owned:
        lineage = owned.restore_point().lineage
    lost = EpochId(term_of(5, 1), 3)
    leave_marker(tmp_path / "out", lineage, lost)
    for refused in ({}, {"accept_foreign_output": False}, {"accept_moved_directory": True}):
        with pytest.raises(ForeignOutput), claimed(job, checkpoints, **refused):
            pass
    with claimed(job, checkpoints, accept_foreign_output=True) as owned:
        entry = owned.store.entry
        assert entry.lineage == lineage
        assert ordinal(entry.term) > ordinal(lost.term)
        assert [claim.term for claim in entry.claims if not claim.own] == [lost.term]
    with claimed(job, checkpoints) as owned:
        assert owned.store.entry.lineage == lineage, "later starts know what was accepted"


@pytest.mark.feature("D4")
@pytest.mark.parametrize("mode", ["AT_LEAST_ONCE", "EXACTLY_ONCE"])
def test_output_beyond_the_last_checkpoint_is_the_jobs_own_only_in_at_least_once(tmp_path: Path, mode: str) -> None:
    """There an epoch is published before its checkpoint, and a driver may fail between the two."""
    job, checkpoints = writing(tmp_path / "out"), tmp_path / "checkpoints"
    with claimed(job, checkpoints, mode=mode) as owned:
        entry = owned.store.entry
    leave_marker(tmp_path / "out", entry.lineage, EpochId(entry.term, 3))
    refused = pytest.raises(ForeignOutput) if mode == "EXACTLY_ONCE" else contextlib.nullcontext()
    with refused, claimed(job, checkpoints, mode=mode) as owned:
        assert owned.store.entry.lineage == entry.lineage


@pytest.mark.feature("H5")
def test_a_new_line_of_history_does_not_ask_about_output_of_the_old_one(tmp_path: Path) -> None:
    job, checkpoints = writing(tmp_path / "out"), tmp_path / "checkpoints"
    with claimed(job, checkpoints) as owned:
        lineage = owned.restore_point().lineage
    leave_marker(tmp_path / "out", lineage, EpochId(term_of(5, 1), 3))
    with claimed(job, checkpoints, fresh=True) as owned:
        assert owned.store.entry.lineage != lineage


def copied(job: tg.Job, folder: Path) -> tuple[Path, Lineage]:
    """Run the job in a directory, and copy the directory. Return the copy and the line of history."""
    with claimed(job, folder / "original") as owned:
        lineage = owned.restore_point().lineage
    return Path(shutil.copytree(folder / "original", folder / "copy")), lineage


@pytest.mark.feature("D33")
def test_a_start_in_a_copied_directory_is_refused_until_the_move_is_accepted(tmp_path: Path) -> None:
    job = counting()
    copy, lineage = copied(job, tmp_path)
    for refused in ({}, {"accept_moved_directory": False}, {"accept_foreign_output": True}):
        with pytest.raises(DirectoryMoved), claimed(job, copy, **refused):
            pass
    with claimed(job, copy, accept_moved_directory=True) as owned:
        assert owned.store.entry.lineage == lineage
        assert owned.store.entry.location == f"file://{copy}/job"
    with claimed(job, copy) as owned:
        assert owned.store.entry.lineage == lineage, "later starts know the new place"


@pytest.mark.feature("D33")
def test_a_start_in_a_copied_directory_is_refused_before_the_target_is_asked(tmp_path: Path) -> None:
    job = writing(tmp_path / "out")
    copy, lineage = copied(job, tmp_path)
    leave_marker(tmp_path / "out", lineage, EpochId(term_of(5, 1), 3))
    with pytest.raises(DirectoryMoved), claimed(job, copy):
        pass
    with pytest.raises(ForeignOutput), claimed(job, copy, accept_moved_directory=True):
        pass  # A move that is accepted says nothing about output.


@pytest.mark.feature("D33")
def test_the_claim_checks_the_place_of_the_directory_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another start may have written the log since it was first checked."""
    job = counting()
    copy, _ = copied(job, tmp_path)
    monkeypatch.setattr(JobHistory, "check_location", lambda *given: None)
    with pytest.raises(DirectoryMoved), claimed(job, copy):
        pass


@pytest.mark.feature("D33")
@pytest.mark.parametrize("moved", [True, False])
def test_a_new_line_of_history_warns_of_output_that_it_leaves_to_the_original_of_a_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, moved: bool
) -> None:
    """If the directory was moved, there is no original: the job publishes what the snapshot carries."""
    out = Target()
    out.error = OSError("down")
    with OutputPlace(tmp_path).run(out=out) as job:
        job.epoch("out")
        job.checkpoint()
    copy = Path(shutil.copytree(tmp_path / "ckpt", tmp_path / "copy"))
    begun = writing(tmp_path / "out")
    path = str(copy / "job" / "chk-1")
    with claimed(
        begun, copy, fresh=True, path=path, accept_moved_directory=moved, ignore_unclaimed_state=True
    ) as owned:
        assert len(owned.store.entry.owed) == moved
    assert ("carries output of 1 epoch that may not be published" in caplog.text) is not moved
