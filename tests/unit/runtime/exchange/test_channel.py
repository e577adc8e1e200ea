"""Rows on their way to the next level: each goes to the task that has the state of its key."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.core.ids import Slot
from tidegate.graph.levels import plan
from tidegate.graph.schema import DataType
from tidegate.runtime.exchange.channel import ChannelWriter, column_name
from tidegate.state.key_groups import key_group, slot_of
from tidegate.state.murmur3 import hash_key

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
    batch = pa.Table.from_batches(writer.take())
    found = [row["k"] for row in batch[column_name(edge)].to_pylist()]
    return list(zip(batch["part"].to_pylist(), batch["kg"].to_pylist(), found)), writer.rows_per_slot.tolist()


@pytest.mark.feature("A8", "A11", "A13")
def test_rows_go_where_the_state_of_their_key_is():
    keys = [f"key-{n}" for n in range(50)]
    groups = [key_group(hash_key(key, [DataType("string")]), MAX_PARALLELISM) for key in keys]
    slots = [slot_of(group, PARALLELISM, MAX_PARALLELISM) for group in groups]
    found, counted = sent(False, [(key, 1) for key in keys])
    assert found == [(SALTS[slot], group, key) for slot, group, key in zip(slots, groups, keys)]
    assert counted == [slots.count(slot) for slot in range(PARALLELISM)]


@pytest.mark.feature("A29")
def test_broadcast_rows_go_to_every_task():
    found, counted = sent(True, [("a", 1), ("b", 2)])
    assert sorted(found) == [(salt, -1, key) for salt in SALTS for key in ("a", "b")]
    assert counted == [2, 2, 2]
