"""Functions written for PyFlink on Spark: output, state under the names of descriptors, and a restart that restores it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tidegate as tg
from tests.integration.inputs import stream, write_batches
from tests.unit.flink.moved import moved
from tidegate import flink

written: Any = moved()
T0 = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "user string, amount double, ts timestamp"


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


class Totals(flink.KeyedProcessFunction):
    """The total of a user, in a Row, and a report after a minute of silence, to a side output."""

    silent = flink.OutputTag("silent")

    def open(self, runtime_context):
        fields = flink.Types.ROW_NAMED(["total", "until"], [flink.Types.DOUBLE(), flink.Types.LONG()])
        self.state = runtime_context.get_state(flink.ValueStateDescriptor("so-far", fields))

    def process_element(self, value, ctx):
        state = self.state.value() or flink.Row(total=0.0, until=0)
        state["total"] += value.amount
        state["until"] = ctx.timestamp() + 60_000
        self.state.update(state)
        ctx.timer_service().register_event_time_timer(state.until)
        yield flink.Row(user=value.user, total=state.total)

    def on_timer(self, timestamp, ctx):
        state = self.state.value()
        if state is not None and state.until == timestamp:
            self.state.clear()
            yield self.silent, (ctx.get_current_key(), state.total)


def declared(spark, folder, function, **others):
    job = tg.Job("moved", parallelism=2)
    read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    keyed = job.source("in", read, event_time="ts").key_by("user")
    return job, keyed.process("totals", function, schema="user string, total double", **others)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_moved_function_continues_from_its_savepoint(spark, tmp_path, backend):
    first = [[("ann", 5.0, at(0)), ("bob", 2.0, at(1))], [("ann", 7.0, at(2))]]
    write_batches(tmp_path / "in", SCHEMA, first)
    sides = {"side_outputs": {Totals.silent: "user string, total double"}}

    def run(**choices):
        job, totals = declared(spark, tmp_path, Totals(), **sides)
        out, silent = tg.CollectSink(), tg.CollectSink()
        totals.sink("out", out)
        totals.side_output(Totals.silent).sink("silent", silent)
        where = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 h")
        chosen = {"local_dir": str(tmp_path / "local")}
        job.run(spark, trigger="available-now", state_backend=backend, checkpoint=where, options=chosen, **choices)
        return sorted(map(tuple, out.rows)), sorted(map(tuple, silent.rows))

    assert run() == ([("ann", 5.0), ("ann", 12.0), ("bob", 2.0)], [])
    latest = tg.Savepoint.open(str(max((tmp_path / "checkpoints").rglob("_metadata"), key=lambda p: p.stat().st_mtime)))
    assert latest.state("totals", "so-far").get("ann") == (12.0, int(at(62).timestamp() * 1000))
    write_batches(tmp_path / "in", SCHEMA, [[("ann", 1.0, at(30))], [("eve", 1.0, at(80))], [("eve", 1.0, at(81))]], 2)
    assert run() == ([("ann", 13.0), ("eve", 1.0), ("eve", 2.0)], [("bob", 2.0)])
    assert run(drain=True) == ([], [("ann", 13.0), ("eve", 2.0)])


def test_functions_with_changed_imports_only(spark, tmp_path):
    """Those of the text file, whose module no worker can import, travel with the job."""
    write_batches(tmp_path / "in", SCHEMA, [[("ann", 5.0, at(0)), ("ann", 7.0, at(1))], [("ann", 1.0, at(2))]])
    job, totals = declared(spark, tmp_path, written.RunningTotal())
    out = tg.CollectSink()
    totals.sink("out", out)
    job.run(spark, trigger="available-now")
    assert [tuple(row) for row in out.rows] == [("ann", 5.0), ("ann", 12.0), ("ann", 13.0)]


def test_broadcast_rules(spark, tmp_path):
    job = tg.Job("ruled", parallelism=2)
    events = stream(spark, tmp_path / "events", "user string, kind string", [[], [("ann", "in")], [("ann", "in")]])
    rules = stream(
        spark, tmp_path / "rules", "name string, kind string, limit int", [[("often", "in", 2)], [("any", "in", 1)], []]
    )
    changes = job.source("rules", rules).broadcast(written.rules)
    keyed = job.source("events", events).key_by("user")
    out = tg.CollectSink()
    keyed.connect(changes).process("ruled", written.Ruled(), schema="user string, rule string").sink("out", out)
    job.run(spark, trigger="available-now")
    assert ("ann", "often") in {tuple(row) for row in out.rows}
