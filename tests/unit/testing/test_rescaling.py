"""Every kind of state through a change of parallelism, from 1, 2, 3 and 8 tasks to as many, on both backends."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.core.times import moment

WIDTHS = (1, 2, 3, 8)
USERS = [f"user-{n}" for n in range(24)]
IN_ROCKSDB = {(1, 8), (8, 1), (2, 3), (3, 2), (8, 3), (3, 3)}
"""What differs between backends is how entries are read and written, not where they go: a few ways are enough."""
MATRIX = [
    pytest.param(before, after, backend, id=f"{before}-to-{after}-{backend}")
    for before in WIDTHS
    for after in WIDTHS
    for backend in ("hashmap", "rocksdb")
    if backend == "hashmap" or (before, after) in IN_ROCKSDB
]
EVERY = pytest.mark.parametrize(("before", "after", "backend"), MATRIX)


class Mean(tg.AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class Everything(tg.KeyedProcessFunction, tg.CheckpointedFunction):
    """Every keyed state, both clocks' timers, and both lists of operator state."""

    value = tg.ValueState(int, default=0)
    raw = tg.ValueState(bytes)
    listed = tg.ListState(int)
    mapped = tg.MapState(str, int)
    ordered = tg.SortedMapState(int, str)
    most = tg.ReducingState(int, max)
    mean = tg.AggregatingState(tuple[int, int], Mean())
    brief = tg.ValueState(int, ttl="1 h")
    split = tg.ListState(bytes, operator=True)
    everywhere = tg.ListState(str, union=True)

    def initialize_state(self, ctx):
        self.seen = [bytes(raw) for raw in self.split.get()]
        self.known = set(self.everywhere.get())

    def snapshot_state(self, ctx):
        self.split.update(self.seen)
        self.everywhere.update(sorted(self.known))

    def process_element(self, row, ctx):
        self.value.update(self.value.value() + row.n)
        self.raw.update(row.user.encode())
        self.listed.add(row.n)
        self.mapped.put(f"n{row.n}", row.n)
        self.ordered.put(-row.n, row.user)
        self.most.add(row.n)
        self.mean.add(row.n)
        self.brief.update(row.n)
        self.seen.append(f"{row.user}/{row.n}".encode())
        self.known.add(row.user)
        ctx.timer_service().register_event_time_timer(1000 + row.n)
        ctx.timer_service().register_processing_time_timer(5000)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, self.value.value()


def everything(parallelism, backend, **more):
    return tg.testing.harness(
        Everything(), key="user", schema="user string, n int", parallelism=parallelism, state_backend=backend, **more
    )


@EVERY
@pytest.mark.feature("A6", "A7", "A24", "N15")
def test_all_state_of_a_keyed_function_finds_its_new_home(before, after, backend):
    with everything(before, backend) as h:
        h.process(*[(user, n) for n in (3, 5) for user in USERS])
        snapshot = h.snapshot()
    with everything(after, backend, restore=snapshot) as h:
        for user in USERS:
            assert {name: h.state(name, user) for name in ("value", "raw", "listed", "mapped", "brief")} == {
                "value": 8, "raw": user.encode(), "listed": [3, 5], "mapped": {"n3": 3, "n5": 5}, "brief": 5,
            }  # fmt: skip
            assert list(h.state("ordered", user).items()) == [(-5, user), (-3, user)]
            assert (h.state("most", user), h.state("mean", user)) == (5, (8, 2))
        shares = h.operator_state("split")
        assert sorted(raw for share in shares for raw in share) == sorted(
            f"{u}/{n}".encode() for u in USERS for n in (3, 5)
        )
        assert before == after or max(map(len, shares)) - min(map(len, shares)) <= 1
        assert h.operator_state("everywhere") == [h.operator_state("everywhere")[0]] * after
        assert set(h.operator_state("everywhere")[0]) == set(USERS)
        h.process((USERS[0], 1))
        h.advance_watermark(1004)
        assert sorted(h.output()) == sorted(
            [(u, 1003, 9 if u == USERS[0] else 8) for u in USERS] + [(USERS[0], 1001, 9)]
        )
        h.set_processing_time(5000)
        assert sorted(key for key, *_ in h.output()) == sorted(USERS)


@EVERY
@pytest.mark.feature("A4", "A5", "A15", "B2", "N15")
def test_windows_and_what_they_hold_find_their_new_home(before, after, backend):
    job = tg.Job("rescaling")
    keyed = job.source("rows", tg.testing.frame("user string, n int, ts timestamp"), event_time="ts").key_by("user")
    fixed = keyed.window(tg.SlidingEventTimeWindows.of("20 ms", "10 ms")).aggregate(
        "fixed", n=tg.count(), total=tg.sum("n")
    )
    merging = keyed.window(tg.EventTimeSessionWindows.with_gap("10 ms")).aggregate("merging", total=tg.sum("n"))
    for stream, expected in ((fixed, [(-10, 10, 1, 1), (0, 20, 2, 3), (10, 30, 1, 2)]), (merging, [(5, 23, 3)])):
        with tg.testing.harness(stream, parallelism=before, state_backend=backend) as h:
            h.process(*[(user, 1, moment(5)) for user in USERS])
            snapshot = h.snapshot()
        with tg.testing.harness(stream, parallelism=after, state_backend=backend, restore=snapshot) as h:
            h.process(*[(user, 2, moment(13)) for user in USERS])
            h.advance_watermark(1000)
            wanted = [(user, moment(start), moment(end), *rest) for user in USERS for start, end, *rest in expected]
            assert sorted(h.output()) == sorted(wanted)
            assert h.snapshot().entries == ()


class Limits(tg.KeyedBroadcastProcessFunction):
    limits = tg.BroadcastState(str, int)
    over = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.over.update(self.over.value() + sum(row.n > limit for _, limit in self.limits.items()))
        yield row.user, self.over.value()

    def process_broadcast_element(self, row, ctx):
        self.limits.put(row.name, row.limit)


@EVERY
@pytest.mark.feature("A29", "N15")
def test_broadcast_state_is_the_same_in_every_new_task(before, after, backend):
    def limits(parallelism, **more):
        return tg.testing.harness(
            Limits(), key="user", schema="user string, n int", broadcast_schema="name string, limit int",
            parallelism=parallelism, state_backend=backend, **more,
        )  # fmt: skip

    with limits(before) as h:
        h.process_broadcast(("low", 1), ("high", 10))
        h.process(*[(user, 5) for user in USERS])
        snapshot = h.snapshot()
    with limits(after, restore=snapshot) as h:
        assert h.operator_state("limits") == [{"low": 1, "high": 10}] * after
        h.process_broadcast(("none", 0))
        h.process(*[(user, 20) for user in USERS])
        assert sorted(h.output()) == sorted((user, 4) for user in USERS)


class Forgetful(tg.KeyedProcessFunction):
    """Counts what it declares, and what it does not."""

    declared = tg.ValueState(int, default=0)

    def __init__(self):
        self.undeclared = 0

    def process_element(self, row, ctx):
        self.declared.update(self.declared.value() + 1)
        self.undeclared += 1
        yield row.user, self.declared.value(), self.undeclared


@pytest.mark.feature("A6")
def test_what_is_not_declared_is_not_in_a_snapshot():
    with tg.testing.harness(Forgetful(), key="user", schema="user string") as h:
        h.process(("ann",), ("ann",))
        assert h.output()[-1] == ("ann", 2, 2)
        snapshot = h.snapshot()
    with tg.testing.harness(Forgetful(), key="user", schema="user string", restore=snapshot) as h:
        h.process(("ann",))
        assert h.output() == [("ann", 3, 1)]


class Numbered(tg.MapFunction, tg.CheckpointedFunction):
    """A map that numbers its rows, through restarts."""

    last = tg.ListState(int, operator=True)

    def initialize_state(self, ctx):
        self.count = sum(self.last.get())

    def snapshot_state(self, ctx):
        self.last.update([self.count])

    def map(self, row):
        self.count += 1
        return row.word, self.count


class Sampled(tg.FilterFunction, tg.CheckpointedFunction):
    """Every second row."""

    odd = tg.ListState(bool, operator=True)

    def initialize_state(self, ctx):
        self.pass_next = next(iter(self.odd.get()), True)

    def snapshot_state(self, ctx):
        self.odd.update([self.pass_next])

    def filter(self, row):
        self.pass_next = not self.pass_next
        return not self.pass_next


@pytest.mark.feature("A3")
def test_map_and_filter_may_have_state_of_their_own():
    for function, first, second in (
        (Numbered(), [("a", 1), ("b", 2), ("c", 3)], [("d", 4)]),
        (Sampled(), [("a",), ("c",)], []),
    ):
        with tg.testing.harness(function, schema="word string") as h:
            h.process(("a",), ("b",), ("c",))
            assert h.output() == first
            snapshot = h.snapshot()
        with tg.testing.harness(function, schema="word string", restore=snapshot) as h:
            h.process(("d",))
            assert h.output() == second
