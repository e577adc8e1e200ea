"""A job's history written by its own thread, without Spark: the job has no rows and no state, so nothing waits for epochs."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.driver.epoch_kit import epoch_report
from tidegate.checkpoint.completed.completed_store import RunEnded
from tidegate.checkpoint.completed.retained import resolve
from tidegate.checkpoint.coordination.savepoint_target import BadSavepointTarget
from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.coordination.timing import Cadence
from tidegate.checkpoint.files.task_part import encode_part
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.checkpoint.job_log.start import Start, StartRefused
from tidegate.checkpoint.job_log.takeover import CannotClaim
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import FileList, InlineFile, OperatorInfo, StateFile, StateInfo, TaskState
from tidegate.checkpoint.task.assignment import UnclaimedState
from tidegate.checkpoint.task.version_upload import Stored
from tidegate.config import Checkpointing, read_options
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.config.choices import JobEnd
from tidegate.config.errors import OptionError
from tidegate.connectors.sink import Committable
from tidegate.core import faults
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.errors import EpochFailed
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid, ordinal
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.failure_latch import CheckpointsFailed
from tidegate.runtime.checkpoints.history import JobHistory
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.checkpoints.ownership import Ownership
from tidegate.runtime.checkpoints.sink_threads import SinkThreads
from tidegate.runtime.driver.attempt import _go_to_checkpoint
from tidegate.runtime.driver.job_run import JobRun
from tidegate.runtime.driver.stop_request import StopRequest
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.exchange.messages import Uploaded
from tidegate.runtime.sources.query_directory import Positions, read_positions
from tidegate.savepoint.dispose import dispose
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.savepoint.verify import verify
from tidegate.state.version import VersionId
from tidegate.storage import LocalStorage, OutcomeUnknown, RoutedStorage, StorageUnavailable
from tidegate.testing.clock import ManualClock, SteppedClock
from tidegate.testing.storage import FaultyStorage, StorageFault, Strike

WAIT_S = 60
COUNT = OperatorInfo(
    Uid("count"),
    1,
    2,
    "hashmap",
    {"columns": ["string"]},
    (StateInfo(name="n", id=1, kind="value", value={"type": "int"}),),
)


class Place:
    """Where jobs keep their history, one run after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = RoutedStorage(LocalStorage(folder / "ckpt"))
        self.epochs = itertools.count(2)

    @contextlib.contextmanager
    def run(
        self,
        job: str = "job",
        path: str | None = None,
        claims: bool = False,
        keep: int = 1,
        interval: str = "1 h",
        **more: Any,
    ) -> Iterator[CheckpointLoop]:
        layout = JobLayout(job)
        chosen = Checkpointing(
            dir=str(self.folder / "ckpt"),
            interval=interval,
            num_retained=keep,
            max_concurrent=more.get("max_concurrent", 1),
            incremental=more.get("incremental", False),
            min_pause=more.get("min_pause"),
            savepoint_dir=more.get("savepoint_dir"),
        )
        config = CheckpointConfig.of(read_options({**chosen.to_options(), **more.get("options", {})}))
        uids, clock = more.get("uids", {}), more.get("clock", SYSTEM_CLOCK)
        history = JobHistory(self.storage, layout, config, uids, clock)
        source, pin = None, None
        if path is not None:
            found, metadata = resolve(self.storage, layout, path)
            origin = history.take(found, metadata, claims)
            source, pin = origin.ref, origin.pin
        owned = Ownership.claim(history, Start(source=source), force=True, pin=pin)
        told = more.get("statistics")
        loop = self.loop(owned, more.get("operators", ()), sources=more.get("sources", ()), statistics=told)
        try:
            yield loop
        finally:
            loop.finish(JobEnd.SUSPENDED)

    def loop(
        self,
        owned: Ownership,
        operators: tuple[OperatorInfo, ...] = (),
        before: CheckpointLoop | None = None,
        sources: tuple[Uid, ...] = (),
        statistics: CheckpointStatsTracker | None = None,
    ) -> CheckpointLoop:
        job = JobDescription(
            job=owned.history.layout.job,
            parallelism=2,
            max_parallelism=128,
            backend="hashmap",
            levels=1,
            sources=sources,
            operators=operators,
            state_ids={},
            spark_version="4.3.0",
        )
        sinks = SinkThreads({}, self.storage) if before is None else before.sinks
        loop = CheckpointLoop(owned, job, sinks, statistics if before is None else before.statistics)
        term = owned.restore_point().term
        loop.begin_at(EpochSnapshot(EpochId(term, 1), {}, None, self.folder / "query", Clocks()))
        return loop

    def follow_on(self, loop: CheckpointLoop, number: int, *staged: str, output: bool = False) -> None:
        """An epoch was run, and its output committed with it; with `output`, it waits for a checkpoint."""
        epoch = EpochId(Term(1), number)
        requests = tuple(
            Committable(
                lineage=Lineage("line"), sink=Uid("out"), epoch=epoch, slot=Slot(0), payload=b"", staged=(path,)
            )
            for path in staged
        )
        report = epoch_report(epoch, committables=requests)
        loop.epoch_finished(
            report, EpochSnapshot(epoch, {}, None, self.folder / "query", Clocks()), True, output=output
        )

    def epoch(self, loop: CheckpointLoop, at: str | None = None) -> EpochSnapshot:
        """An epoch after which both tasks have state, and the only source is at a position."""
        epoch = EpochId(loop.ownership.restore_point().term, next(self.epochs))
        versions = {TaskId(1, Slot(slot)): VersionId(epoch, AttemptId(slot)) for slot in (0, 1)}
        positions = None if at is None else Positions((at,))
        return EpochSnapshot(epoch, versions, positions, self.folder / "query", Clocks())

    def finish(self, loop: CheckpointLoop, done: EpochSnapshot, stored: EpochSnapshot, checkpoint: int) -> None:
        """Report an epoch in which tasks acknowledge a checkpoint with their state of the epoch `stored`."""
        parts = [
            TaskState(
                task=task, key_groups=groups, backend="hashmap", version=version,
                inline=(InlineFile("full", version, b"state"),),
            )
            for (task, version), groups in zip(stored.versions.items(), [(0, 63), (64, 127)])
        ]  # fmt: skip
        uploads = tuple((part.task, Uploaded(checkpoint, encode_part(part), None)) for part in parts)
        report = epoch_report(done.epoch, uploads=uploads)
        loop.epoch_finished(report, done, True)

    def bases_of_next_upload(self, loop: CheckpointLoop) -> set[Stored | None]:
        """The checkpoints whose files tasks may reuse for a checkpoint that is requested now."""
        loop.begin_at(self.epoch(loop))
        loop.request()
        loop._thread.call(lambda: None)  # the thread has done all that came before
        return {order.base for orders in loop.uploads.work(empty=True)[1].uploads for order in orders}

    def newest(self, job: str = "job") -> str:
        """The path of the only checkpoint that the job retains."""
        (name,) = self.checkpoints(job)
        return str(self.folder / "ckpt" / job / name)

    def checkpoints(self, job: str = "job") -> set[str]:
        return {path.name for path in (self.folder / "ckpt" / job).glob("chk-*")}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.feature("F24", "F25", "F26")
@pytest.mark.parametrize(
    ("incremental", "full", "reuses"),
    [(None, None, False), (True, None, True), (False, None, False), (True, True, False), (None, False, True)],
)
def test_a_checkpoint_reuses_files_of_the_last_one_if_the_job_or_the_request_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch, incremental: bool | None, full: bool | None, reuses: bool
) -> None:
    with place.run(incremental=incremental) as loop:
        first = loop.request().result(WAIT_S)
        bases, add = [], loop.uploads.add
        monkeypatch.setattr(loop.uploads, "add", lambda upload: (bases.extend(upload.base.values()), add(upload)))
        loop.request(full=full).result(WAIT_S)
    assert {base.checkpoint_id for base in bases} == ({first.id} if reuses else set())


@pytest.mark.feature("I11", "I24")
@pytest.mark.parametrize("form", ["CANONICAL", "NATIVE"])
def test_the_metadata_of_a_savepoint_names_its_format(place: Place, form: str) -> None:
    with place.run() as loop:
        path = loop.savepoint(str(place.folder / "sp"), terminal=False, format=form).result(WAIT_S)
        assert loop.statistics.latest_savepoint is not None
        assert loop.statistics.latest_savepoint.savepoint_format == form
    found = StoredSnapshot.open(path)
    assert found.format == form
    assert {task.backend for task in found.metadata.tasks} == {"canonical" if form == "CANONICAL" else "hashmap"}


@pytest.mark.feature("I1", "I8", "I9")
def test_a_savepoint_is_a_new_folder_below_its_target_or_else_below_the_configured_directory(place: Place) -> None:
    with place.run(savepoint_dir=str(place.folder / "usual")) as loop:
        job_id = loop.ownership.store.entry.lineage
        taken = [
            Path(loop.savepoint(target, terminal=False).result(WAIT_S))
            for target in (None, None, str(place.folder / "named"))
        ]
        loop.check_target(None)
    assert [path.parent.name for path in taken] == ["usual", "usual", "named"]
    assert all(re.fullmatch(f"savepoint-{job_id[:6]}-[0-9a-f]{{12}}", path.name) for path in taken)
    assert all((path / "_metadata").exists() for path in taken)
    assert len(set(taken)) == 3


@pytest.mark.feature("I9")
def test_a_savepoint_without_any_directory_is_refused(place: Place) -> None:
    with place.run() as loop:
        for ask in (loop.check_target, lambda target: loop.savepoint(target, terminal=False)):
            with pytest.raises(OptionError, match="no directory for the savepoint"):
                ask(None)
        assert loop.statistics.counts.total == 0


@pytest.mark.feature("I2")
def test_savepoints_outlive_the_checkpoints_that_follow_them(place: Place) -> None:
    with contextlib.suppress(RunEnded), place.run() as loop:
        running = loop.savepoint(str(place.folder / "ckpt" / "sp"), terminal=False).result(WAIT_S)
        last = loop.savepoint(str(place.folder / "sp"), terminal=True).result(WAIT_S)
    with place.run() as loop:
        for _ in range(3):
            loop.request().result(WAIT_S)
        loop.rewind()  # returns when the thread has done all that came before
        assert len(place.checkpoints()) == 1
    assert [list(verify(StoredSnapshot.open(path))) for path in (running, last)] == [[], []]


@pytest.mark.feature("I19")
@pytest.mark.parametrize("claims", [True, False])
def test_only_a_claimed_savepoint_is_deleted_when_it_is_subsumed(place: Place, claims: bool) -> None:
    with place.run() as loop:
        path = loop.savepoint(str(place.folder / "sp"), terminal=False).result(WAIT_S)
    with place.run("next", path, claims, keep=2) as loop:
        assert (Path(path) / "_claimed").exists() == claims
        loop.request().result(WAIT_S)
        assert (Path(path) / "_metadata").exists()
        loop.request().result(WAIT_S)
        loop.rewind()  # returns when the thread has done all that came before
        assert (Path(path) / "_metadata").exists() != claims
    assert (Path(path) / "_metadata").exists() != claims


@pytest.mark.feature("I5", "I20")
def test_the_first_checkpoint_after_a_start_from_a_savepoint_uploads_everything(place: Place) -> None:
    """The next one uploads what is new, as the first one after a restart from a checkpoint of the job does."""
    with place.run() as loop:
        path = loop.savepoint(str(place.folder / "sp"), terminal=False, format="NATIVE").result(WAIT_S)
        loop.request().result(WAIT_S)
    with place.run("next", path, incremental=True) as loop:
        assert loop.ownership.restore_point().stored is None
        assert place.bases_of_next_upload(loop) == {None}
    with place.run(incremental=True) as loop:
        latest = loop.ownership.store.entry.base
        assert latest is not None
        assert loop.ownership.restore_point().stored == (latest.term, latest.id), "tasks know what they need not upload"
        assert None not in place.bases_of_next_upload(loop)


def test_a_job_resumes_from_a_claimed_savepoint_before_it_has_a_checkpoint(place: Place) -> None:
    with place.run() as loop:
        path = loop.savepoint(str(place.folder / "sp"), terminal=False).result(WAIT_S)
    with place.run("next", path, claims=True):
        pass  # the driver ends before its first checkpoint
    with place.run("next") as loop:
        assert loop.ownership.restore_point().snapshot is not None
        assert loop.ownership.restore_point().snapshot.job == "job"
    with pytest.raises(CannotClaim, match="'next'"), place.run("third", path):
        pass


def test_a_savepoint_below_the_checkpoint_directory_is_no_job(place: Place) -> None:
    with place.run() as loop:
        inside = loop.savepoint(str(place.folder / "ckpt" / "savepoints"), terminal=False).result(WAIT_S)
    with place.run("next", inside) as loop:
        assert loop.ownership.restore_point().snapshot is not None


@pytest.mark.feature("H4")
def test_a_checkpoint_has_state_and_positions_of_one_epoch_while_later_ones_run(place: Place) -> None:
    with place.run(sources=(Uid("rows"),)) as loop:
        first, second, third = (place.epoch(loop, at) for at in ("10", "20", "30"))
        loop.begin_at(first)
        asked = loop.request()
        place.finish(loop, second, stored=second, checkpoint=1)
        place.finish(loop, third, stored=first, checkpoint=1)
        asked.result(WAIT_S)
        held = loop.ownership.restore_point().snapshot
    assert held is not None
    assert [position.lines for position in held.positions] == [("10",)]
    assert {state.task: state.version for state in held.tasks} == first.versions


def go_back(
    place: Place, loop: CheckpointLoop, *, clocks: list[Clocks] | None = None, **more: Any
) -> tuple[Mapping[TaskId, Any], Positions | None, bool]:
    """Prepare an attempt as a running job does. `more` are choices of its recovery; `clocks` gets the clocks that are set."""
    sources = [SimpleNamespace(at_most_once=False) for _ in loop.uploads._job.sources]
    set_clocks = [].append if clocks is None else clocks.append
    job: Any = SimpleNamespace(
        loop=loop, description=more.pop("description", loop.uploads._job), graph=SimpleNamespace(sources=sources),
        runner=SimpleNamespace(reset_clocks=set_clocks), spark=SimpleNamespace(conf={}),
        **{"allow_non_restored_state": False, "renamed_fields": {}} | more,
    )  # fmt: skip
    return _go_to_checkpoint(job, place.folder / "again")


@pytest.mark.feature("A35", "C16", "H2", "H3")
def test_an_attempt_begins_with_the_state_and_the_positions_of_the_latest_checkpoint(place: Place) -> None:
    with place.run(sources=(Uid("rows"),), operators=(COUNT,)) as loop:
        first, later = place.epoch(loop, "10"), place.epoch(loop, "20")
        loop.begin_at(first)
        asked = loop.request()
        place.finish(loop, later, stored=first, checkpoint=1)
        asked.result(WAIT_S)
        orders, begin, _ = go_back(place, loop)
    assert {task: order.sources[0].version for task, order in orders.items()} == first.versions
    assert begin == Positions(("10",)) == read_positions(place.folder / "again", 0)


@pytest.mark.feature("B2")
def test_an_attempt_continues_with_the_clocks_of_the_latest_checkpoint(place: Place) -> None:
    clocks, found = Clocks(5_000, 3_000, {"rows": 4_000}), list[Clocks]()
    with place.run(sources=(Uid("rows"),)) as loop:
        loop.begin_at(replace(place.epoch(loop, "10"), versions={}, clocks=clocks))
        loop.request().result(WAIT_S)
    with place.run(sources=(Uid("rows"),)) as loop:
        go_back(place, loop, clocks=found)
    assert found == [clocks]


@pytest.mark.feature("C6")
@pytest.mark.parametrize(("lines", "fixed"), [(("10", "20"), True), (("10", "-"), False)])
def test_a_source_that_has_not_begun_still_needs_its_start_position(
    place: Place, lines: tuple[str, ...], fixed: bool
) -> None:
    with place.run(sources=(Uid("rates"), Uid("orders"))) as loop:
        loop.begin_at(replace(place.epoch(loop), versions={}, positions=Positions(lines)))
        loop.request().result(WAIT_S)
        _, begin, is_fixed = go_back(place, loop)
    assert (begin, is_fixed) == (Positions(lines), fixed)


@pytest.mark.feature("I16", "I17")
def test_an_attempt_fits_the_snapshot_to_the_job_as_its_start_did(place: Place) -> None:
    with place.run(operators=(COUNT,)) as loop:
        first, later = place.epoch(loop), place.epoch(loop)
        loop.begin_at(first)
        asked = loop.request()
        place.finish(loop, later, stored=first, checkpoint=1)
        asked.result(WAIT_S)
        other = replace(loop.uploads._job, operators=(replace(COUNT, uid=Uid("sum")),))
        with pytest.raises(UnclaimedState, match="'count'"):
            go_back(place, loop, description=other)
        orders, _, _ = go_back(place, loop, description=other, allow_non_restored_state=True)
        assert [order.plan.keyed for order in orders.values()] == []


@pytest.mark.feature("H5")
def test_a_rewind_forgets_the_output_of_the_epochs_that_are_repeated(place: Place) -> None:
    with place.run() as loop:
        loop.request().result(WAIT_S)
        place.follow_on(loop, 2, "rows", output=True)
        loop.rewind()
        assert loop.ownership.store.ledger.waiting() == ()


@pytest.mark.feature("I7", "I21", "I30")
def test_a_savepoint_that_was_moved_has_the_long_notes_of_its_sources(place: Place) -> None:
    notes = place.folder / "query" / "sources" / "0"
    notes.mkdir(parents=True)
    (notes / "0").write_text("v1\n" + "x" * 100_000)
    with place.run(sources=(Uid("rows"),)) as loop:
        taken = loop.savepoint(str(place.folder / "sp"), terminal=False).result(WAIT_S)
    moved = StoredSnapshot.open(shutil.move(taken, place.folder / "moved"))
    assert [len(position.files) for position in moved.metadata.positions] == [1]
    assert list(verify(moved)) == []
    dispose(moved)
    assert [path for path in (place.folder / "moved").rglob("*") if path.is_file()] == []


@pytest.mark.feature("H2")
def test_a_restart_returns_to_the_latest_completed_checkpoint(place: Place) -> None:
    with place.run(keep=3) as loop:
        for _ in range(3):
            loop.request().result(WAIT_S)
        place.bases_of_next_upload(loop)  # begins a fourth one, which no task acknowledges
    assert len(place.checkpoints()) == 3
    with place.run(keep=3) as loop:
        assert loop.ownership.restore_point().checkpoint_id == 3


def test_the_path_in_the_statistics_can_be_opened_from_anywhere(place: Place) -> None:
    with place.run() as loop:
        loop.request().result(WAIT_S)
        last = loop.statistics.latest_completed
        assert last is not None
        assert StoredSnapshot.open(last.external_path or "").metadata.checkpoint_id == 1


def finish_epochs_until_checkpoints_complete(place: Place, loop: CheckpointLoop, count: int) -> None:
    """Report epochs to the history, as a running job does, until that many more checkpoints are complete."""
    wanted, latest = loop.statistics.counts.completed + count, time.monotonic() + WAIT_S
    while loop.statistics.counts.completed < wanted:
        assert time.monotonic() < latest, "checkpoints have stopped"
        epoch = EpochId(loop.ownership.restore_point().term, next(place.epochs))
        snapshot = EpochSnapshot(epoch, {}, None, place.folder / "query", Clocks())
        loop.epoch_finished(
            epoch_report(epoch, rows_in=0),
            snapshot,
            True,
        )
        threading.Event().wait(0.005)


@pytest.mark.feature("D2")
@pytest.mark.parametrize("step_ms", [-7_200_000, 7_200_000])
def test_checkpoints_continue_when_the_wall_clock_is_set(place: Place, step_ms: int) -> None:
    clock = SteppedClock()
    with place.run(interval="20 ms", clock=clock) as loop:
        finish_epochs_until_checkpoints_complete(place, loop, 2)
        clock.step_wall(step_ms)
        finish_epochs_until_checkpoints_complete(place, loop, 3)
        assert loop.statistics.counts.failed == 0
        shown = loop.statistics.history()
        assert all(0 <= stats.end_to_end_ms < WAIT_S * 1_000 for stats in shown)
        assert loop.ownership.restore_point().snapshot is not None
        assert (
            0
            <= loop.ownership.restore_point().snapshot.completed_ms
            - loop.ownership.restore_point().snapshot.triggered_ms
            < WAIT_S * 1_000
        )


def finish_epoch(
    place: Place, loop: CheckpointLoop, versions: Mapping[TaskId, VersionId] | None = None, *uploads: tuple[TaskId, Uploaded]
) -> None:  # fmt: skip
    """Report an epoch, with the versions that its tasks left, and wait until the loop has seen it."""
    epoch = EpochId(loop.ownership.restore_point().term, next(place.epochs))
    report = epoch_report(epoch, rows_in=0, uploads=uploads)
    loop.epoch_finished(report, EpochSnapshot(epoch, versions or {}, None, place.folder / "query", Clocks()), True)
    loop.output_committed().result(WAIT_S)


@pytest.mark.feature("K4")
def test_the_size_of_an_incremental_checkpoint_is_what_it_uploaded(place: Place) -> None:
    task, files = TaskId(1, Slot(0)), list[StateFile]()
    with place.run() as loop:
        for id, size_bytes in ((1, 100), (2, 7)):
            version = VersionId(EpochId(Term(1), id), AttemptId(1))
            finish_epoch(place, loop, {task: version})
            files.append(StateFile(f"f{id}", f"shared/f{id}", size_bytes, "sha256:00", version, since=id))
            state = TaskState(
                task=task, key_groups=(0, 63), backend="hashmap", version=version, files=FileList(files)
            )  # fmt: skip
            answer = loop.request()
            finish_epoch(place, loop, {task: version}, (task, Uploaded(id, encode_part(state), None)))
            answer.result(WAIT_S)
        last = loop.statistics.latest_completed
        assert last is not None
        assert (last.checkpointed_size_bytes, last.state_size_bytes) == (7, 107)


@pytest.mark.feature("K1")
def test_an_acknowledgement_has_the_duration_of_its_upload(place: Place) -> None:
    task, version, clock = TaskId(1, Slot(0)), VersionId(EpochId(Term(1), 1), AttemptId(1)), ManualClock()
    state = TaskState(task=task, key_groups=(0, 63), backend="hashmap", version=version, files=FileList())
    with place.run(clock=clock) as loop:
        finish_epoch(place, loop, {task: version})
        answer = loop.request()
        loop.output_committed().result(WAIT_S)
        clock.advance(100)
        finish_epoch(place, loop, {task: version}, (task, Uploaded(1, encode_part(state, async_ms=70), None)))
        answer.result(WAIT_S)
        last = loop.statistics.latest_completed
        assert last is not None
        assert [(t.async_ms, t.start_delay_ms) for t in last.tasks if t.task == task] == [(70, 30)]


@pytest.mark.feature("K11")
def test_min_pause_follows_every_checkpoint_that_completes(place: Place) -> None:
    clock = ManualClock()
    with place.run(interval="1 s", min_pause="600 ms", clock=clock) as loop:
        clock.advance(1_000)
        finish_epoch(place, loop)
        clock.advance(900)
        loop.request().result(WAIT_S)
        assert loop.statistics.counts.completed == 2
        clock.advance(100)  # a second after the first one, and a moment after the second
        finish_epoch(place, loop)
        assert loop.statistics.counts.completed == 2
        clock.advance(500)
        finish_epoch(place, loop)
        assert loop.statistics.counts.completed == 3


@pytest.mark.feature("N6")
def test_the_coordinator_gets_the_whole_configuration(place: Place) -> None:
    prefix = "execution.checkpointing."
    options = {
        prefix + "min-pause": "500 ms",
        prefix + "timeout": "60 s",
        prefix + "tolerable-failed-checkpoints": "2",
        prefix + "max-concurrent-checkpoints": "1",
    }
    with place.run(interval="1 s", options=options) as loop:
        assert loop.timing.cadence == Cadence(
            interval_ms=1_000, timeout_ms=60_000, min_pause_ms=500, max_concurrent=1, tolerable_failures=2
        )


@pytest.mark.feature("I22")
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("ftp://host/savepoints", "Use a path, file://, s3://, gs://, az:// or hdfs://"),
        ("s3://", "s3://"),
        ("{folder}/a-file/savepoints", "a file in the place of a folder|would be a file and a folder at once|Not a directory"),
    ],
)  # fmt: skip
def test_a_savepoint_with_an_impossible_target_is_refused_before_it_begins(
    place: Place, target: str, told: str
) -> None:
    (place.folder / "a-file").write_text("")
    with place.run() as loop:
        with pytest.raises(BadSavepointTarget, match=told):
            loop.check_target(target.format(folder=place.folder))
        assert loop.statistics.counts.total == 0


class RunOf(JobRun):
    """A run that has nothing but its checkpoints."""

    def __init__(self, loop: CheckpointLoop) -> None:
        self._job = SimpleNamespace(loop=loop, stop=StopRequest())  # type: ignore[assignment]


@pytest.mark.feature("I22")
def test_a_job_continues_if_its_savepoint_has_an_impossible_target(place: Place) -> None:
    with place.run() as loop:
        run = RunOf(loop)
        for ask in (run.savepoint, run.stop_with_savepoint):
            with pytest.raises(BadSavepointTarget, match="not supported"):
                ask("ftp://host/savepoints")
        assert not run._job.stop.is_asked()
        assert loop.statistics.counts.total == 0


@pytest.mark.feature("I1", "I9", "I11")
@pytest.mark.parametrize(("format", "written"), [({}, "CANONICAL"), ({"format": "native"}, "NATIVE")])
def test_a_savepoint_of_a_running_job_is_what_and_where_was_asked_for_and_the_job_continues(
    place: Place, format: dict[str, str], written: str
) -> None:
    with place.run(savepoint_dir=str(place.folder / "usual")) as loop:
        path = RunOf(loop).savepoint(str(place.folder / "named"), **format).result(WAIT_S)
        assert (Path(path).parent.name, StoredSnapshot.open(path).format) == ("named", written)
        assert loop.request().result(WAIT_S).id == loop.statistics.counts.total


class Ending(RunOf):
    """A run that ends at once."""

    def stop(self) -> None:
        self._supervisor = SimpleNamespace(last_savepoint="/sp/savepoint-1")  # type: ignore[assignment]


@pytest.mark.feature("I14")
def test_a_stop_passes_on_target_format_and_drain_of_its_savepoint(place: Place) -> None:
    with place.run() as loop:
        run, target = Ending(loop), str(place.folder / "sp")
        assert run.stop_with_savepoint(target, drain=True, format="native") == "/sp/savepoint-1"
        assert (run._job.stop.savepoint, run._job.stop.drain) == ((target, "NATIVE"), True)
        run.stop_with_savepoint(target)
        assert (run._job.stop.savepoint, run._job.stop.drain) == ((target, "CANONICAL"), False)


def test_a_possible_target_is_left_as_it_was(place: Place) -> None:
    with place.run() as loop:
        loop.check_target(str(place.folder / "sp"))
    assert list((place.folder / "sp").iterdir()) == []


@pytest.mark.feature("D10", "I22")
def test_the_requester_of_a_savepoint_learns_why_it_failed(place: Place) -> None:
    (place.folder / "a-file").write_text("")
    with place.run() as loop:
        asked = loop.savepoint(str(place.folder / "a-file" / "sp"), terminal=False)
        with pytest.raises(EpochFailed, match="a-file"):
            asked.result(WAIT_S)
        loop.check()  # It uses up none of the failures that are tolerable.


@pytest.mark.feature("C7", "D8")
def test_positions_that_the_driver_cannot_read_fail_the_checkpoint_and_count(place: Place) -> None:
    with place.run(sources=(Uid("files"),)) as loop:
        loop.begin_at(replace(place.epoch(loop, '{"logOffset": 3}'), versions={}))
        with pytest.raises(EpochFailed, match="positions of the sources: The log of files"):
            loop.request().result(WAIT_S)
        with pytest.raises(CheckpointsFailed):
            loop.check()


@pytest.mark.feature("C1", "D2", "E11")
def test_a_checkpoint_is_taken_when_it_is_due_although_no_epoch_follows(place: Place) -> None:
    with place.run(interval="300 ms") as loop:
        for number in (2, 3):
            place.follow_on(loop, number)
            latest = time.monotonic() + WAIT_S
            while loop.statistics.counts.completed < number - 1:
                assert time.monotonic() < latest
                time.sleep(0.01)


@pytest.mark.feature("D5")
@pytest.mark.parametrize("epochs", [0, 1])
def test_a_checkpoint_expires_without_any_other_event(place: Place, epochs: int) -> None:
    with place.run(options={"execution.checkpointing.timeout": "300 ms"}) as loop:
        loop.begin_at(place.epoch(loop))
        asked = loop.request()
        for number in range(epochs):
            place.follow_on(loop, 1_000 + number)
        with pytest.raises(EpochFailed, match="expired before completing"):
            asked.result(60)


class TakenWhileRead(deque[EpochSnapshot]):
    """While somebody looks through it, the history's thread comes to the epochs in it."""

    def __init__(self, come: Callable[[], None]) -> None:
        super().__init__()
        self._come = come

    def __iter__(self) -> Iterator[EpochSnapshot]:
        self._come()
        return super().__iter__()


@pytest.mark.feature("C25", "H12")
def test_tasks_keep_the_version_of_an_epoch_that_ends_while_their_orders_are_made(place: Place) -> None:
    with place.run() as loop:
        task, held = TaskId(1, Slot(0)), threading.Event()
        epoch = EpochId(loop.ownership.restore_point().term, 2)
        version = VersionId(epoch, AttemptId(7))
        loop._thread.call(lambda: None)  # the thread has done all that came before
        loop._thread.post(held.wait)

        def come() -> None:
            held.set()
            loop._thread.call(lambda: None)

        loop.uploads.unseen = TakenWhileRead(come)
        snapshot = EpochSnapshot(epoch, {task: version}, None, place.folder / "query", Clocks())
        loop.epoch_finished(
            epoch_report(epoch, rows_in=0),
            snapshot,
            True,
        )
        assert loop.uploads.work(empty=True)[1].keep[0] == (version,)


@pytest.mark.feature("C2", "C11")
def test_epochs_report_and_continue_while_a_checkpoint_is_being_completed(place: Place) -> None:
    entered, may_go_on = threading.Event(), threading.Event()

    def hold(point: str, **context: object) -> None:
        if point == "publish.1-metadata":
            entered.set()
            may_go_on.wait(60)

    with place.run() as loop:
        faults.arm(hold)
        try:
            answer = loop.request()
            assert entered.wait(WAIT_S)
            for number in (2, 3, 4):
                place.follow_on(loop, number)
                loop.uploads.work(empty=False)
            assert not answer.done()
            may_go_on.set()
            assert answer.result(WAIT_S).id == 1
        finally:
            faults.arm(None)


class Death(Exception):
    pass


@contextlib.contextmanager
def dies_at(point: str) -> Iterator[None]:
    """The thread that reaches this step of a protocol dies there."""

    def die(reached: str, **context: object) -> None:
        if reached == point:
            raise Death

    faults.arm(die)
    try:
        yield
    finally:
        faults.arm(None)


@pytest.mark.feature("I14")
@pytest.mark.parametrize(
    ("point", "resumes_from"), [("savepoint.1-metadata", "checkpoint"), ("stop.1-entry", "savepoint")]
)
def test_a_driver_killed_during_stop_with_savepoint_resumes_from_the_log(
    place: Place, point: str, resumes_from: str
) -> None:
    with contextlib.suppress(Death), place.run() as loop:
        loop.request().result(WAIT_S)
        with dies_at(point), pytest.raises(Death):
            loop.savepoint(str(place.folder / "sp"), terminal=True).result(WAIT_S)
    with place.run() as loop:
        assert loop.ownership.restore_point().snapshot is not None
        assert loop.ownership.restore_point().snapshot.kind == resumes_from


def test_an_unreadable_pin_skips_cleaning_and_checkpoints_continue(place: Place, caplog: Any) -> None:
    with place.run() as loop:
        place.storage.put("job/pins/torn", b'{"metadata": "job/chk')
        for _ in range(3):
            loop.request().result(WAIT_S)
        assert "job/pins/torn" in caplog.text
        assert place.checkpoints() == {"chk-1", "chk-2", "chk-3"}
        place.storage.delete(["job/pins/torn"])
        loop.request().result(WAIT_S)
        loop.rewind()  # returns when the thread has done all that came before
        assert place.checkpoints() == {"chk-4"}


@pytest.mark.parametrize("fault", ["an unreadable pin", "a failing sweep"])
def test_the_log_stays_short_although_other_parts_of_the_cleaning_fail_each_time(
    place: Place, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A job whose sweep fails for months must not run into the limit of a directory."""
    monkeypatch.setattr(entries, "SLOTS_PER_FOLDER", 3)
    storage = place.storage.home = FaultyStorage(place.storage.home)
    if fault == "an unreadable pin":
        place.storage.put("job/pins/torn", b'{"metadata": "job/chk')
    else:
        storage.script(StorageFault(Strike.FAIL_BEFORE, "list", "job/taskowned", times=1_000))
    with place.run() as loop:
        for _ in range(20):
            loop.request().result(WAIT_S)
        loop.rewind()  # returns when the thread has done all that came before
        assert len(place.storage.list("job/entries")) <= 6


@pytest.mark.feature("H1", "H2")
def test_a_history_that_broke_claims_the_job_again_under_a_new_term(place: Place) -> None:
    with contextlib.suppress(Death), place.run() as loop:
        loop.request().result(WAIT_S)
        with dies_at("publish.2-entry"), pytest.raises(Death):
            loop.request().result(WAIT_S)
        assert isinstance(loop.broken, Death)
        owned = loop.claim_again()
        assert ordinal(owned.restore_point().term) == 2
        assert owned.restore_point().checkpoint_id == 2  # its entry was won before the thread died
        after = place.loop(owned, before=loop)
        assert after.broken is None
        after.request().result(WAIT_S)
        assert after.statistics.latest_completed is not None
        assert after.statistics.latest_completed.id == 3
        assert after.statistics.counts.in_progress == 0
        after.finish(JobEnd.SUSPENDED)
    with place.run() as loop:
        assert loop.ownership.restore_point().checkpoint_id == 3


def test_claiming_again_may_be_repeated_until_storage_answers(place: Place) -> None:
    storage = place.storage.home = FaultyStorage(place.storage.home)
    with contextlib.suppress(Death), place.run() as loop:
        with dies_at("publish.2-entry"), pytest.raises(Death):
            loop.request().result(WAIT_S)
        for strike in (Strike.FAIL_BEFORE, Strike.FAIL_AFTER):
            storage.script(StorageFault(strike, "create", "job/entries"))
            with pytest.raises(OutcomeUnknown):
                loop.claim_again()
        storage.script(StorageFault(Strike.FAIL_BEFORE, "get", "_metadata"))
        with pytest.raises(StorageUnavailable):
            loop.claim_again()
        storage.script()
        after = loop.claim_again()
        assert after.restore_point().term == 4  # the second and the third did win their slots
        after.stop()


def test_a_history_that_broke_does_not_take_the_job_from_another_driver(place: Place) -> None:
    with contextlib.suppress(Death), place.run() as loop:
        with dies_at("publish.2-entry"), pytest.raises(Death):
            loop.request().result(WAIT_S)
        with place.run():
            pass
        with pytest.raises(ClaimLost) as lost:
            loop.claim_again()
        assert lost.value.winner.term == 2


def test_a_sweep_never_lists_the_log(place: Place) -> None:
    storage = place.storage.home = FaultyStorage(place.storage.home)
    with place.run() as loop:
        loop.request().result(WAIT_S)
        loop.rewind()  # returns when the thread has done all that came before
        listed = [path for operation, path in storage.seen if operation == "list" and not path.startswith("job/probe")]
        assert {"job/shared", "job/taskowned"} <= set(listed)
        assert not [path for path in listed if "job/log/".startswith(f"{path}/")]
        assert not [path for path in listed if path.startswith("job/entries") or "job/entries/".startswith(f"{path}/")]


@pytest.mark.feature("J6")
def test_output_committed_with_its_epoch_is_deleted_without_listing(place: Place) -> None:
    """AT_LEAST_ONCE: no checkpoint carries it, so its staged rows go at once."""
    storage = place.storage.home = FaultyStorage(place.storage.home)
    with place.run() as loop:
        loop.request().result(WAIT_S)
        loop.rewind()
        place.follow_on(loop, 1)
        for _ in range(2):  # the first sweeps because of the rewind, and is done when the second completes
            loop.request().result(WAIT_S)
        storage.script()
        for number in range(2, 5):
            staged = JobLayout("job").staged(EpochId(Term(1), number), Uid("out"), AttemptId(7), "rows")
            place.storage.put(staged, b"rows")
            place.follow_on(loop, number, staged)
            loop.request().result(WAIT_S)
        loop.rewind()
        cheap = ("job/pins", "job/acks/1")
        assert [path for operation, path in storage.seen if operation == "list" and path not in cheap] == []
        assert place.storage.list("job/taskowned") == []


def test_a_start_from_another_jobs_checkpoint_that_is_refused_leaves_no_pin(place: Place) -> None:
    with place.run() as loop:
        loop.request().result(WAIT_S)
    with place.run("next"):
        pass
    for _ in range(2):
        with pytest.raises(StartRefused, match="another line"), place.run("next", place.newest()):
            pass
    assert place.storage.list("job/pins") == []


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_a_start_that_is_interrupted_before_its_claim_leaves_no_pin(
    place: Place, interrupt: type[BaseException]
) -> None:
    def strike(point: str, **context: object) -> None:
        if point == "claim.2-decided":
            raise interrupt

    with place.run() as loop:
        loop.request().result(WAIT_S)
    faults.arm(strike)
    try:
        with pytest.raises(interrupt), place.run("next", place.newest()):
            pass
    finally:
        faults.arm(None)
    assert place.storage.list("job/pins") == []


def test_a_job_holds_the_checkpoint_it_began_from_with_one_pin_until_it_has_its_own(place: Place) -> None:
    with place.run() as loop:
        loop.request().result(WAIT_S)
    with place.run("next", place.newest()):
        pass  # the driver ends before its first checkpoint
    with place.run("next", place.newest()):
        pass  # and so does the next one, which asks for the same
    assert len(place.storage.list("job/pins")) == 1
    with place.run("next") as loop:
        assert loop.ownership.restore_point().snapshot is not None
        loop.request().result(WAIT_S)
        loop.rewind()  # returns when the thread has done all that came before
        assert place.storage.list("job/pins") == []


def test_a_job_that_is_stopped_before_its_first_checkpoint_gives_up_the_pin(place: Place) -> None:
    """It continues from the savepoint, which has all its files, and nobody after it knows of the pin."""
    with place.run() as loop:
        loop.request().result(WAIT_S)
    with contextlib.suppress(RunEnded), place.run("next", place.newest()) as loop:
        assert len(place.storage.list("job/pins")) == 1
        loop.savepoint(str(place.folder / "sp"), terminal=True).result(WAIT_S)
    assert place.storage.list("job/pins") == []


def test_a_pin_that_another_start_took_away_is_placed_again_after_the_claim(place: Place) -> None:
    def take_away(point: str, **context: object) -> None:
        if point == "claim.3-won":
            place.storage.delete([found.path for found in place.storage.list("job/pins")])

    with place.run() as loop:
        loop.request().result(WAIT_S)
    faults.arm(take_away)
    try:
        with place.run("next", place.newest()):
            assert len(place.storage.list("job/pins")) == 1
    finally:
        faults.arm(None)


def test_a_start_that_fails_after_its_claim_stops_showing_life(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat that continued would refuse every later start while the process lives."""

    def unavailable(history: JobHistory, base: object) -> None:
        raise StorageUnavailable("local", "pins", "the pin cannot be read")

    with place.run() as loop:
        loop.request().result(WAIT_S)
    before = set(threading.enumerate())
    monkeypatch.setattr(JobHistory, "hold_again", unavailable)
    with pytest.raises(StorageUnavailable), place.run("next", place.newest()):
        pass
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive(), thread.name


@pytest.mark.feature("I37")
def test_a_map_of_uids_is_applied_where_the_snapshot_is_read(place: Place) -> None:
    with place.run(operators=(COUNT,)) as loop:
        loop.request().result(WAIT_S)
    for _ in range(2):  # the second time the checkpoint has the new one already
        with place.run(operators=(replace(COUNT, uid=Uid("sum")),), uids={"count": "sum"}) as loop:
            assert loop.ownership.restore_point().snapshot is not None
            assert [operator.uid for operator in loop.ownership.restore_point().snapshot.operators] == ["sum"]
            assert loop.ownership.history.peek(None) == loop.ownership.restore_point().snapshot
            loop.request().result(WAIT_S)
