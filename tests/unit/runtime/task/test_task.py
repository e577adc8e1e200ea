"""One task, run by hand: rows and barriers in as Arrow batches, control rows out. No Spark."""

from __future__ import annotations

import gc
import json
import socket
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

import tidegate as tg
from tests.unit.runtime.exchange.rows_kit import control_rows, packed_rows
from tidegate.checkpoint.output.staging import read_staged
from tidegate.connectors.sink import Committable, CommitterContext
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid
from tidegate.graph import state_ids
from tidegate.graph.levels import plan
from tidegate.runtime.epochs.pickling import pickled
from tidegate.runtime.exchange.assignment import Archive, CheckpointWork, TaskAssignment
from tidegate.runtime.exchange.messages import Barrier, FaultKind, decode_ack, decode_barrier, encode
from tidegate.runtime.exchange.program import exchange, programs
from tidegate.runtime.exchange.user_code import decoded
from tidegate.runtime.task import run_level as task
from tidegate.schema.schema import Schema
from tidegate.state.rocksdb import RocksDBBackend
from tidegate.state.version import VersionId
from tidegate.storage import open_storage
from tidegate.testing.table_sink import TableSink, table_named


class Frame:
    """What a job needs to know of a DataFrame."""

    isStreaming = True

    class schema:
        @staticmethod
        def jsonValue():
            field = {"name": "k", "type": "string", "nullable": True, "metadata": {}}
            return {"type": "struct", "fields": [field]}


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        if row.k == "trap":
            raise AssertionError("a payment without its order")
        yield row.k, self.n.value()


class OwnFactory:
    """A user's own choice of backend."""

    asked: ClassVar[list[dict]] = []

    def create_from_config(self, configuration):
        self.asked.append(dict(configuration))
        return RocksDBBackend()


class Level:
    """Level 2 of a two-level job with two senders, one slot of it at a time."""

    def __init__(self, directory, function=None, backend="hashmap", sink=None, options=None) -> None:
        job = tg.Job("by-hand", parallelism=2)
        one = job.source("rows", Frame()).key_by("k").process("one", Count(), schema="k string, n bigint")
        two = one.key_by("k").process("two", function or Count(), schema="k string, n bigint")
        two.sink("out", sink or tg.CollectSink())
        self.graph = graph = job.graph()
        self.plan = plan(graph)
        ids = state_ids.assign({}, [(node.uid, spec.name) for node in graph.processes for spec in node.states])
        self.program = pickled(programs(graph, self.plan, ids)[2])
        self.directory, self.backend, self.ids = str(directory), backend, ids
        self.options = options or {}

    def run(self, rows, barriers, number=1, version=None, attempt=7, **more):
        orders = TaskAssignment(
            job="by-hand",
            lineage=Lineage("line"),
            epoch=EpochId(Term(1), number),
            parallelism=2,
            max_parallelism=128,
            program=self.program,
            slots=(Slot(0), Slot(1)),
            salts=(),
            versions=(version, None),
            backend=self.backend,
            backend_options=self.options,
            local_dir=self.directory,
            senders=2,
            **more,
        )
        edge = exchange(self.plan, 2)[0]
        batches = [
            packed_rows(edge, [{"k": k, "n": 1} for k in rows], 5),
            control_rows([encode(barrier) for barrier in barriers]),
        ]
        (out,) = task.run_level(orders, 0, attempt, batches)
        barrier = decode_barrier(out.column(0)[0].as_py())
        return decode_ack(barrier.acks[-1])


def barrier(sender: int, rows: int, *, poisoned: bool = False, number: int = 1) -> Barrier:
    return Barrier(1, number, 1, sender, 40 + sender, 0, rows, poisoned)


@pytest.mark.feature("C13", "C22")
def test_a_complete_input_seals_a_version(tmp_path):
    ack = Level(tmp_path).run(["a", "b", "a"], [barrier(0, 1), barrier(1, 2)])
    assert (ack.fault, ack.version, ack.rows_in) == (None, "1/v1-7", 3)
    assert len(ack.committables) == 1


def test_rows_that_a_task_writes_to_its_own_sinks_are_rows_out(tmp_path):
    ack = Level(tmp_path).run(["a", "b", "a"], [barrier(0, 1), barrier(1, 2)])
    assert (ack.rows_in, ack.rows_out) == (3, 3)
    assert ack.operators["out"] == (3, 0)


def test_a_task_reports_the_name_of_its_host_and_the_id_of_its_disk(tmp_path):
    ack = Level(tmp_path).run(["a"], [barrier(0, 1), barrier(1, 0)])
    assert ack.host_name == socket.gethostname()
    assert "@" in ack.host


def backends_in(directory) -> set[str]:
    return {json.loads(path.read_text())["backend"] for path in directory.rglob("manifest.json")}


@pytest.mark.feature("F2", "F10", "F20")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_the_same_function_runs_on_the_backend_of_the_assignment(tmp_path, backend):
    level = Level(tmp_path, backend=backend)
    first = level.run(["a", "b", "a"], [barrier(0, 1), barrier(1, 2)])
    version = VersionId.parse(first.version)
    second = level.run(["a"], [barrier(0, 1, number=2), barrier(1, 0, number=2)], 2, version)
    assert (second.fault, second.version) == (None, "1/v2-7")
    assert backends_in(tmp_path) == {backend}


@pytest.mark.feature("F20", "F22")
def test_a_task_creates_a_custom_backend_from_the_options_of_the_job(tmp_path):
    OwnFactory.asked.clear()
    level = Level(tmp_path, backend=f"{__name__}.OwnFactory", options={"state.backend.rocksdb.thread.num": "3"})
    ack = level.run(["a", "b", "a"], [barrier(0, 1), barrier(1, 2)])
    assert (ack.fault, OwnFactory.asked) == (None, [{"state.backend.rocksdb.thread.num": "3"}])
    assert backends_in(tmp_path) == {"rocksdb"}


@pytest.mark.feature("D31")
def test_a_task_without_rows_acknowledges_its_base_again_and_makes_nothing(tmp_path):
    level = Level(tmp_path)
    first = level.run(["a"], [barrier(0, 1), barrier(1, 0)])
    base = VersionId.parse(first.version)
    second = level.run([], [barrier(0, 0, number=2), barrier(1, 0, number=2)], 2, base, 8)
    assert (second.fault, second.version, second.committables) == (None, first.version, ())
    assert [path.name for path in tmp_path.rglob("v*-*")] == ["v1-7"]


@pytest.mark.feature("C25")
@pytest.mark.parametrize(("keep", "left"), [((), {"v3-7", "v4-7"}), (("1/v1-7",), {"v1-7", "v3-7", "v4-7"})])
def test_a_task_deletes_versions_that_nothing_needs_any_more(tmp_path, keep, left):
    level, version = Level(tmp_path), None
    for number in (1, 2, 3, 4):
        work = CheckpointWork(keep=(tuple(map(VersionId.parse, keep)), ()))
        barriers = [barrier(0, 1, number=number), barrier(1, 0, number=number)]
        version = VersionId.parse(level.run(["a"], barriers, number, version, work=work).version)
    assert {path.name for path in tmp_path.rglob("v*-*")} == left


@pytest.mark.parametrize(
    ("barriers", "kind"),
    [
        ([barrier(0, 3)], FaultKind.PROTOCOL),
        ([barrier(0, 1), barrier(1, 1)], FaultKind.PROTOCOL),
        ([barrier(0, 1), barrier(1, 2, poisoned=True)], FaultKind.POISONED),
    ],
)
@pytest.mark.feature("C13", "C17", "C22")
def test_a_broken_input_seals_nothing_and_prepares_no_commit(tmp_path, barriers, kind):
    ack = Level(tmp_path).run(["a", "b", "a"], barriers)
    assert (ack.fault.kind, ack.version, ack.committables) == (kind, None, ())
    assert list(tmp_path.rglob("v*-*")) == []


@pytest.mark.feature("A12")
def test_a_missing_version_is_a_miss_and_no_error(tmp_path):
    gone = VersionId.parse("1/v0-3")
    ack = Level(tmp_path).run(["a"], [barrier(0, 1), barrier(1, 0)], version=gone)
    assert (ack.fault.kind, ack.version) == (FaultKind.MISS, None)


@pytest.mark.feature("C12", "C13")
def test_a_function_that_fails_on_half_of_its_rows_does_not_end_the_job(tmp_path):
    """A task above did no work, so an order is missing and its payment looks wrong. The miss is to blame."""
    ack = Level(tmp_path).run(["trap"], [barrier(0, 1), barrier(1, 0, poisoned=True)])
    assert ack.fault.kind is FaultKind.POISONED
    ack = Level(tmp_path).run(["trap"], [barrier(0, 1), barrier(1, 0)])
    assert ack.fault.kind is FaultKind.USER


@pytest.mark.feature("C13")
def test_a_function_that_raises_is_reported_with_its_row_and_key_and_leaves_nothing(tmp_path):
    ack = Level(tmp_path).run(["a", "trap", "b"], [barrier(0, 2), barrier(1, 1)])
    assert (ack.fault.kind, ack.version, ack.committables) == (FaultKind.USER, None, ())
    report = decoded(ack.fault.text)
    assert report.row is not None
    assert "'trap'" in report.row
    assert report.key == "'trap'"
    assert "a payment without its order" in report.error
    assert list(tmp_path.rglob("v*-*")) == []


@pytest.mark.feature("A6")
def test_functions_are_fresh_for_every_attempt(tmp_path):
    level = Level(tmp_path)
    for attempt in (7, 8, 9):
        ack = level.run(["a"], [barrier(0, 1), barrier(1, 0)], attempt=attempt)
        assert ack.version == f"1/v1-{attempt}"
        assert np.frombuffer(ack.committables[0].payload, np.uint8).size > 0


class Node:
    """Refers to itself, so only the collector frees it."""

    live = most = 0

    def __init__(self) -> None:
        self.itself = self
        Node.live += 1
        Node.most = max(Node.most, Node.live)

    def __del__(self) -> None:
        Node.live -= 1


class MakesCycles(Count):
    def process_element(self, row, ctx):
        for _ in range(1000):
            Node()
        yield from super().process_element(row, ctx)


def test_cycles_of_a_function_are_collected_while_its_task_runs(tmp_path):
    Node.live = Node.most = 0
    before = gc.get_threshold(), gc.get_freeze_count()
    rows = [str(n % 7) for n in range(300)]
    ack = Level(tmp_path, MakesCycles()).run(rows, [barrier(0, 300), barrier(1, 0)])
    assert ack.rows_in == 300
    assert Node.most < 150_000
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


@pytest.mark.parametrize(("inline_bytes", "objects"), [(0, 1), (8 << 10, 0)])
def test_few_output_rows_travel_in_the_acknowledgement_instead_of_storage(tmp_path, inline_bytes, objects):
    level = Level(tmp_path / "local", sink=TableSink("few"))
    archive, work = Archive(str(tmp_path / "ckpt"), {}), CheckpointWork(inline_output_bytes=inline_bytes)
    ack = level.run(["a", "b", "a"], [barrier(0, 1), barrier(1, 2)], archive=archive, work=work)
    (output,) = ack.committables
    assert (ack.fault, len(output.staged)) == (None, objects)
    storage = open_storage(archive.url)
    assert len(storage.list()) == objects
    request = Committable(
        lineage=Lineage("line"), sink=Uid("out"), epoch=ack.epoch, slot=Slot(0), payload=output.payload
    )
    context = CommitterContext(Schema.parse("k string, n bigint"), partial(read_staged, storage))
    table_named("few").rows.clear()
    TableSink("few").create_committer(context).commit([request])
    assert sorted(table_named("few").rows) == [("a", 1), ("a", 2), ("b", 1)]
    table_named("few").markers.clear()
