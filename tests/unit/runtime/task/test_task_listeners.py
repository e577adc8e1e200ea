"""A task tells its functions what became of checkpoints, before the first row. No Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.unit.runtime.exchange.rows_kit import flat_rows
from tests.unit.testing.test_harness_listeners import PUBLISHED, Count, Letters, Refuses, Told
from tidegate.core.ids import EpochId, Lineage, Slot, Term
from tidegate.graph import state_ids
from tidegate.graph.levels import plan
from tidegate.runtime.epochs.pickling import pickled
from tidegate.runtime.exchange.assignment import CheckpointNotice, CheckpointWork, TaskAssignment
from tidegate.runtime.exchange.messages import FaultKind, TaskAck, decode_ack, decode_barrier
from tidegate.runtime.exchange.program import exchange, programs
from tidegate.runtime.task.run_level import run_level, run_source_stage
from tidegate.state.version import VersionId

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])


def complete(*ids: int) -> tuple[CheckpointNotice, ...]:
    return tuple(CheckpointNotice(id, True) for id in ids)


@pytest.fixture(autouse=True)
def nothing_published() -> None:
    PUBLISHED.clear()


class Task:
    """The task of a level of a job with one slot, epoch after epoch."""

    def __init__(
        self, directory: Any, build: Any, backend: str = "hashmap", columns: str = "letter string", level: int = 1
    ):
        job = tg.Job("by-hand", parallelism=1)
        build(job.source("rows", tg.testing.frame(columns))).sink("out", tg.CollectSink())
        graph = job.graph()
        layout = plan(graph)
        ids = state_ids.assign({}, [(node.uid, spec.name) for node in graph.stateful for spec in node.states])
        self.program = pickled(programs(graph, layout, ids)[level])
        self.edge = exchange(layout, 1)[0]
        self.directory, self.backend, self.level = str(directory), backend, level
        self.version: VersionId | None = None
        self.number = 0

    def assignment(self, notices: tuple[CheckpointNotice, ...]) -> TaskAssignment:
        self.number += 1
        return TaskAssignment(
            job="by-hand",
            lineage=Lineage("line"),
            epoch=EpochId(Term(1), self.number),
            parallelism=1,
            max_parallelism=8,
            program=self.program,
            slots=(Slot(0),),
            salts=() if self.level else (0,),
            versions=(self.version,),
            backend=self.backend,
            backend_options={},
            local_dir=self.directory,
            senders=0,
            work=CheckpointWork(notices=notices),
        )

    def run(self, *rows: dict[str, Any], notices: tuple[CheckpointNotice, ...] = ()) -> TaskAck:
        """One epoch. Without rows, nothing arrives at all."""
        batches = [flat_rows(self.edge, list(rows), 0)] if rows else []
        (out,) = run_level(self.assignment(notices), 0, self.number, batches)
        ack = decode_ack(decode_barrier(out.column(0)[0].as_py()).acks[-1])
        if ack.fault is None:
            self.version = None if ack.version is None else VersionId.parse(ack.version)
        return ack


def letters(rows: Any) -> Any:
    return rows.map(Letters(), schema="letter string", uid="op")


def keyed(function: Any) -> Any:
    return lambda rows: rows.key_by("user").process("op", function, schema="user string, n bigint")


class Diary(tg.MapFunction, Told):
    def open(self, ctx: Any) -> None:
        PUBLISHED.append("open")

    def map(self, row: Any) -> Any:
        PUBLISHED.append(row.letter)
        return row

    def close(self) -> None:
        PUBLISHED.append("close")


def diary(rows: Any) -> Any:
    return rows.map(Diary(), schema="letter string")


@pytest.mark.feature("J27")
def test_a_function_is_notified_after_open_before_the_first_row_and_in_the_given_order(tmp_path: Any) -> None:
    notices = (CheckpointNotice(3, False), *complete(4, 6))
    Task(tmp_path, diary).run({"letter": "a"}, notices=notices)
    assert PUBLISHED == ["open", "aborted 3", "complete 4", "complete 6", "a", "close"]


@pytest.mark.feature("J27")
def test_a_task_without_rows_is_notified_and_one_without_notices_opens_nothing(tmp_path: Any) -> None:
    task = Task(tmp_path, diary)
    task.run(notices=complete(1))
    assert PUBLISHED == ["open", "complete 1", "close"]
    task.run()
    assert PUBLISHED == ["open", "complete 1", "close"]


@BACKENDS
@pytest.mark.feature("J27")
def test_operator_state_written_in_a_notification_is_kept_even_without_rows(tmp_path: Any, backend: str) -> None:
    task = Task(tmp_path, letters, backend)
    task.run({"letter": "a"}, {"letter": "b"})
    before = task.version
    task.run(notices=complete(1))
    assert PUBLISHED == ["a", "b"]
    assert task.version != before
    task.run({"letter": "c"}, notices=complete(2))
    assert PUBLISHED == ["a", "b"]
    task.run(notices=complete(3))
    assert PUBLISHED == ["a", "b", "c"]


@BACKENDS
@pytest.mark.feature("J27")
def test_a_notification_that_changes_nothing_keeps_the_version(tmp_path: Any, backend: str) -> None:
    """Otherwise each checkpoint of an idle job would give rise to the next."""
    task = Task(tmp_path, letters, backend)
    task.run({"letter": "a"})
    task.run(notices=complete(1))
    before = task.version
    task.run(notices=complete(2))
    assert task.version == before


@BACKENDS
def test_keyed_state_is_the_same_after_a_notice(tmp_path: Any, backend: str) -> None:
    task = Task(tmp_path, keyed(Count()), backend, columns="user string")
    task.run({"user": "ann"})
    before = task.version
    ack = task.run(notices=complete(1))
    assert (task.version, ack.operators) == (before, {"op": (0, 0), "out": (0, 0)})
    ack = task.run({"user": "ann"}, notices=complete(2))
    (sent,) = pa.ipc.open_stream(ack.committables[0].payload)
    assert sent.to_pylist() == [{"user": "ann", "n": 2}]


@pytest.mark.feature("J27")
@pytest.mark.parametrize("rows", [(), ({"user": "ann"},)])
def test_an_error_in_the_hook_is_the_functions_error_and_no_version_is_sealed(tmp_path: Any, rows: Any) -> None:
    task = Task(tmp_path, keyed(Refuses()), columns="user string")
    ack = task.run(*rows, notices=complete(1))
    assert ack.fault is not None
    assert ack.fault.kind is FaultKind.USER
    assert "the other system is down" in ack.fault.text
    assert "notify_checkpoint_complete" in ack.fault.text
    assert ack.version is None


class Passes(tg.KeyedProcessFunction):
    def process_element(self, row: Any, ctx: Any) -> Any:
        yield (row.letter,)


def test_a_function_before_the_shuffle_is_notified_too(tmp_path: Any) -> None:
    def build(rows: Any) -> Any:
        return (
            rows.map(Diary(), schema="letter string").key_by("letter").process("op", Passes(), schema="letter string")
        )

    task = Task(tmp_path, build, level=0)
    struct = pa.StructArray.from_arrays([pa.array(["a"])], ["letter"])
    list(run_source_stage(task.assignment(complete(5)), 0, 1, [pa.RecordBatch.from_arrays([struct], ["rows"])]))
    assert PUBLISHED == ["open", "complete 5", "a", "close"]
