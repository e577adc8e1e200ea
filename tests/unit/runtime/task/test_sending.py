"""What a task sends to the next level: rows in their order, and one barrier at the end of every channel. No Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.unit.runtime.exchange.rows_kit import flat_rows, unpacked
from tests.unit.runtime.task.test_task_time import Remind
from tidegate.core.ids import EpochId, Lineage, Slot, Term
from tidegate.core.times import EpochTime
from tidegate.graph import state_ids
from tidegate.graph.levels import plan
from tidegate.runtime.epochs.pickling import pickled
from tidegate.runtime.exchange.assignment import TaskAssignment
from tidegate.runtime.exchange.messages import Barrier, decode_ack, decode_barrier
from tidegate.runtime.exchange.program import exchange, programs
from tidegate.runtime.task import run_level as task
from tidegate.state.version import VersionId

EPOCH = EpochId(Term(3), 17)
SALTS = (40, 50)


class Echo(tg.KeyedProcessFunction):
    seen = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.seen.update(self.seen.value() + 1)
        yield row.k, self.seen.value()


class Sender:
    """Slot 0 of the first of two levels, at parallelism 2, or a task of the source stage before it."""

    def __init__(self, directory: Path, function=None, mapped: bool = False) -> None:
        job = tg.Job("by-hand", parallelism=2)
        rows = job.source("rows", tg.testing.frame("k string, ts timestamp"), event_time="ts")
        rows = rows.filter(lambda row: row.k != "no") if mapped else rows
        one = rows.key_by("k").process("one", function or Echo(), schema="k string, n bigint")
        self.second(one.key_by("k")).sink("out", tg.CollectSink())
        self._build(job, directory)

    def _build(self, job: tg.Job, directory: Path) -> None:
        self.graph, self.directory = job.graph(), str(directory)
        self.plan = plan(self.graph)
        ids = state_ids.assign({}, [(node.uid, spec.name) for node in self.graph.processes for spec in node.states])
        self.programs = [pickled(program) for program in programs(self.graph, self.plan, ids)]

    def second(self, keyed):
        return keyed.process("two", Echo(), schema="k string, n bigint")

    def assignment(self, level: int, **more) -> TaskAssignment:
        return TaskAssignment(
            job="by-hand",
            lineage=Lineage("line"),
            epoch=EPOCH,
            parallelism=2,
            max_parallelism=128,
            program=self.programs[level],
            slots=(Slot(0), Slot(1)) if level else (),
            salts=SALTS,
            versions=more.pop("versions", (None, None)),
            backend="hashmap",
            backend_options={},
            local_dir=self.directory,
            senders=0,
            **more,
        )

    def run(self, rows: list[tuple[str, int]], **more) -> list[list[Any]]:
        edge = exchange(self.plan, 1)[0]
        batch = flat_rows(edge, [{"k": k, "ts": datetime.fromtimestamp(at, UTC)} for k, at in rows], 5)
        # Two batches, as from a shuffle of many rows.
        batches = [part for part in (batch.slice(0, 2), batch.slice(2)) if len(part)]
        return channels(task.run_level(self.assignment(1, **more), 0, 7, batches), exchange(self.plan, 2))

    def run_source(self, rows: list[tuple[str, int]]) -> list[list[Any]]:
        own = pa.struct(list(self.graph.sources[0].schema.to_arrow()))
        struct = pa.array([{"k": k, "ts": datetime.fromtimestamp(at, UTC)} for k, at in rows], own)
        batch = pa.RecordBatch.from_arrays([struct], names=["s0"])
        return channels(task.run_source_stage(self.assignment(0), 4, 7, [batch]), exchange(self.plan, 1))


def channels(batches, edges) -> list[list[Any]]:
    """The rows and barriers of each channel, in the order in which they were sent."""
    sent: list[list[Any]] = [[] for _ in SALTS]
    for batch in batches:
        for salt, group, row in unpacked(batch, edges):
            sent[SALTS.index(salt)].append(decode_barrier(row) if group is None else row)
    return sent


def barriers(sent: list[list[Any]]) -> list[Barrier]:
    return [item for channel in sent for item in channel if isinstance(item, Barrier)]


@pytest.mark.feature("C8", "C9", "C12")
def test_every_channel_ends_with_one_barrier_of_the_epoch_that_announces_the_rows_before_it(tmp_path):
    sent = Sender(tmp_path).run([("a", 1), ("b", 1), ("c", 1), ("a", 1), ("a", 1)])
    for slot, channel in enumerate(sent):
        *rows, last = channel
        assert isinstance(last, Barrier)
        assert (last.term, last.number, last.target, last.rows) == (3, 17, slot, len(rows))
    assert len(barriers(sent)) == 2
    assert [row["n"] for channel in sent for row in channel[:-1] if row["k"] == "a"] == [1, 2, 3]


@pytest.mark.feature("C12")
def test_a_task_that_emits_nothing_sends_its_barriers_to_all_tasks_of_the_next_level(tmp_path):
    sent = Sender(tmp_path).run([])
    assert [(barrier.target, barrier.rows, barrier.poisoned) for barrier in barriers(sent)] == [
        (0, 0, False),
        (1, 0, False),
    ]


@pytest.mark.feature("C12", "C22")
def test_a_task_that_did_no_work_poisons_its_barriers(tmp_path):
    sent = Sender(tmp_path).run([("a", 1)], versions=(VersionId.parse("3/v16-1"), None))
    assert [(barrier.rows, barrier.poisoned) for barrier in barriers(sent)] == [(0, True), (0, True)]


@pytest.mark.feature("C19")
def test_what_timers_emit_at_the_end_of_an_epoch_is_sent_before_the_barriers(tmp_path):
    sent = Sender(tmp_path, Remind()).run([("a", 1), ("b", 2), ("c", 3)], time=EpochTime(0, 0, 2_500))
    assert sorted(row["k"] for channel in sent for row in channel[:-1]) == ["a", "b"]
    assert [channel[-1].rows for channel in sent] == [len(channel) - 1 for channel in sent]


@pytest.mark.feature("C6")
def test_a_task_of_the_source_stage_ends_its_rows_with_barriers_of_the_epoch(tmp_path):
    sent = Sender(tmp_path, mapped=True).run_source([("a", 1), ("no", 1), ("b", 1), ("c", 1)])
    ends = [channel[-1] for channel in sent]
    assert [(end.term, end.number, end.sender, end.rows) for end in ends] == [
        (3, 17, 4, len(channel) - 1) for channel in sent
    ]
    assert sum(end.rows for end in ends) == 3
    (ack,) = [decode_ack(raw) for end in ends for raw in end.acks]
    assert (ack.epoch, ack.source_rows) == (EPOCH, 4)


class SenderToAggregate(Sender):
    def second(self, keyed):
        return keyed.aggregate("two", rows=tg.count(), most=tg.max("n"))


def test_a_task_combines_what_it_sends_to_a_built_in_aggregate_and_counts_its_own_rows(tmp_path):
    sent = SenderToAggregate(tmp_path).run([("a", 1), ("b", 1), ("a", 1), ("a", 1)])
    rows = {row["_k0"]: (row["_rows"], row["_p0"], row["_p1"]) for channel in sent for row in channel[:-1]}
    assert rows == {"a": (3, 3, 3), "b": (1, 1, 1)}
    assert [channel[-1].rows for channel in sent] == [len(channel) - 1 for channel in sent]
    acks = [decode_ack(raw) for barrier in barriers(sent) for raw in barrier.acks]
    assert [(ack.rows_in, ack.rows_out) for ack in acks] == [(4, 4)]
