"""Rows on their way to the next level: each goes to the task that has the state of its key."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import decode, encode

import tidegate as tg
from tests.unit.runtime.exchange.rows_kit import control_rows, unpacked
from tidegate.core.ids import Slot
from tidegate.graph.levels import plan
from tidegate.runtime.exchange import channel
from tidegate.runtime.exchange.channel import CHUNK_BYTES, ChannelWriter, read_packed
from tidegate.runtime.exchange.edge_rows import EdgeRows
from tidegate.schema.schema import DataType
from tidegate.state.keys.key_groups import key_group, slot_of
from tidegate.state.keys.murmur3 import hash_key

PARALLELISM, MAX_PARALLELISM = 3, 128
SALTS = (70, 71, 72)
"""In a job, the numbers that Spark's hash sends to the partitions of slots 0 to 2."""


class Echo(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield row


class Rules(tg.KeyedBroadcastProcessFunction):
    def process_element(self, row, ctx): ...
    def process_broadcast_element(self, row, ctx): ...


def edges():
    """The edges that leave the first level of a job: one by key, one broadcast."""
    job = tg.Job("channel", parallelism=PARALLELISM, max_parallelism=MAX_PARALLELISM)
    rows = job.source("rows", tg.testing.frame("k string, n int"))
    first = rows.key_by("k").process("first", Echo(), schema="k string, n int")
    rules = rows.key_by("n").process("rules", Echo(), schema="k string, n int").broadcast()
    first.key_by("k").connect(rules).process("second", Rules(), schema="k string").sink("out", tg.DiscardSink())
    return plan(job.graph()).levels[1].outgoing


def sent(broadcast: bool, rows):
    (edge,) = [each for each in edges() if each.broadcast is broadcast]
    writer = ChannelWriter(edges(), SALTS, PARALLELISM, MAX_PARALLELISM)
    writer.send_rows(edge, rows, Slot(1))
    writer.send_barriers(lambda slot, count: b"barrier of %d" % slot)
    found = [row for batch in writer.take() for row in unpacked(batch, edges())]
    *data, _, _, _ = found
    assert [barrier for *_, barrier in found[-3:]] == [b"barrier of 0", b"barrier of 1", b"barrier of 2"]
    return [(salt, group, row["k"]) for salt, group, row in data], writer.rows_per_slot.tolist()


@pytest.mark.feature("A8", "A11", "A13")
def test_rows_go_where_the_state_of_their_key_is():
    keys = [f"key-{n}" for n in range(50)]
    groups = [key_group(hash_key(key, [DataType("string")]), MAX_PARALLELISM) for key in keys]
    slots = [slot_of(group, PARALLELISM, MAX_PARALLELISM) for group in groups]
    found, counted = sent(False, [(key, 1) for key in keys])
    wanted = [(SALTS[slot], group, key) for slot, group, key in zip(slots, groups, keys)]
    assert found == sorted(wanted, key=lambda row: row[0])  # sorted is stable: the rows of a slot keep their order
    assert counted == [slots.count(slot) for slot in range(PARALLELISM)]


@pytest.mark.feature("A8")
def test_combined_rows_go_where_the_state_of_their_composite_key_is():
    """They carry their keys under other names. Rows that share the first key column belong to many tasks."""
    job = tg.Job("composite", parallelism=PARALLELISM, max_parallelism=MAX_PARALLELISM)
    rows = job.source("rows", tg.testing.frame("k string, n int"))
    first = rows.key_by("k").process("first", Echo(), schema="k string, n int")
    first.key_by("k", "n").aggregate("sums", total=tg.count()).sink("out", tg.DiscardSink())
    (edge,) = plan(job.graph()).levels[1].outgoing
    assert edge.combine is not None
    keys = [("one", n) for n in range(50)]
    types = [DataType("string"), DataType("int")]
    wanted = [key_group(hash_key(key, types), MAX_PARALLELISM) for key in keys]

    writer = ChannelWriter([edge], SALTS, PARALLELISM, MAX_PARALLELISM)
    writer.send_rows(edge, [(*key, None, 1, None, 1) for key in keys], Slot(1))
    writer.send_barriers(lambda slot, count: b"")
    sent = [row for batch in writer.take() for row in unpacked(batch, [edge])][:-PARALLELISM]

    found = {(row["_k0"], row["_k1"]): (salt, group) for salt, group, row in sent}
    slots = [slot_of(group, PARALLELISM, MAX_PARALLELISM) for group in wanted]
    assert found == {key: (SALTS[slot], group) for key, slot, group in zip(keys, slots, wanted)}


@pytest.mark.feature("A29")
def test_broadcast_rows_go_to_every_task():
    found, counted = sent(True, [("a", 1), ("b", 2)])
    assert sorted(found) == [(salt, -1, key) for salt in SALTS for key in ("a", "b")]
    assert counted == [2, 2, 2]


@pytest.mark.parametrize("broadcast", [False, True])
def test_rows_that_pass_a_level_stay_in_their_slot(broadcast):
    (edge,) = [each for each in edges() if each.broadcast is broadcast]
    writer = ChannelWriter(edges(), SALTS, PARALLELISM, MAX_PARALLELISM)
    columns = [pa.array(["a", "b"]), pa.array([1, 2], pa.int32())]
    writer.pass_on(EdgeRows(edge, columns, pa.array([5, 6], pa.int32()), 2), Slot(1))
    writer.send_barriers(lambda slot, count: encode(count))
    found = [row for batch in writer.take() for row in unpacked(batch, edges())]
    assert found[:-3] == [(SALTS[1], 5, {"k": "a", "n": 1}), (SALTS[1], 6, {"k": "b", "n": 2})]
    assert writer.rows_per_slot.tolist() == [0, 2, 0]


@st.composite
def sendings(draw):
    """Rows of a key and a number, in the pieces in which a task sends them. Numbers go up, so they show the order."""
    keys = draw(st.lists(st.lists(st.sampled_from(["a", "b", "c", "longer " * 9]), max_size=30), max_size=12))
    numbers = itertools.count()
    return [[(key, next(numbers)) for key in piece] for piece in keys]


@given(
    pieces=sendings(),
    chunk_bytes=st.sampled_from([1, 60, 500, 1 << 20]),
    waiting_bytes=st.sampled_from([1, 300, 1 << 22]),
)
def test_every_row_arrives_once_and_in_order_in_its_slot(pieces, chunk_bytes, waiting_bytes):
    (edge,) = [each for each in edges() if not each.broadcast]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(channel, "CHUNK_BYTES", chunk_bytes)
        patched.setattr(channel, "WAITING_BYTES", waiting_bytes)
        writer = ChannelWriter(edges(), SALTS, PARALLELISM, MAX_PARALLELISM)
        batches = []
        for piece in pieces:
            writer.send_rows(edge, piece, Slot(0))
            batches += writer.take()
        writer.send_barriers(lambda slot, count: encode(count))
        batches += writer.take()
    arrived = {slot: read_back(batches, slot) for slot in range(PARALLELISM)}
    for slot, (rows, announced) in arrived.items():
        assert announced == [len(rows)] == [int(writer.rows_per_slot[slot])]
        assert [n for _, n in rows] == sorted(n for _, n in rows)
        groups = [key_group(hash_key(key, [DataType("string")]), MAX_PARALLELISM) for key, _ in rows]
        assert all(slot_of(group, PARALLELISM, MAX_PARALLELISM) == slot for group in groups)
    assert sorted(row for rows, _ in arrived.values() for row in rows) == sorted(
        row for piece in pieces for row in piece
    )


def read_back(batches, slot):
    """What a task reads of batches that Spark has brought to its partition, with the anchor's row among them."""
    announced = []
    anchor = control_rows([None])
    own = [batch.filter(pc.equal(batch.column("part"), SALTS[slot])) for batch in batches]
    read = read_packed([anchor, *own], edges(), lambda raw: announced.append(decode(raw)))
    return [row for some in read for row in zip(*(column.to_pylist() for column in some.columns))], announced


def test_payloads_are_bounded_and_a_huge_row_is_sent_alone():
    (edge,) = [each for each in edges() if not each.broadcast]
    writer = ChannelWriter(edges(), SALTS, PARALLELISM, MAX_PARALLELISM)
    huge = "x" * (2 * CHUNK_BYTES)
    writer.send_rows(edge, [("k", 0)] * 120_000 + [(huge, 1)] * 3 + [("k", 2)] * 10, Slot(0))
    writer.send_barriers(lambda slot, count: encode(count))
    batches = list(writer.take())
    payloads = [payload for batch in batches for payload in batch.column("payload").drop_null().to_pylist()]
    sizes = sorted(len(payload) for payload in payloads)
    assert sizes[-4] < 1.1 * CHUNK_BYTES < 2 * CHUNK_BYTES < sizes[-3]
    assert sizes[-1] < 2.1 * CHUNK_BYTES
    assert sum(len(read_back(batches, slot)[0]) for slot in range(PARALLELISM)) == 120_013


def test_a_large_broadcast_is_copied_for_one_slot_at_a_time():
    (edge,) = [each for each in edges() if each.broadcast]
    writer = ChannelWriter(edges(), SALTS, PARALLELISM, MAX_PARALLELISM)
    writer.send_rows(edge, [("x" * (2 * CHUNK_BYTES), 1)], Slot(0))
    writer.send_barriers(lambda slot, count: encode(count))
    *copies, last = writer.take()
    assert [batch.column("part").to_pylist() for batch in copies] == [[salt] for salt in SALTS]
    assert last.num_rows == PARALLELISM


def test_what_a_small_epoch_sends_is_one_batch():
    (edge,) = [each for each in edges() if not each.broadcast]
    writer = ChannelWriter(edges(), SALTS, PARALLELISM, MAX_PARALLELISM)
    writer.send_rows(edge, [(f"key-{n}", n) for n in range(50)], Slot(0))
    writer.send_barriers(lambda slot, count: encode(count))
    (batch,) = writer.take()
    assert batch.num_rows == 2 * PARALLELISM


def test_a_struct_that_is_null_passes_though_its_parts_are_declared_not_null():
    """Spark writes such a struct with parts that are null, and does not keep NOT NULL inside of it."""
    job = tg.Job("passing", parallelism=PARALLELISM, max_parallelism=MAX_PARALLELISM)
    rows = job.source("rows", tg.testing.frame("k string, s struct<a: int NOT NULL>"))
    first = rows.key_by("k").process("first", Echo(), schema="k string, s struct<a: int NOT NULL>")
    first.union(rows).key_by("k").process("second", Echo(), schema="k string").sink("out", tg.DiscardSink())
    (edge, *_) = (each for each in plan(job.graph()).edges if each.to_level == 2 and each.from_level == 0)
    from_spark = pa.StructArray.from_arrays(
        [pa.array([1, None], pa.int32())], fields=[pa.field("a", pa.int32())], mask=pa.array([False, True])
    )
    writer = ChannelWriter([edge], SALTS, PARALLELISM, MAX_PARALLELISM)
    columns = [pa.array(["a", "b"]), from_spark]
    writer.pass_on(EdgeRows(edge, columns, pa.array([5, 6], pa.int32()), 2), Slot(1))
    writer.send_barriers(lambda slot, count: encode(count))
    found = [row for batch in writer.take() for row in unpacked(batch, [edge])]
    assert [row["s"] for _, group, row in found if group is not None] == [{"a": 1}, None]
