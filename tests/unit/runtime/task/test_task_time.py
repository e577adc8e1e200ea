"""A task and its clocks: timers without rows, event times in acknowledgements, attempts that agree. No Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import tidegate as tg
from tests.unit.runtime.exchange.rows_kit import flat_rows
from tidegate.core.ids import EpochId, Lineage, Slot, Term
from tidegate.core.times import EpochTime
from tidegate.graph import state_ids
from tidegate.graph.event_times import split_name
from tidegate.graph.levels import plan
from tidegate.runtime.epochs.pickling import pickled
from tidegate.runtime.exchange.assignment import TaskAssignment
from tidegate.runtime.exchange.messages import decode_ack, decode_barrier
from tidegate.runtime.exchange.program import exchange, programs
from tidegate.runtime.task import run_level as task
from tidegate.state.version import VersionId

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])


class Remind(tg.KeyedProcessFunction):
    """Says the key again 100 ms later, in event time."""

    def process_element(self, row, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 100)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp


class Level1:
    """The one level of a small job, one epoch after the other."""

    def __init__(self, directory, backend, split=None) -> None:
        job = tg.Job("by-hand", parallelism=1)
        rows = job.source("rows", tg.testing.frame("k string, ts timestamp"), event_time="ts", split=split)
        rows.key_by("k").process("remind", Remind(), schema="k string, at bigint").sink("out", tg.CollectSink())
        graph = job.graph()
        layout = plan(graph)
        ids = state_ids.assign({}, [(node.uid, spec.name) for node in graph.processes for spec in node.states])
        self.program = pickled(programs(graph, layout, ids)[1])
        self.edge = exchange(layout, 1)[0]
        self.directory, self.backend = str(directory), backend
        self.version: VersionId | None = None
        self.number = 0

    def run(self, rows, time=None, wake=False, clock=0, attempt=0):
        self.number += 0 if attempt else 1
        orders = TaskAssignment(
            job="by-hand",
            lineage=Lineage("line"),
            epoch=EpochId(Term(1), self.number),
            parallelism=1,
            max_parallelism=128,
            program=self.program,
            slots=(Slot(0),),
            salts=(),
            versions=(self.version,),
            backend=self.backend,
            backend_options={},
            local_dir=self.directory,
            senders=0,
            time=EpochTime(clock, 0, time or 0),
            wake=(wake,),
        )
        times = [None if ms is None else datetime.fromtimestamp(ms / 1000, UTC) for _, ms in rows]
        batch = flat_rows(self.edge, [{"k": k, "ts": time} for (k, _), time in zip(rows, times)], 5)
        (out,) = task.run_level(orders, 0, 10 * self.number + attempt, [batch] if rows else [])
        ack = decode_ack(decode_barrier(out.column(0)[0].as_py()).acks[-1])
        assert ack.fault is None
        return ack

    def accept(self, ack):
        self.version = None if ack.version is None else VersionId.parse(ack.version)
        return ack


@pytest.mark.feature("B1")
@BACKENDS
def test_a_task_reports_the_greatest_event_time_and_its_earliest_timer(tmp_path, backend):
    level = Level1(tmp_path, backend)
    ack = level.accept(level.run([("a", 700), ("b", 300), ("c", 500)]))
    assert (ack.event_times, ack.timers) == ({"rows": 700}, (400, None))
    assert level.run([], time=450).timers is None


def test_a_task_reports_the_greatest_time_of_each_split(tmp_path):
    level = Level1(tmp_path, "hashmap", split="k")
    ack = level.run([("a", 700), ("b", 300), ("a", 500)])
    assert ack.event_times == {split_name("rows", "a"): 700, split_name("rows", "b"): 300}


@pytest.mark.feature("C19")
@BACKENDS
@pytest.mark.feature("B1", "B2")
def test_a_task_without_rows_opens_its_state_when_timers_are_due_and_only_then(tmp_path, backend):
    level = Level1(tmp_path, backend)
    first = level.accept(level.run([("a", 700), ("b", 300)]))
    asleep = level.accept(level.run([], time=450))
    assert (asleep.version, asleep.operators) == (first.version, {})
    fired = level.accept(level.run([], time=450, wake=True))
    assert (fired.operators["remind"], fired.timers) == ((0, 1), (800, None))
    assert fired.version != first.version
    assert len(fired.committables) == 1


@BACKENDS
def test_a_task_that_only_looks_makes_no_version(tmp_path, backend):
    level = Level1(tmp_path, backend)
    first = level.accept(level.run([("a", 700)]))
    looked = level.accept(level.run([], time=0, wake=True))
    assert (looked.version, looked.timers, looked.committables) == (first.version, (800, None), ())
    assert len(list(tmp_path.rglob("v*-*"))) == 1


@BACKENDS
@pytest.mark.feature("C22")
def test_timers_fire_after_the_rows_of_their_epoch(tmp_path, backend):
    """Rows of an epoch see the watermark of the epoch before; what they register for a time now passed fires at its end."""
    level = Level1(tmp_path, backend)
    ack = level.accept(level.run([("a", 100), ("b", 900)], time=250))
    assert (ack.operators["remind"], ack.timers) == ((2, 1), (1000, None))


@pytest.mark.feature("B1")
@BACKENDS
def test_two_attempts_of_an_epoch_fire_the_same(tmp_path, backend):
    level = Level1(tmp_path, backend)
    level.accept(level.run([("a", 100), ("b", 200)]))
    acks = [level.run([], time=220, wake=True), level.run([], time=220, wake=True, attempt=1)]
    assert [ack.operators["remind"] for ack in acks] == [(0, 1), (0, 1)]
    assert [ack.timers for ack in acks] == [(300, None), (300, None)]
    assert acks[0].committables[0].payload == acks[1].committables[0].payload
