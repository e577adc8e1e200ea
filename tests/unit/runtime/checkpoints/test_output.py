"""Output is published beside everything else: a target that hangs or refuses holds up nobody but its own sink."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.checkpoints.test_loop import Death, dies_at
from tests.waiting import eventually
from tidegate.checkpoint.completed.retained import resolve
from tidegate.checkpoint.coordination.coordinator import FailJob
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.layout import JobLayout, committed_record
from tidegate.checkpoint.output.committables import Ledger
from tidegate.checkpoint.output.release_plan import Backoff, ReleaseSchedule, WaitingOutput, summary
from tidegate.config import Checkpointing, read_options
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.config.choices import JobEnd
from tidegate.connectors.outcome import CommitRefused
from tidegate.connectors.sink import Committable, Settled
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.errors import EpochFailed
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.failure_latch import CheckpointsFailed
from tidegate.runtime.checkpoints.history import JobHistory, UnpublishedOutput
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.checkpoints.output import OutputNotPublished
from tidegate.runtime.checkpoints.owned_term import UnclaimedOutput
from tidegate.runtime.checkpoints.ownership import Ownership
from tidegate.runtime.checkpoints.sink_threads import OutputStopped, SinkThreads, _SinkThread
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.job_description import JobDescription, TaskSink
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.exchange.assignment import ALL_SLOTS
from tidegate.runtime.exchange.messages import OutputMark, TaskCommitResult
from tidegate.storage import LocalStorage, RoutedStorage

WAIT_S = 30


class Target:
    """A committer whose target can be down, hang, or refuse for good."""

    def __init__(self) -> None:
        self.published: list[tuple[EpochId, Slot]] = []
        self.calls: list[int] = []
        """How many requests came with each call."""
        self.error: Exception | None = None
        self.open = threading.Event()
        self.open.set()
        self.swept: list[Settled] = []

    def commit(self, requests: Sequence[Committable]) -> None:
        self.calls.append(len(requests))
        assert self.open.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        done = set(self.published)
        self.published += [(r.epoch, r.slot) for r in requests if (r.epoch, r.slot) not in done]

    def sweep(self, settled: Settled) -> None:
        self.swept.append(settled)


class Job:
    """A run of a job without Spark: epochs have output and no state."""

    def __init__(self, loop: CheckpointLoop, folder: Path, lineage: Lineage, term: Any) -> None:
        self.loop, self._folder, self._lineage, self._at = loop, folder, lineage, EpochId(term, 1)
        self.waited_at_first = 0

    def epoch(
        self, *sinks: str, slots: int = 1, size_bytes: int = 0, published: tuple[TaskCommitResult, ...] = (),
        staged: tuple[str, ...] = (), payload: bytes = b"rows",
    ) -> EpochId:  # fmt: skip
        epoch = self._at = self._at.next()
        made = tuple(
            Committable(
                lineage=self._lineage,
                sink=Uid(sink),
                epoch=epoch,
                slot=Slot(slot),
                payload=payload,
                staged=staged,
                size_bytes=size_bytes,
            )
            for sink in sinks
            for slot in range(slots)
        )
        report = EpochReport(
            epoch=epoch,
            rows_in=0,
            tries=1,
            duration_ms=0,
            plan_ms=0,
            job_ms=0,
            operators={},
            hosts={},
            committables=made,
            commit_results=published,
        )
        self.loop.epoch_finished(report, self.snapshot(), moved=True)
        return epoch

    def inline_bytes(self) -> int:
        """How much output each task of the next epoch may send with its acknowledgement."""
        return self.loop.uploads.work(empty=True)[1].inline_output_bytes

    def snapshot(self) -> EpochSnapshot:
        return EpochSnapshot(self._at, {}, None, self._folder / "query", Clocks())

    def asked(self) -> list[tuple[int, list[EpochId]]]:
        """What the tasks of the next epoch are asked to publish."""
        self.loop.rewind()  # returns when the thread has done all that came before
        orders = [order for each in self.loop.uploads.work(empty=True)[1].commits for order in each]
        return [(order.lane, [request.epoch for request in order.committables]) for order in orders]

    def checkpoint(self) -> None:
        """Take one; its output may wait."""
        self.loop.request(awaits_output=False).result(WAIT_S)


class Place:
    """Where jobs keep their history, one run after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = RoutedStorage(LocalStorage(folder / "ckpt"))

    @contextlib.contextmanager
    def run(
        self, job: str = "job", path: str | None = None, strict: bool = False, tasks: TaskSink | None = None,
        fresh: bool = False, claim: bool = False, allow: bool = False, listening: frozenset[int] = frozenset(),
        sources: tuple[Uid, ...] = (), unasked: tuple[Uid, ...] = (), **targets: Target,
    ) -> Iterator[Job]:  # fmt: skip
        layout = JobLayout(job)
        options = {
            "execution.output.max-waiting-epochs": 2,
            "execution.output.max-waiting-size": "1 kb",
            "execution.output.refuse-unpublished": strict,
            "execution.output.inline-threshold": "300 b",
            "execution.output.max-inline-size": "1000 b",
        }
        chosen = Checkpointing(dir=str(self.folder / "ckpt"), interval="1 h", num_retained=2, options=options)
        config = CheckpointConfig.of(read_options(chosen.to_options()))
        committers = {Uid(name): target for name, target in targets.items()}
        history = JobHistory(self.storage, layout, config)
        source, pin = None, None
        if path is not None:
            source, snapshot = resolve(self.storage, layout, path)
            history.check_origin(source, snapshot, fresh=fresh, claim=claim)
            origin = history.take(source, snapshot, claim)
            source, pin = origin.ref, origin.pin
        owned = Ownership.claim(history, Start(source=source, fresh=fresh), force=True, pin=pin)
        owned.check_output(committers, allow=allow)
        described = JobDescription(
            job=job,
            parallelism=2,
            max_parallelism=128,
            backend="hashmap",
            levels=1,
            sources=sources,
            operators=(),
            state_ids={},
            spark_version="4.3.0",
            task_sinks={} if tasks is None else {Uid(name): tasks for name in targets},
            listening=listening,
            sink_levels=frozenset({1}),
        )
        waited = len(summary(owned.store.due(), ReleaseSchedule()))
        quick = Backoff(first_ms=10, greatest_ms=20)
        loop = CheckpointLoop(owned, described, SinkThreads(committers, self.storage, unasked), backoff=quick)
        running = Job(loop, self.folder, owned.restore_point().lineage, owned.restore_point().term)
        running.waited_at_first = waited
        loop.begin_at(running.snapshot())
        try:
            yield running
        finally:
            for target in targets.values():
                target.open.set()
            loop.leave()

    def records(self) -> list[str]:
        return sorted(found.path for found in self.storage.list("job") if "committed" in found.path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.feature("J17", "J21", "N27")
def test_output_is_committed_when_its_checkpoint_is_complete_and_not_before(place: Place) -> None:
    out = Target()
    with place.run(out=out) as job:
        first = job.epoch("out")
        job.loop.output_committed().result(WAIT_S)  # all that is due, and nothing is
        assert out.published == []
        job.checkpoint()
        eventually(lambda: out.published == [(first, Slot(0))])


@pytest.mark.feature("C2", "C11")
def test_checkpoints_savepoints_and_rewinds_continue_while_a_target_hangs(place: Place) -> None:
    out = Target()
    with place.run(out=out) as job:
        out.open.clear()
        job.epoch("out")
        job.checkpoint()
        eventually(lambda: out.calls == [1])
        job.epoch("out")
        job.checkpoint()
        job.loop.savepoint(str(place.folder / "sp"), terminal=False).result(WAIT_S)
        job.loop.rewind()
        assert job.loop.statistics.counts.completed >= 3
        assert out.published == []
        out.open.set()
        job.loop.output_committed().result(WAIT_S)
    assert len(out.published) == 2


def test_a_sink_that_is_down_holds_up_no_other(place: Place) -> None:
    down, up = Target(), Target()
    down.error = OSError("connection refused")
    with place.run(down=down, up=up) as job:
        for _ in range(3):
            job.epoch("down", "up")
            job.checkpoint()
        eventually(lambda: [w.epochs for w in job.loop.waiting_output] == [3])
        assert len(up.published) == 3
        assert down.published == []
        (waits,) = job.loop.waiting_output
        assert str(waits) == f"sink 'down' has output of 3 epochs from {waits.since} on: connection refused"
        down.error = None
        eventually(lambda: len(down.published) == 3)
        assert down.calls[-1] == 3  # all that waited, in one call
    assert down.published == up.published


@pytest.mark.feature("J21")
def test_a_manual_checkpoint_is_answered_when_its_output_is_committed(place: Place) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        answer = job.loop.request()
        eventually(lambda: len(out.calls) >= 2)
        assert not answer.done()
        out.error = None
        ref = answer.result(WAIT_S)
        assert len(out.published) == 1
        assert place.records() == [committed_record(ref.metadata)]


@pytest.mark.parametrize("terminal", [True, False])
def test_what_a_savepoint_carried_is_recorded_in_the_jobs_folder_and_not_offered_again(
    place: Place, terminal: bool
) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out", slots=2)
        path = job.loop.savepoint(str(place.folder / "sp"), terminal=terminal).result(WAIT_S)
        published = job.loop.output_committed()
        eventually(lambda: len(out.calls) >= 2)
        assert not published.done()
        out.error = None
        published.result(WAIT_S)
    assert any("/committed/" in name for name in place.records())
    assert {found.name for found in Path(path).iterdir()} == {"_metadata"}
    again = Target()
    with place.run(path=path, out=again) as job:
        job.loop.output_committed().result(WAIT_S)
        assert again.calls == []


def test_only_a_savepoint_that_carries_output_leaves_a_record_and_one_however_often_it_is_used(place: Place) -> None:
    """Nothing deletes these records, since nobody knows whether the savepoint still exists. So there must be few."""
    out = Target()
    with place.run(out=out) as job:
        job.epoch("out")
        job.checkpoint()
        job.loop.output_committed().result(WAIT_S)
        for _ in range(3):
            job.loop.savepoint(str(place.folder / "none"), terminal=False).result(WAIT_S)
        job.loop.output_committed().result(WAIT_S)
        assert not [name for name in place.records() if "/committed/" in name]
        job.epoch("out")
        path = job.loop.savepoint(str(place.folder / "one"), terminal=False).result(WAIT_S)
        job.loop.output_committed().result(WAIT_S)
    for _ in range(3):
        with place.run(path=path, out=out) as job:
            job.loop.output_committed().result(WAIT_S)
    assert len([name for name in place.records() if "/committed/" in name]) == 1


def test_output_of_a_savepoint_is_not_offered_again_when_a_later_run_has_committed_it(place: Place) -> None:
    """The run that took the savepoint died before it could record that."""
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        path = job.loop.savepoint(str(place.folder / "sp"), terminal=False).result(WAIT_S)
    out.error = None
    with place.run(out=out) as job:
        job.loop.output_committed().result(WAIT_S)
        job.epoch()
        job.checkpoint()
    again = Target()
    with place.run(path=path, out=again) as job:
        job.loop.output_committed().result(WAIT_S)
        assert again.calls == []
        assert any("/committed/" in name for name in place.records())


def test_uncommitted_output_of_a_savepoint_is_offered_in_full(place: Place) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        path = job.loop.savepoint(str(place.folder / "sp"), terminal=False).result(WAIT_S)
        job.epoch("out")
        job.checkpoint()
    again = Target()
    with place.run(path=path, out=again) as job:
        job.loop.output_committed().result(WAIT_S)
        assert len(again.published) == 2


def test_every_retained_checkpoint_is_recorded_once_its_output_is_committed(place: Place) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        for _ in range(2):
            job.epoch("out")
            job.checkpoint()
    out.error = None
    with place.run(out=out) as job:
        job.loop.output_committed().result(WAIT_S)
        assert len(place.records()) == 2


@pytest.mark.feature("J26")
def test_output_committed_while_a_run_ends_is_recorded(place: Place) -> None:
    out = Target()
    with place.run(out=out) as job:
        out.open.clear()
        job.epoch("out")
        job.checkpoint()
        eventually(lambda: out.calls == [1])
        threading.Timer(0.05, out.open.set).start()
        job.loop.finish(JobEnd.CANCELED)
    assert len(out.published) == 1
    assert len(place.records()) == 1


def test_output_committed_while_a_run_is_left_is_recorded(place: Place) -> None:
    out = Target()
    with place.run(out=out) as job:
        out.open.clear()
        job.epoch("out")
        job.checkpoint()
        eventually(lambda: out.calls == [1])
        threading.Timer(0.05, out.open.set).start()
        job.loop.leave()
    assert len(place.records()) == 1


def test_another_job_cannot_claim_a_savepoint_with_uncommitted_output(place: Place) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        path = job.loop.savepoint(str(place.folder / "sp"), terminal=True).result(WAIT_S)
    with (
        pytest.raises(UnpublishedOutput, match=r"NO_CLAIM.*claim mode CLAIM deletes it"),
        place.run("other", path, claim=True),
    ):
        pass
    out.error = None
    with place.run(out=out) as job:
        job.loop.output_committed().result(WAIT_S)
    with place.run("other", path, claim=True):
        pass


def test_discarded_output_is_not_recorded_as_committed(place: Place) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        job.checkpoint()
    with place.run(allow=True) as job:
        job.loop.output_committed().result(WAIT_S)
        assert place.records() == []
    out.error = None
    with place.run(out=out) as job:  # there is no checkpoint without it yet, and the sink is back
        job.loop.output_committed().result(WAIT_S)
        assert len(out.published) == 1


@pytest.mark.parametrize("end", ["killed", "finished", "stopped"])
def test_discarded_output_is_not_committed_by_a_return_to_the_savepoint(place: Place, end: str) -> None:
    """The first checkpoint without it settles the question, also if that checkpoint is deleted later."""
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        path = job.loop.savepoint(str(place.folder / "sp"), terminal=False).result(WAIT_S)
        job.checkpoint()
    with place.run(allow=True) as job:
        job.epoch()
        if end == "stopped":
            job.loop.savepoint(str(place.folder / "end"), terminal=True).result(WAIT_S)
        else:
            job.checkpoint()
        if end == "finished":
            job.loop.finish(JobEnd.FINISHED)
    out.error = None
    with place.run(path=path, out=out) as job:
        job.loop.output_committed().result(WAIT_S)
        assert out.published == []
        job.epoch("out")
        job.checkpoint()
        job.loop.output_committed().result(WAIT_S)
        assert len(out.published) == 1  # its new output is


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("point", ["discard.1-recorded", "publish.1-metadata"])
def test_output_stays_discarded_if_the_driver_is_killed_after_it_was_recorded(
    place: Place, point: str, terminal: bool
) -> None:
    """No checkpoint without the output was published. Those that carry it are all there are, and none publishes it."""
    if terminal and point == "publish.1-metadata":
        point = "stop.1-entry"
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        path = job.loop.savepoint(str(place.folder / "sp"), terminal=False).result(WAIT_S)
        job.checkpoint()
    with contextlib.suppress(Death), place.run(allow=True) as job:
        job.epoch()
        end = partial(job.loop.savepoint, str(place.folder / "end"), terminal=True)
        with dies_at(point), pytest.raises(Death):
            (end() if terminal else job.loop.request()).result(WAIT_S)
    out.error = None
    with place.run(path=path, out=out) as job:
        job.loop.output_committed().result(WAIT_S)
        assert out.published == []
    with place.run() as job:  # nothing waits for the sink, so nobody has to be asked again
        job.loop.output_committed().result(WAIT_S)
    with place.run(out=out) as job:
        job.loop.output_committed().result(WAIT_S)
        assert out.published == []
        job.epoch("out")
        job.checkpoint()
        job.loop.output_committed().result(WAIT_S)
        assert len(out.published) == 1  # its new output is


def test_output_is_not_discarded_if_the_driver_is_killed_before_it_was_recorded(place: Place) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        job.checkpoint()
    with place.run(allow=True) as job:
        job.epoch()
    with pytest.raises(UnclaimedOutput), place.run():
        pass
    out.error = None
    with place.run(out=out) as job:
        job.loop.output_committed().result(WAIT_S)
        assert len(out.published) == 1


def test_deleting_the_record_of_discarded_output_gets_it_committed(place: Place) -> None:
    """The warning says so. A start that found the record has not recorded the output as published."""
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        path = job.loop.savepoint(str(place.folder / "sp"), terminal=False).result(WAIT_S)
        job.checkpoint()
    with place.run(allow=True) as job:
        job.epoch()
        job.checkpoint()
        job.loop.finish(JobEnd.FINISHED)
    out.error = None
    with place.run(path=path, out=out) as job:
        job.loop.output_committed().result(WAIT_S)
    shutil.rmtree(place.folder / "ckpt" / "job" / "discarded")
    with place.run(path=path, out=out) as job:
        job.loop.output_committed().result(WAIT_S)
        assert len(out.published) == 1


def test_what_waits_is_known_before_the_first_epoch(place: Place) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        job.checkpoint()
    with place.run(out=out) as job:
        assert job.waited_at_first == 1


def test_a_refusal_and_the_end_of_the_job_fail_requests_that_wait_for_output(place: Place) -> None:
    out = Target()
    out.error = CommitRefused("no such table")
    with place.run(out=out) as job:
        job.epoch("out")
        early = job.loop.request()
        with pytest.raises(OutputStopped):
            early.result(WAIT_S)
        with pytest.raises(OutputStopped):
            job.loop.output_committed().result(WAIT_S)
    for late in (job.loop.output_committed, job.loop.request):
        with pytest.raises(EpochFailed, match="has ended"):
            late().result(WAIT_S)


def test_a_sweep_requested_while_another_begins_is_not_lost() -> None:
    out = Target()
    began, go_on = threading.Event(), threading.Event()

    class Slow(_SinkThread):
        def _take_sweep(self) -> Settled | None:
            found = super()._take_sweep()
            began.set()
            assert go_on.wait(WAIT_S)
            return found

    sink = Slow(Uid("out"), out, LocalStorage(Path()))
    epochs = [EpochId(Term(1), number) for number in (1, 2)]
    sink.begin_sweep(Settled(Lineage("line"), Uid("out"), epochs[0]))
    assert began.wait(WAIT_S)
    sink.begin_sweep(Settled(Lineage("line"), Uid("out"), epochs[1]))
    go_on.set()
    eventually(lambda: [each.epoch for each in out.swept] == epochs)
    sink.stop()


@pytest.mark.feature("I14", "J21")
def test_waiting_output_of_a_terminal_savepoint_is_committed_by_the_next_start(place: Place) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        job.loop.savepoint(str(place.folder / "sp"), terminal=True).result(WAIT_S)
        published = job.loop.output_committed()
        eventually(lambda: len(out.calls) >= 1)
        assert not published.done()
    out.error = None
    with place.run(out=out) as job:
        job.loop.output_committed().result(WAIT_S)
    assert len(out.published) == 1


def test_a_new_line_of_history_from_the_newest_savepoint_commits_its_output(place: Place) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        path = job.loop.savepoint(str(place.folder / "sp"), terminal=True).result(WAIT_S)
    out.error = None
    with place.run(path=path, fresh=True, strict=True, out=out) as job:
        job.loop.output_committed().result(WAIT_S)
        assert len(out.published) == 1


def test_a_start_under_another_name_warns_of_uncommitted_output_and_is_refused_if_strict(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        job.epoch("out")
        path = job.loop.savepoint(str(place.folder / "sp"), terminal=True).result(WAIT_S)
    with (
        pytest.raises(UnpublishedOutput, match=r"'job'.*only a start of that job"),
        place.run("other", path, strict=True, out=Target()),
    ):
        pass
    with place.run("other", path, out=Target()):
        assert "carries output of 1 epoch" in caplog.text
    caplog.clear()
    out.error = None
    with place.run(out=out) as job:
        job.loop.output_committed().result(WAIT_S)
    with place.run("third", path, strict=True, out=Target()):
        assert "carries output" not in caplog.text


def backlog(job: Job, place: Place, epochs: int) -> list[int]:
    """Output of 40 KB in each of 16 slots waits longer and longer. Return what each checkpoint wrote, in bytes."""
    sizes = []
    for _ in range(epochs):
        before = {found.path for found in place.storage.list("job") if "/chk-" in found.path}
        job.epoch("out", slots=16, payload=b"x" * 40_000)
        job.checkpoint()
        sizes.append(sum(found.size_bytes for found in place.storage.list("job") if found.path not in before))
    return sizes


def test_waiting_output_is_stored_once_and_committed_by_the_next_start(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        sizes = backlog(job, place, epochs=8)
        savepoint = job.loop.savepoint(str(place.folder / "sp"), terminal=False).result(WAIT_S)
        newest = place.storage.url + "/job/chk-8"
    assert max(sizes) < 2.5 * sizes[0], "what is new, and what was new in the checkpoint before"
    with place.run("fork", newest, out=Target()) as fork:
        assert "carries output of 8 epochs" in caplog.text
        fork.epoch()
        fork.checkpoint()  # the fork no longer holds what it began from
        _, snapshot = resolve(place.storage, JobLayout("fork"), str(savepoint))
        assert snapshot.stored_output == ()
        assert len(snapshot.committables) == 8 * 16
    out.error = None
    with place.run(out=out) as job:
        job.loop.output_committed().result(WAIT_S)
        assert len(set(out.published)) == len(out.published) == 8 * 16
        for _ in range(3):
            job.epoch()
            job.checkpoint()
        eventually(lambda: not [f.path for f in place.storage.list("job") if "/output-" in f.path])


def test_permanently_refused_output_stops_the_job_and_is_not_offered_again(place: Place) -> None:
    out, up = Target(), Target()
    out.error = CommitRefused("no such table")
    with place.run(out=out, up=up) as job:
        job.epoch("out", "up")
        job.checkpoint()
        assert job.loop.failed.wait(WAIT_S)
        with pytest.raises(OutputStopped, match=r"no such table.*offered again by the next start"):
            job.loop.check()
        eventually(lambda: len(up.published) == 1)
        assert out.calls == [1]


def test_a_refusal_outlives_failed_checkpoints_and_the_rewind_after_them(place: Place) -> None:
    out = Target()
    with place.run(out=out) as job:
        out.open.clear()
        job.epoch("out")
        job.checkpoint()
        eventually(lambda: out.calls == [1])
        job.loop._thread.call(
            lambda: job.loop.edge.run(job.loop.checkpointer._act([FailJob("too many checkpoints failed")]))
        )
        assert isinstance(job.loop.ownership.failure.error, CheckpointsFailed)
        out.error = CommitRefused("no such table")
        out.open.set()
        eventually(lambda: [waits.error is not None for waits in job.loop.waiting_output] == [True])
        job.loop.rewind()
        assert job.loop.failed.is_set()
        assert isinstance(job.loop.broken, OutputStopped)
        assert out.calls == [1]


@pytest.mark.feature("J20", "J21", "N10")
def test_committed_output_is_left_out_of_the_next_checkpoint_though_another_sink_waits(place: Place) -> None:
    down, up = Target(), Target()
    down.error = OSError("down")
    with place.run(down=down, up=up) as job:
        job.epoch("down", "up")
        job.checkpoint()
        eventually(lambda: len(up.published) == 1 and {w.sink for w in job.loop.waiting_output} == {"down"})
        job.epoch("down")
        job.checkpoint()
        snapshot = job.loop.ownership.restore_point().snapshot
        assert snapshot is not None
        assert [c.sink for c in snapshot.committables] == ["down", "down"]
    again = Target()
    with place.run(down=Target(), up=again) as job:
        job.loop.output_committed().result(WAIT_S)
        assert again.calls == []


@pytest.mark.parametrize(("epochs", "size_bytes"), [(3, 0), (1, 2_000)])
def test_a_sink_for_which_too_much_output_waits_holds_the_next_batch(
    place: Place, epochs: int, size_bytes: int
) -> None:
    down, up = Target(), Target()
    down.error = OSError("down")
    with place.run(down=down, up=up) as job:
        for _ in range(epochs):
            assert job.loop.held_by() is None
            job.epoch("down", "up", size_bytes=size_bytes)
            job.checkpoint()
        held = job.loop.held_by()
        assert held is not None
        assert held.sink == "down"
        down.error = None
        eventually(lambda: job.loop.held_by() is None)


def test_sinks_sweep_on_their_own_thread_up_to_committed_output(place: Place) -> None:
    out = Target()
    with place.run(out=out) as job:
        first = job.epoch("out")
        job.loop.request().result(WAIT_S)
        job.epoch("out")
        job.loop.request().result(WAIT_S)
        eventually(lambda: bool(out.swept))
        assert out.swept[-1].epoch == first


class Plain(Target):
    """Shows every row that comes, again and again; the connection breaks at the fifth request."""

    keeps_markers = False

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def commit(self, requests: Sequence[Committable]) -> None:
        self.calls.append(len(requests))
        for request in requests:
            if self.error is not None and len(self.seen) == 4:
                raise self.error
            self.seen.append(request.epoch.number)


def test_a_target_without_markers_is_not_sent_again_what_it_took_before_it_failed(place: Place) -> None:
    out = Plain()
    out.error = OSError("reset")
    with place.run(out=out) as job:
        epochs = [job.epoch("out").number for _ in range(7)]
        job.checkpoint()
        eventually(lambda: bool(job.loop.waiting_output) and job.loop.waiting_output[0].epochs == 3)
        out.error = None
        job.loop.output_committed().result(WAIT_S)
    assert out.seen == epochs


def told(
    job: Job, slot: int, epoch: EpochId, outcome: str = "COMMITTED", error: str | None = None,
    taken: EpochId | None = None,
) -> None:  # fmt: skip
    """A task acknowledges what came of an order."""
    mark = OutputMark(job._lineage, slot, epoch.term, epoch.number)
    before = () if taken is None else (OutputMark(job._lineage, slot, taken.term, taken.number),)
    found = TaskCommitResult("out", (mark,), {outcome: 1}, outcome, error, before)
    job.epoch(published=(found,))


def test_tasks_commit_one_stage_after_the_other_and_the_next_term_begins_when_all_slots_are_done(place: Place) -> None:
    out, keyed = Target(), TaskSink(1, stable=True)
    with place.run(out=out, tasks=keyed) as job:
        old = [job.epoch("out", slots=3) for _ in range(2)]
        job.checkpoint()
        assert job.asked() == [(0, old), (2, old), (1, old)]  # slot 2 is dealt to the first of the two tasks
        assert job.loop.uploads.has_work()
    with place.run(out=out, tasks=keyed) as job:
        new = job.epoch("out", slots=2)
        job.checkpoint()
        assert job.asked() == [(0, old), (2, old), (1, old)]
        told(job, 0, old[1])
        told(job, 2, old[0])
        assert job.asked() == [(2, old[1:]), (1, old)]
        told(job, 2, old[1])
        told(job, 1, old[1])
        assert job.asked() == [(0, [new]), (1, [new])]
        told(job, 0, new)
        told(job, 1, new)
        assert job.asked() == []
        assert not job.loop.uploads.has_work()
        job.loop.output_committed().result(WAIT_S)
    assert out.calls == []  # nothing passed through the driver


def test_without_a_key_one_task_commits_all_slots_in_the_order_of_epochs(place: Place) -> None:
    with place.run(out=Target(), tasks=TaskSink(1, stable=False)) as job:
        first, second = (job.epoch("out", slots=2) for _ in range(2))
        job.checkpoint()
        assert job.asked() == [(ALL_SLOTS, [first, first, second, second])]
        told(job, 0, second)
        assert job.asked() == [(ALL_SLOTS, [first, second])]


def test_a_failure_in_a_task_lets_its_sink_wait_and_a_refusal_stops_the_job(place: Place) -> None:
    with place.run(out=Target(), tasks=TaskSink(1, stable=True)) as job:
        epoch = job.epoch("out")
        job.checkpoint()
        job.loop.output.schedule = ReleaseSchedule(Backoff(first_ms=60_000))
        told(job, 0, epoch, "RETRY_LATER", "connection refused")
        assert job.asked() == []
        assert [waits.error for waits in job.loop.waiting_output] == ["connection refused"]
        job.loop.output_committed()  # somebody waits for it: now
        assert job.asked() == [(0, [epoch])]
        told(job, 0, epoch, "FAILED_KNOWN", "no such table")
        assert job.asked() == []
        with pytest.raises(OutputStopped, match=r"up to epoch.*no such table"):
            job.loop.check()
        assert dict(job.loop.statistics.commits) == {"RETRY_LATER": 1, "FAILED_KNOWN": 1}


def test_a_task_is_not_asked_again_for_what_its_target_took_before_it_failed(place: Place) -> None:
    with place.run(out=Target(), tasks=TaskSink(1, stable=True)) as job:
        first, second = job.epoch("out"), job.epoch("out")
        job.checkpoint()
        told(job, 0, second, "RETRY_LATER", "reset", taken=first)
        job.loop.output_committed()
        assert job.asked() == [(0, [second])]


EITHER = TaskSink(1, stable=True, small_by_driver=True)


def test_the_driver_commits_little_output_without_waiting_for_an_epoch(place: Place) -> None:
    out = Target()
    with place.run(out=out, tasks=EITHER) as job:
        for _ in range(2):
            job.epoch("out", slots=2)
            job.checkpoint()
            job.loop.output_committed().result(WAIT_S)
            assert job.asked() == []
        assert not job.loop.uploads.has_work()
    assert len(out.calls) == 2


def test_tasks_commit_output_that_the_driver_could_not(place: Place) -> None:
    out = Target()
    out.error = OSError("no route")
    with place.run(out=out, tasks=EITHER) as job:
        epoch = job.epoch("out")
        job.checkpoint()
        eventually(lambda: any(waits.error == "no route" for waits in job.loop.waiting_output))
        job.loop.output_committed()  # somebody waits for it: now
        eventually(lambda: job.asked() == [(0, [epoch])])
        told(job, 0, epoch)
        job.loop.output_committed().result(WAIT_S)
        assert job.asked() == []


class Marked(Target):
    """A committer that lists the markers of its target, which may be away."""

    def __init__(self, *markers: EpochId) -> None:
        super().__init__()
        self.listed = list(markers)
        self.away = 0
        """How often it does not answer."""
        self.asked = 0

    def markers(self, lineage: Lineage, sink: Uid) -> list[EpochId]:
        self.asked += 1
        if self.asked <= self.away:
            raise OSError("no route")
        return self.listed


LOST = EpochId(Term((7 << 32) + 1), 3)
"""Of a history that the log does not have."""


def test_a_target_that_could_not_be_asked_gets_nothing_next_to_output_of_another_history(place: Place) -> None:
    """The marker is of another slot than the output, so no commit sees it."""
    out = Marked(LOST)
    with place.run(out=out, unasked=(Uid("out"),)) as job:
        job.epoch("out")
        job.checkpoint()
        eventually(lambda: job.loop.ownership.failure.error is not None)
        with pytest.raises(OutputStopped, match=r"epoch 3 of term 7, that the checkpoint directory does not know"):
            job.loop.check()
    assert out.calls == []


def test_a_target_that_could_not_be_asked_is_asked_until_it_has_taken_output_and_not_after_that(place: Place) -> None:
    out = Marked()
    out.away = 2
    with place.run(out=out, unasked=(Uid("out"),)) as job:
        for _ in range(2):
            job.epoch("out")
            job.checkpoint()
            job.loop.output_committed().result(WAIT_S)
    assert (out.asked, len(out.calls)) == (3, 2)


def test_a_target_that_was_asked_at_the_start_is_not_asked_again(place: Place) -> None:
    out = Marked(LOST)
    with place.run(out=out) as job:
        job.epoch("out")
        job.checkpoint()
        job.loop.output_committed().result(WAIT_S)
    assert (out.asked, len(out.calls)) == (0, 1)


def test_tasks_ask_a_target_that_could_not_be_asked_until_it_has_taken_output(place: Place) -> None:
    def compares(job: Job) -> list[bool]:
        job.loop.rewind()  # returns when the thread has done all that came before
        return [order.compares for each in job.loop.uploads.work(empty=True)[1].commits for order in each]

    with place.run(out=Target(), tasks=TaskSink(1, stable=True), unasked=(Uid("out"),)) as job:
        first = job.epoch("out", slots=2)
        job.checkpoint()
        assert compares(job) == [True, True]
        told(job, 0, first)
        assert compares(job) == [False]


def test_the_report_of_a_task_does_not_make_the_driver_commit_a_second_time() -> None:
    """An order that was given before the driver took over is answered while the driver publishes."""
    schedule, last = ReleaseSchedule(), EpochId(Term(1), 2)
    due = Ledger(commit_of(EpochId(Term(1), number)) for number in (1, 2)).up_to(last)
    now = SYSTEM_CLOCK.now()
    assert len(schedule.begin(due, now)) == 1
    schedule.succeeded(Uid("out"), now, by_tasks=True)
    assert schedule.begin(due, now) == []
    schedule.failed(Uid("out"), "late", now, 0.0, by_tasks=True)
    assert schedule.busy == {Uid("out")}
    schedule.succeeded(Uid("out"), now)
    assert schedule.busy == frozenset()


def commit_of(epoch: EpochId) -> Committable:
    return Committable(lineage=Lineage("l"), sink=Uid("out"), epoch=epoch, slot=Slot(0), payload=b"")


def test_a_failed_stop_names_the_sink_that_did_not_answer_and_why() -> None:
    waits = WaitingOutput(Uid("out"), 1, 0, EpochId(Term(1), 1), "down")
    assert "has stopped with checkpoint 3" in str(OutputNotPublished.in_time("checkpoint 3", [waits], 5))
    assert "a sink did not accept" in str(OutputNotPublished.in_time("checkpoint 3", [waits], 5))
    assert "storage did not accept the record" in str(OutputNotPublished.in_time("checkpoint 3", [], 5))
    assert "has read all its input" in str(OutputNotPublished.in_time("checkpoint 3", [], 5, stopped=False))


def test_output_that_waits_leaves_less_room_for_rows_in_the_next_acknowledgements(place: Place) -> None:
    out = Target()
    out.error = OSError("down")
    with place.run(out=out) as job:
        assert job.inline_bytes() == 300  # two tasks
        held, go_on = threading.Event(), threading.Event()
        job.loop._thread.post(lambda: (held.set(), go_on.wait(WAIT_S)))
        held.wait(WAIT_S)
        job.epoch("out", slots=2, payload=b"x" * 250)
        assert job.inline_bytes() == 250  # before the loop has seen the epoch
        go_on.set()
        job.checkpoint()
        assert job.inline_bytes() == 250
        job.epoch("out", slots=2, payload=b"x" * 250)
        assert job.inline_bytes() == 0
        job.loop.rewind()
        assert job.inline_bytes() == 250
    with place.run(out=out) as job:
        assert job.inline_bytes() == 250  # what the checkpoint carried
        out.error = None
        job.loop.output_committed().result(WAIT_S)
        assert job.inline_bytes() == 300
