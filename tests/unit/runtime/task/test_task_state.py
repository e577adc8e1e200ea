"""What the functions of a task remember from epoch to epoch, and where the task keeps it. No Spark."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.contract.state.versions import forget
from tests.unit.runtime.exchange.rows_kit import flat_rows
from tests.unit.testing.test_rescaling import Numbered
from tidegate.core.ids import EpochId, Lineage, Slot, Term
from tidegate.graph import state_ids
from tidegate.graph.levels import plan
from tidegate.runtime.epochs.pickling import pickled
from tidegate.runtime.exchange.assignment import TaskAssignment
from tidegate.runtime.exchange.messages import FaultKind, TaskAck, decode_ack, decode_barrier
from tidegate.runtime.exchange.program import exchange, programs
from tidegate.runtime.task import run_level as task
from tidegate.state.version import VersionId

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])


def keyed(function, schema):
    return lambda rows: rows.key_by("word").process("op", function, schema=schema)


class Tasks:
    """The one level of a job at parallelism 2, epoch after epoch."""

    def __init__(self, directory, operator, backend="hashmap", options=None, columns="word string") -> None:
        job = tg.Job("by-hand", parallelism=2)
        operator(job.source("rows", tg.testing.frame(columns))).sink("out", tg.CollectSink())
        graph = job.graph()
        layout = plan(graph)
        ids = state_ids.assign({}, [(node.uid, spec.name) for node in graph.stateful for spec in node.states])
        self.program = pickled(programs(graph, layout, ids)[1])
        self.edge = exchange(layout, 1)[0]
        self.directory, self.backend, self.options = str(directory), backend, options or {}
        self.versions: list[VersionId | None] = [None, None]
        self.number, self.max_parallelism = 0, 128

    def run(self, *words: str, slot: int = 0) -> list[tuple[Any, ...]]:
        """One epoch of one task. Return what it sends to the sink."""
        ack = self.acknowledged(*words, slot=slot)
        assert ack.fault is None
        self.versions[slot] = None if ack.version is None else VersionId.parse(ack.version)
        sent = [batch for each in ack.committables for batch in pa.ipc.open_stream(each.payload)]
        return [tuple(row.values()) for batch in sent for row in batch.to_pylist()]

    def acknowledged(self, *words: str, slot: int = 0) -> TaskAck:
        self.number += 1
        assignment = TaskAssignment(
            job="by-hand",
            lineage=Lineage("line"),
            epoch=EpochId(Term(1), self.number),
            parallelism=2,
            max_parallelism=self.max_parallelism,
            program=self.program,
            slots=(Slot(0), Slot(1)),
            salts=(),
            versions=tuple(self.versions),
            backend=self.backend,
            backend_options=self.options,
            local_dir=self.directory,
            senders=0,
        )
        batch = flat_rows(self.edge, [{"word": word, "n": 0} for word in words], 5 + 64 * slot)
        (out,) = task.run_level(assignment, slot, self.number, [batch])
        return decode_ack(decode_barrier(out.column(0)[0].as_py()).acks[-1])


@BACKENDS
@pytest.mark.feature("A1", "A3", "A24", "A30")
def test_a_map_continues_with_the_variable_that_it_saved_and_every_task_has_its_own(tmp_path, backend):
    tasks = Tasks(tmp_path, lambda rows: rows.map(Numbered(), schema="word string, n bigint", uid="op"), backend)
    assert tasks.run("a", "b") == [("a", 1), ("b", 2)]
    assert tasks.run("c") == [("c", 3)]
    assert tasks.run("d", slot=1) == [("d", 1)]
    assert tasks.run("e") == [("e", 4)]


class Forgetful(tg.KeyedProcessFunction):
    """Counts in a state, and in a variable that it does not declare."""

    declared = tg.ValueState(int, default=0)

    def __init__(self):
        self.undeclared = 0

    def process_element(self, row, ctx):
        self.declared.update(self.declared.value() + 1)
        self.undeclared += 1
        yield row.word, self.declared.value(), self.undeclared


@BACKENDS
@pytest.mark.feature("A1", "A6", "A10", "A16")
def test_only_what_is_declared_is_known_in_the_next_epoch(tmp_path, backend):
    tasks = Tasks(tmp_path, keyed(Forgetful(), "word string, n int, m int"), backend)
    assert tasks.run("a", "a", "b") == [("a", 1, 1), ("a", 2, 2), ("b", 1, 3)]
    assert tasks.run("b", "a") == [("b", 2, 1), ("a", 3, 2)]


@BACKENDS
def test_a_task_without_rows_reports_the_size_of_its_state(tmp_path, backend):
    """After a restore nothing else says how large it is."""
    tasks = Tasks(tmp_path, keyed(Forgetful(), "word string, n int, m int"), backend)
    assert tasks.acknowledged().state_bytes == 0
    tasks.run("a", "b")
    size = tasks.acknowledged().state_bytes
    assert size > 0
    assert tasks.acknowledged().state_bytes == size


@BACKENDS
@pytest.mark.feature("A12")
def test_each_task_writes_to_its_own_directory(tmp_path, backend):
    tasks = Tasks(tmp_path, keyed(Forgetful(), "word string, n int, m int"), backend)
    tasks.run("a")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    tasks.run("b", slot=1)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {path.name for path in tmp_path.rglob("L*-S*")} == {"L1-S0", "L1-S1"}


@BACKENDS
@pytest.mark.feature("A14")
@pytest.mark.parametrize(("key_groups", "served"), [(128, [[0, 63], [64, 127]]), (71, [[0, 35], [36, 70]])])
def test_a_task_holds_the_key_groups_that_it_serves(tmp_path, backend, key_groups, served):
    tasks = Tasks(tmp_path, keyed(Forgetful(), "word string, n int, m int"), backend)
    tasks.max_parallelism = key_groups
    tasks.run("a")
    tasks.run("b", slot=1)
    manifests = sorted(tmp_path.rglob("manifest.json"))
    assert [json.loads(path.read_text())["key_groups"] for path in manifests] == served


class Keys(tg.KeyedProcessFunction):
    seen = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.seen.update(self.seen.value() + 1)
        yield ctx.get_current_key(), self.seen.value()


@BACKENDS
@pytest.mark.feature("A8", "A10")
def test_the_key_of_a_row_is_in_the_columns_that_the_stream_is_keyed_by(tmp_path, backend):
    tasks = Tasks(tmp_path, keyed(Keys(), "word string, n int"), backend, columns="n int, word string")
    assert tasks.run("a", "b", "a") == [("a", 1), ("b", 1), ("a", 2)]


class PlaceOfTimers(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield (type(ctx.timer_service()._timers).__name__,)

    def on_timer(self, timestamp, ctx): ...


@pytest.mark.feature("B4")
def test_a_task_opens_its_backend_with_the_options_of_the_job(tmp_path):
    options = {"state.backend.rocksdb.timer-service.factory": "heap"}
    place = keyed(PlaceOfTimers(), "place string")
    assert Tasks(tmp_path / "heap", place, "rocksdb", options).run("a") == [("HeapTimers",)]
    assert Tasks(tmp_path / "disk", place, "rocksdb").run("a") == [("TimerState",)]


@BACKENDS
def test_a_damaged_version_is_not_found_again(tmp_path, backend):
    """Its files may never have been stored, so a return to the latest checkpoint could not tell that it is damaged."""
    tasks = Tasks(tmp_path, lambda rows: rows.map(Numbered(), schema="word string, n bigint", uid="op"), backend)
    tasks.run("a")
    version = tasks.versions[0]
    assert version is not None
    (folder,) = [path for path in tmp_path.rglob("v1-*") if path.is_dir()]
    for path in folder.iterdir():
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(bytes(len(content)))
    forget()
    with suppress(Exception):
        tasks.run("a")
    assert not folder.exists()


class Careless(Forgetful):
    """Takes every error for one of its own, and continues."""

    def process_element(self, row, ctx):
        try:
            yield from super().process_element(row, ctx)
        except Exception:
            yield row.word, 0, 0


@BACKENDS
@pytest.mark.parametrize("function", [Forgetful, Careless])
def test_damage_that_a_function_reads_discards_the_version_and_is_not_its_error(tmp_path, backend, function):
    tasks = Tasks(tmp_path, keyed(function(), "word string, n int, m int"), backend)
    tasks.run(*(f"word-{n}" for n in range(500)))
    (folder,) = [path for path in tmp_path.rglob("v1-*") if path.is_dir()]
    largest = max(folder.iterdir(), key=lambda path: path.stat().st_size)
    body = bytearray(largest.read_bytes())
    for at in range(100, len(body) // 2, 50):
        body[at] ^= 1
    with largest.open("r+b") as file:
        file.write(body)
    forget()
    ack = tasks.acknowledged(*(f"word-{n}" for n in range(500)))
    assert ack.fault is not None
    assert ack.fault.kind is FaultKind.CORRUPT
    assert str(folder) in ack.fault.text
    assert ".build-" not in ack.fault.text
    assert not folder.exists(), "the next return would find it again"


class Hoarder(tg.KeyedProcessFunction):
    text = tg.ValueState(str, default="")

    def process_element(self, row, ctx):
        self.text.update(row.word * 100)
        yield (row.word,)


@pytest.mark.feature("F13")
@pytest.mark.parametrize("backend", ["rocksdb", "rocksdb+changelog"])
def test_a_value_that_rocksdb_cannot_hold_is_refused_by_state_and_key(tmp_path, monkeypatch, backend):
    """Without a word, RocksDB would drop it."""
    monkeypatch.setattr("tidegate.state.rocksdb.store.LARGEST_BYTES", 1000)
    tasks = Tasks(tmp_path, keyed(Hoarder(), "word string"), backend)
    assert tasks.run("short", "words", "fit") == [("short",), ("words",), ("fit",)]
    ack = tasks.acknowledged("fits", "much-too-long")
    assert ack.fault is not None
    assert ack.fault.kind is FaultKind.USER
    assert "State 'text' was given 13" in ack.fault.text
    assert "key 'much-too-long'" in ack.fault.text
    assert len(list(tmp_path.rglob("v*-*"))) == 1, "nothing was sealed"
