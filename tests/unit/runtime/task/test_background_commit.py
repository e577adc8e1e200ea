"""Tasks publish what the driver asks them to, at their own pace, and tell what came of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import tidegate as tg
from tests.unit.runtime.task.test_task import Frame, Level, barrier
from tidegate.config.choices import Publisher
from tidegate.connectors.outcome import CommitOutcome, CommitRefused
from tidegate.connectors.sink import Committable, CommitterContext
from tidegate.core.history import ClaimedTerm, History
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid
from tidegate.graph.levels import plan
from tidegate.runtime.epochs.job_description import TaskSink, task_sinks
from tidegate.runtime.exchange.assignment import Archive, CheckpointWork, CommitOrder
from tidegate.runtime.exchange.messages import OutputMark
from tidegate.runtime.task import background_commit as task_publish
from tidegate.runtime.task.background_commit import BackgroundCommit
from tidegate.schema.schema import Schema

LINE = Lineage("line")


class Rows(Level):
    """Its sink publishes in tasks."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "state", sink=tg.FileSink(str(directory / "out")))
        self.out, self.archive = directory / "out", Archive(str(directory / "ckpt"), {})

    def order(self, number: int, *rows: str) -> CommitOrder:
        """An epoch that prepares output of slot 0, and the order to publish it."""
        ack = self.run(list(rows), [barrier(0, len(rows), number=number), barrier(1, 0, number=number)], number)
        (made,) = ack.committables
        request = Committable(
            lineage=LINE, sink=Uid("out"), epoch=EpochId(Term(1), number), slot=Slot(0), payload=made.payload
        )
        return CommitOrder(Uid("out"), 0, (request,))

    def publish(self, number: int, *orders: CommitOrder, wait_ms: int = 30_000):
        work = CheckpointWork(commits=(orders, ()), wait_ms=wait_ms)
        empty = [barrier(sender, 0, number=number) for sender in (0, 1)]
        return self.run([], empty, number, attempt=number, archive=self.archive, work=work).commit_results

    def visible(self) -> list[Path]:
        return [path for path in self.out.iterdir() if path.is_file() and not path.name.startswith((".", "_"))]


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    task_publish._running.clear()
    task_publish._committers.clear()
    return Rows(tmp_path)


def test_a_task_commits_output_of_an_earlier_epoch_and_acknowledges_it(rows: Rows) -> None:
    order = rows.order(1, "a", "b")
    assert rows.visible() == []
    (told,) = rows.publish(2, order)
    assert (told.sink, told.marks, told.error) == ("out", (OutputMark("line", 0, 1, 1),), None)
    assert len(rows.visible()) == 1
    assert rows.publish(3, order) == (told,)  # asked again: the epoch of the first answer may have been thrown away


def test_a_late_process_that_carries_out_an_old_order_changes_nothing(rows: Rows) -> None:
    """Its driver was replaced long ago, and the successor has published the same output, and more of its own."""
    old, newer = rows.order(1, "a"), rows.order(2, "b")
    rows.publish(3, old)
    rows.publish(4, newer)
    before = {path.name for path in rows.visible()}
    assert len(before) == 2
    for path in rows.visible():
        path.unlink()  # a reader took all of it away
    late = BackgroundCommit(order=old)
    context = CommitterContext(Schema.parse("k string, n bigint"), lambda token: b"")
    late.run(lambda: tg.FileSink(str(rows.out)).create_committer(context))
    assert late.error is None
    assert rows.visible() == []


class Marked:
    """A committer whose target has a marker."""

    def __init__(self, marker: EpochId) -> None:
        self.marker, self.calls = marker, 0

    def commit(self, requests: Sequence[Committable]) -> None:
        self.calls += 1

    def markers(self, lineage: Lineage, sink: Uid) -> list[EpochId]:
        return [self.marker]


@pytest.mark.parametrize("compares", [True, False])
def test_a_task_commits_nothing_next_to_output_of_another_history_if_the_driver_could_not_ask(compares: bool) -> None:
    """The marker is of another slot. Without the order to compare, the driver has asked when the job started."""
    request = Committable(lineage=LINE, sink=Uid("out"), epoch=EpochId(Term(1), 1), slot=Slot(0), payload=b"")
    order = CommitOrder(Uid("out"), 0, (request,), compares)
    committer, history = Marked(EpochId(Term((7 << 32) + 1), 3)), History(LINE, (ClaimedTerm(Term(1), 1),))
    publishing = BackgroundCommit(order=order)
    publishing.run(lambda: committer, history)
    assert committer.calls == (0 if compares else 1)
    assert publishing.outcome is (CommitOutcome.FAILED_KNOWN if compares else CommitOutcome.COMMITTED)
    assert ("does not know" in (publishing.error or "")) == compares


@dataclass
class Held:
    """A committer that waits to be let go, and then does as it is told."""

    answer: Exception | None = None

    def __post_init__(self) -> None:
        self.calls: list[tuple[EpochId, ...]] = []
        self.go = threading.Event()

    def commit(self, requests: Sequence[Committable]) -> None:
        self.calls.append(tuple(request.epoch for request in requests))
        assert self.go.wait(30)
        if self.answer is not None:
            raise self.answer


@dataclass(frozen=True)
class HeldSink:
    committer: ClassVar[Held]

    def create_committer(self, context: object) -> Held:
        return self.committer


@dataclass(frozen=True)
class Node:
    """What is needed of a sink's node."""

    target: HeldSink

    class input:
        schema = None


def begin(number: int, term: int = 1, place: str = "memory://", lineage: Lineage = LINE) -> BackgroundCommit:
    request = Committable(lineage=LINE, sink=Uid("out"), epoch=EpochId(Term(1), number), slot=Slot(0), payload=b"")
    order = CommitOrder(Uid("out"), 0, (request,))
    sink: Any = Node(HeldSink())
    return task_publish.begin(Archive(place, {}), "job", lineage, Term(term), sink, order)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    task_publish._running.clear()
    task_publish._committers.clear()
    monkeypatch.setattr(task_publish, "storage_of", lambda archive: None)
    HeldSink.committer = Held()
    return HeldSink.committer


def test_an_order_that_outlasts_its_task_continues_and_is_reported_by_a_later_one(held: Held) -> None:
    assert begin(1).answer(0.0) is None
    assert begin(2).answer(0.0) is None  # the first one is still at work
    held.go.set()
    first = begin(2).answer(30)
    assert first is not None
    assert (first.marks[0].number, first.error) == (1, None)
    second = begin(2).answer(30)
    assert second is not None
    assert (second.marks[0].number, held.calls) == (2, [(EpochId(Term(1), 1),), (EpochId(Term(1), 2),)])


@pytest.mark.parametrize("other", [{"place": "elsewhere://"}, {"lineage": Lineage("another")}, {"term": 2}])
def test_another_run_of_a_job_in_the_same_process_has_its_own_committers(held: Held, other: dict[str, Any]) -> None:
    """Executors serve one job after the other, and a name says nothing about the target."""
    held.go.set()
    assert begin(1).answer(30) is not None
    HeldSink.committer = second = Held()
    second.go.set()
    assert begin(1, **other).answer(30) is not None
    assert (len(held.calls), len(second.calls)) == (1, 1)


@pytest.mark.parametrize("error", [OSError("down"), CommitRefused("no such table")])
def test_a_failure_is_reported_before_the_next_attempt_begins(held: Held, error: Exception) -> None:
    held.answer = error
    assert begin(1).answer(0.0) is None
    held.go.set()
    held_publishing = begin(1)
    assert held_publishing.done.wait(30)
    told = begin(1).answer(0.0)  # a later task, after the attempt has ended
    assert told is not None
    assert told.error == str(error)
    assert CommitOutcome[told.outcome].stops_the_job == isinstance(error, CommitRefused)
    assert len(held.calls) == 1
    held.answer = None
    again = begin(1).answer(30)
    assert again is not None
    assert again.error is None


def test_slots_are_stable_behind_a_key_and_only_there(tmp_path: Path) -> None:
    job = tg.Job("job", parallelism=2)
    source = job.source("rows", Frame())
    source.sink("plain", tg.FileSink(str(tmp_path)))
    source.map(lambda row: row, schema="k string").sink("mapped", tg.FileSink(str(tmp_path)))
    counted = source.key_by("k").process("count", Passes(), schema="k string")
    counted.sink("keyed", tg.FileSink(str(tmp_path)))
    counted.map(lambda row: row, schema="k string").sink("behind", tg.FileSink(str(tmp_path)))
    counted.sink("shown", tg.CollectSink())
    graph = job.graph()
    found = task_sinks(graph, plan(graph), Publisher.TASKS)
    assert {str(uid): sink.stable for uid, sink in found.items()} == {
        "plain": False, "mapped": False, "keyed": True, "behind": True,
    }  # fmt: skip
    assert found[Uid("keyed")] == TaskSink(1, True)


class Passes(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield row


def test_a_committer_without_markers_is_called_for_each_epoch_and_reports_what_it_took() -> None:
    class Plain:
        keeps_markers = False

        def commit(self, requests: Sequence[Committable]) -> None:
            if requests[0].epoch.number == 3:
                raise OSError("reset")

    requests = [
        Committable(lineage=LINE, sink=Uid("out"), epoch=EpochId(Term(1), number), slot=Slot(0), payload=b"")
        for number in (1, 2, 3, 4)
    ]
    at_work = BackgroundCommit(order=CommitOrder(Uid("out"), 0, tuple(requests)))
    at_work.run(Plain)
    found = at_work.answer(0)
    assert found is not None
    assert (found.error, found.taken) == ("reset", (OutputMark("line", 0, 1, 2),))
