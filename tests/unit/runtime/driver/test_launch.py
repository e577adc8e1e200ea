"""What is decided about a job before Spark runs anything of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.unit.api.shop import Frame
from tests.unit.runtime.driver.driver_kit import Driver
from tests.unit.runtime.driver.test_checkpoint_loop import COUNT, WAIT_S, Place
from tests.unit.runtime.driver.test_epoch_runner import runner_of
from tidegate.checkpoint.assignment import UnclaimedState
from tidegate.core.ids import Slot, TaskId, Uid
from tidegate.runtime.driver.committers import Committers
from tidegate.runtime.driver.epoch_trigger import EpochTrigger
from tidegate.runtime.driver.job_events import JobEvents
from tidegate.runtime.driver.launch import _identity, _Launch
from tidegate.runtime.driver.ownership import Ownership
from tidegate.runtime.driver.session import REQUIREMENTS
from tidegate.runtime.driver.settings import read_settings
from tidegate.runtime.sources.source_notes import UnclaimedPositions
from tidegate.storage import RoutedStorage, StorageMisconfigured, open_storage

KEYS_8 = 8
SETTINGS = {requirement.key: requirement.wanted for requirement in REQUIREMENTS}


class Session:
    """As much of a SparkSession as is asked before the first row."""

    version = "4.2.0"

    class conf:
        @staticmethod
        def get(key: str, default: str | None = None) -> str | None:
            return SETTINGS.get(key, default)

        @staticmethod
        def isModifiable(key: str) -> bool:
            return False


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


class Counter(tg.KeyedProcessFunction):
    n = tg.ValueState(int)

    def process_element(self, row: Any, ctx: Any) -> Any:
        yield row.k, self.n.value()


def counting(name: str = "job", uid: str = "count", source: str = "in") -> tg.Job:
    job = tg.Job(name, parallelism=2)
    rows = job.source(source, Frame("k string")).key_by("k")
    rows.process(uid, Counter(), schema="k string, n bigint").sink("out", tg.DiscardSink())
    return job


def where(folder: Path) -> tg.Checkpointing:
    return tg.Checkpointing(dir=str(folder), interval="1 h")


@contextlib.contextmanager
def claimed(
    job: tg.Job, folder: Path, key_groups: int = 128, *, fresh: bool = False, force: bool = True, **recovery: Any
) -> Iterator[Ownership]:
    """Claim a job with its checkpoints in a folder, as its start does. `recovery` are options of that name."""
    graph = job.graph()
    settings, durability = read_settings(
        1, parallelism=job.parallelism, max_parallelism=key_groups, checkpoint=where(folder), fresh=fresh, force=force,
        options={f"execution.state-recovery.{key.replace('_', '-')}": value for key, value in recovery.items()},
    )  # fmt: skip
    assert durability is not None
    session: Any = Session()
    storage = RoutedStorage(open_storage(durability.archive.url))
    launch = _Launch(session, graph, settings, EpochTrigger.parse(None), events=JobEvents(graph.job))
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
    for term in (1, 2):
        with claimed(counting(), tmp_path) as owned:
            _, chosen = read_settings(1, parallelism=2, max_parallelism=None, checkpoint=where(tmp_path))
            assert chosen is not None
            identity = _identity(owned, chosen)
            assert (identity.term, identity.archive, identity.lineage) == (
                term,
                chosen.archive,
                owned.store.entry.lineage,
            )


@pytest.mark.feature("A13", "C5", "F2", "I39")
def test_checkpoints_describe_the_job_as_it_runs() -> None:
    runner, session = runner_of(state_backend="rocksdb"), Session()
    launch = _Launch(
        spark=session,
        graph=runner.graph,
        settings=runner.settings,
        trigger=EpochTrigger.parse(None),
        events=JobEvents("j"),
    )  # type: ignore[arg-type]
    told = launch._described(runner)
    assert (told.parallelism, told.max_parallelism, told.backend, told.levels) == (2, 40, "rocksdb", 2)
    assert told.tasks == [TaskId(level, Slot(slot)) for level in (1, 2) for slot in (0, 1)]
    assert told.sources == ("rows",)
    assert {operator.uid: (operator.level, operator.backend) for operator in told.operators} == {
        "one": (1, "rocksdb"),
        "two": (2, "rocksdb"),
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
