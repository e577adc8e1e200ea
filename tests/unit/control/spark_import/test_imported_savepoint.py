"""The savepoint that an import writes: state, positions, watermark; and nothing if the query is still running."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

import tidegate as tg
from tests.unit.control.spark_import.test_import_plan import PROCESSOR, ROWS, TOTAL, Totals, query, variables
from tidegate.control.spark_import.carried_state import ImportRefused
from tidegate.control.spark_import.import_plan import plan_import
from tidegate.control.spark_import.imported_savepoint import write_import
from tidegate.runtime.sources.query_directory import SourceNotes
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.storage import open_storage

TIMER = ("$eventTimers_keyToTimestamp", "TimerState", False)
LONG = b"v1\n" + b'{"path":"file:///in/a.json","timestamp":1,"batchId":0}\n' * 1_000


@dataclass
class StateFrame:
    """Rows of a state, as Spark's DataFrame has them."""

    rows: list[tuple[object, ...]]

    def select(self, *columns):
        return self

    def toLocalIterator(self, prefetchPartitions):
        return iter(self.rows)


@dataclass
class FakeQuery:
    """A query whose state is in memory."""

    told: object
    states: dict[str, list[tuple[object, ...]]]
    goes_on: bool = False
    asked: list[str] = field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.told, name)

    @contextmanager
    def state(self, spark, operator, options):
        [name] = options.values()
        self.asked.append(name)
        yield StateFrame(self.states[name])

    def has_gone_on(self, spark):
        return self.goes_on


def moved(tmp_path, **others):
    told = replace(
        query((PROCESSOR, variables(TOTAL, TIMER)), clock_ms=5_000),
        sources=(SourceNotes('{"logOffset":0}', {"0": LONG}),),
        watermark_ms=20_000,
        next_watermark_ms=30_000,
    )
    rows = [(("ann",), (1.5,)), ((None,), (2.5,)), (("bob",), (None,))]
    found = FakeQuery(told, {"total": rows, "true": [(("ann",), 31_000), (("ann",), 32_000)]}, **others)
    job = tg.Job("carts", parallelism=2)
    source = job.source("orders", tg.testing.frame(ROWS), event_time="at", out_of_orderness="10 s")
    tg.transform_with_state(
        source.key_by("user"),
        Totals(),
        uid="totals",
        outputStructType="user string",
        outputMode="Append",
        timeMode="EventTime",
    ).sink("out", tg.CollectSink())
    fields = {"key": [("user", "string")], "value": [("amount", "double")]}
    plan = plan_import(found, job.graph(), lambda operator, options: fields, sources={}, operators={})
    heard = []
    target = open_storage(str(tmp_path / "savepoint"))
    done = write_import(found, job, plan, None, target, lambda state, count: heard.append((state.spec.name, count)))
    return done, heard


def test_state_timers_and_positions_are_in_the_savepoint(tmp_path):
    done, heard = moved(tmp_path)
    assert (done.entries, heard) == (7, [("total", 3), ("on_timer", 2), ("timers_of_key", 2)])
    savepoint = tg.Savepoint.open(tmp_path / "savepoint")
    found = {entry.key: entry.value for entry in savepoint.state("totals", "total").entries()}
    assert found == {"ann": {"amount": 1.5}, None: {"amount": 2.5}, "bob": {"amount": None}}
    timers = sorted(entry.value for entry in savepoint.state("totals", "on_timer").entries())
    assert timers == [31_000, 32_000]
    listed = sorted(entry.map_key for entry in savepoint.state("totals", "timers_of_key").entries())
    assert listed == timers


def test_clocks_continue_where_the_query_stopped(tmp_path):
    done, _ = moved(tmp_path)
    metadata = done.metadata
    assert (metadata.clock_ms, metadata.watermark_ms) == (5_000, 19_999)
    # The next epoch has the watermark of Spark's next batch: 30,000, which is the greatest time less the disorder.
    assert [(str(time.source), time.event_time_ms) for time in metadata.splits] == [("orders", 40_000)]
    assert (metadata.max_parallelism, metadata.parallelism) == (128, 2)


def test_long_notes_of_a_source_are_copied_into_the_savepoint(tmp_path):
    moved(tmp_path)
    [position] = StoredSnapshot.open(tmp_path / "savepoint").metadata.positions
    assert position.lines == ('{"logOffset":0}',)
    [file] = position.files
    assert (tmp_path / "savepoint" / file.path).read_bytes() == LONG


def test_a_query_that_is_still_running_leaves_no_savepoint(tmp_path):
    with pytest.raises(ImportRefused, match="has finished another batch meanwhile"):
        moved(tmp_path, goes_on=True)
    assert not (tmp_path / "savepoint" / "_metadata").exists()
