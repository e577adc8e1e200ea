"""The functions of the examples, without Spark: what they emit, and what they remember from epoch to epoch."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.connectors.sink import Committable, CommitterContext
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid
from tidegate.core.times import moment
from tidegate.schema.schema import Schema

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name))


@BACKENDS
@pytest.mark.feature("N1")
def test_the_word_counter_begins_at_zero_and_emits_each_word_with_its_count_so_far(backend):
    counter = example("word_count.py")["WordCounter"]
    with tg.testing.harness(counter(), key="word", schema="word string", state_backend=backend) as h:
        h.process(("to",), ("be",), ("to",))
        assert h.output() == [("to", 1), ("be", 1), ("to", 2)]
        h.snapshot()
        h.process(("to",), ("or",))
        assert h.output() == [("to", 3), ("or", 1)]
        assert h.state("counter", "to") == 3


@pytest.mark.feature("B12", "N2")
@BACKENDS
def test_words_are_summed_in_windows_of_thirty_seconds(backend):
    job = tg.Job("words")
    words = job.source("words", tg.testing.frame("word string, ts timestamp, n int"), event_time="ts")
    with tg.testing.harness(example("windowed_word_count.py")["count"](words), state_backend=backend) as h:
        h.process(*[(word, moment(at), 1) for word, at in (("to", 0), ("be", 2), ("to", 29_999), ("to", 30_000))])
        h.advance_watermark(29_998)
        assert h.output() == []
        h.advance_watermark(29_999)
        assert sorted((row.word, row.n) for row in h.output()) == [("be", 1), ("to", 2)]
        h.process(("to", moment(5), 1))
        assert [row.word for row in h.side_output("late")] == ["to"]


@pytest.mark.feature("N2")
def test_rows_are_printed_in_the_driver_in_the_order_of_epochs_whatever_slot_they_come_from(capsys):
    sink = tg.PrintSink(prefix="window ")
    committer = sink.create_committer(CommitterContext(Schema.parse("word string, n int"), lambda token: b""))
    requests = []
    for epoch, slot, word in ((2, 0, "or"), (1, 1, "be"), (1, 0, "to")):
        writer = sink.create_writer(None)
        writer.write(pa.record_batch({"word": [word], "n": pa.array([epoch], pa.int32())}))
        staged = {"lineage": Lineage("l"), "sink": Uid("out"), "payload": writer.prepare_commit()}
        requests.append(Committable(epoch=EpochId(Term(1), epoch), slot=Slot(slot), **staged))
    committer.commit(requests)
    assert capsys.readouterr().out == "window word='to' n=1\nwindow word='be' n=1\nwindow word='or' n=2\n"


@BACKENDS
@pytest.mark.parametrize(
    ("function", "state"),
    [
        pytest.param("Offsets", "kept", marks=pytest.mark.feature("N4")),
        pytest.param("ShortOffsets", "_default_", marks=pytest.mark.feature("N5")),
    ],
)
def test_offsets_of_partitions_are_kept_and_restored_as_operator_state(function, state, backend):
    def offsets(**more):
        made = example("offsets.py")[function]()
        schema, out = "partition int, offset bigint", "partition int, offset bigint, known int"
        return tg.testing.harness(made, schema=schema, output_schema=out, state_backend=backend, **more)

    with offsets(parallelism=2) as h:
        h.process((0, 10), (1, 20), (2, 30))
        snapshot = h.snapshot()
        h.process((3, 40))
    with offsets(parallelism=1, restore=snapshot) as h:
        h.process((1, 21), (7, 70))
        assert h.output() == [(1, 21, 3), (7, 70, 4)]
        h.snapshot()
        assert h.operator_state(state) == [[(0, 10), (1, 21), (2, 30), (7, 70)]]


@BACKENDS
@pytest.mark.feature("N9")
def test_each_side_of_the_join_is_kept_and_probed_by_the_rows_of_the_other(backend):
    job = tg.Job("join")
    bids = job.source("bids", tg.testing.frame("product string, bidder string, amount int")).key_by("product")
    offers = job.source("offers", tg.testing.frame("product string, seller string, amount int")).key_by("product")
    program = example("join.py")
    matched = bids.connect(offers).process("match", program["Join"](), schema=program["MATCH"])
    with tg.testing.harness(matched, state_backend=backend, parallelism=2) as h:
        h.process1(("tea", "ann", 4), ("oil", "bob", 9))
        h.process2(("tea", "zoe", 3))
        assert h.output() == [("tea", "ann", 4, "zoe", 3)]
        snapshot = h.snapshot()
    with tg.testing.harness(matched, state_backend=backend, parallelism=3, restore=snapshot) as h:
        h.process1(("tea", "eve", 5))
        h.process2(("oil", "max", 8))
        assert h.output() == [("tea", "eve", 5, "zoe", 3), ("oil", "bob", 9, "max", 8)]
