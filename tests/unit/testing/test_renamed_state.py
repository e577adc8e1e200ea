"""Renamed state in the harness: judged and carried over as when a job starts."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from tidegate.checkpoint.task.assignment import UnclaimedState
from tidegate.core.errors import GraphError
from tidegate.savepoint.restore_compatibility import StateChanged
from tidegate.testing import Snapshot, frame, harness

SCHEMA = "user string, n bigint"


class Mean(tg.AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class Kinds(tg.KeyedProcessFunction, tg.CheckpointedFunction):
    value = tg.ValueState(int, default=0)
    listed = tg.ListState(int)
    mapped = tg.MapState(str, int)
    ordered = tg.SortedMapState(int, int)
    most = tg.ReducingState(int, max)
    mean = tg.AggregatingState(tuple[int, int], Mean())
    split = tg.ListState(int, operator=True)

    def initialize_state(self, ctx):
        self.seen = list(self.split.get())

    def snapshot_state(self, ctx):
        self.split.update(self.seen)

    def process_element(self, row, ctx):
        self.value.update(self.value.value() + row.n)
        self.listed.add(row.n)
        self.mapped.put("n", row.n)
        self.ordered.put(row.n, row.n)
        self.most.add(row.n)
        self.mean.add(row.n)
        self.seen.append(row.n)


class Renamed(tg.KeyedProcessFunction, tg.CheckpointedFunction):
    value2 = tg.ValueState(float, 0.0, renamed_from="value")  # also of another type
    listed2 = tg.ListState(int, renamed_from="listed")
    mapped2 = tg.MapState(str, int, renamed_from=("never", "mapped"))
    ordered2 = tg.SortedMapState(int, int, renamed_from="ordered")
    most2 = tg.ReducingState(int, max, renamed_from="most")
    mean2 = tg.AggregatingState(tuple[int, int], Mean(), renamed_from="mean")
    split2 = tg.ListState(int, operator=True, renamed_from="split")

    def initialize_state(self, ctx):
        self.seen = list(self.split2.get())

    def snapshot_state(self, ctx):
        self.split2.update(self.seen)

    def process_element(self, row, ctx):
        self.value2.update(self.value2.value() + row.n)


def taken(function: Any, *rows: tuple[str, int], **options: Any) -> Snapshot:
    with harness(function, key="user", schema=SCHEMA, **options) as h:
        h.process(*rows)
        return h.snapshot()


@pytest.mark.feature("I31", "I37")
@pytest.mark.parametrize(("backend", "parallelism"), [("hashmap", 1), ("hashmap", 3), ("rocksdb", 2)])
def test_every_kind_of_state_can_be_renamed(backend: str, parallelism: int) -> None:
    snapshot = taken(Kinds(), ("ann", 5), ("ann", 7))
    # Twice: the snapshot of the renamed states is restored by the same code, whose declarations have not changed.
    for total in (13.0, 14.0):
        with harness(
            Renamed(), key="user", schema=SCHEMA, restore=snapshot, parallelism=parallelism, state_backend=backend
        ) as h:
            h.process(("ann", 1))
            assert h.state("value2", "ann") == total
            assert h.state("listed2", "ann") == [5, 7]
            assert h.state("mapped2", "ann") == {"n": 7}
            assert h.state("ordered2", "ann") == {5: 5, 7: 7}
            assert h.state("most2", "ann") == 7
            assert h.state("mean2", "ann") == (12, 2)
            assert sorted(n for part in h.operator_state("split2") for n in part) == [5, 7]
            snapshot = h.snapshot()


class Before(tg.KeyedProcessFunction):
    total = tg.ValueState(int, default=0)
    rows = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.total.update(self.total.value() + row.n)
        self.rows.update(self.rows.value() + 1)


class Silent(tg.KeyedProcessFunction):
    sum = tg.ValueState(int, default=0)
    rows = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.sum.update(self.sum.value() + row.n)


class Swapped(tg.KeyedProcessFunction):
    total = tg.ValueState(int, default=0, renamed_from="rows")
    rows = tg.ValueState(int, default=0, renamed_from="total")

    def process_element(self, row, ctx):
        self.total.update(self.total.value() + 1)


@pytest.mark.feature("I31")
def test_a_silent_rename_is_refused_unless_the_old_state_is_dropped() -> None:
    snapshot = taken(Before(), ("ann", 5))
    with pytest.raises(
        StateChanged, match=r'write sum = tg\.ValueState\(int, …, renamed_from="total"\).*drop_state=\[\'total\'\]'
    ):
        harness(Silent(), key="user", schema=SCHEMA, restore=snapshot)
    with harness(Silent(), key="user", schema=SCHEMA, restore=snapshot, drop_state=["total"]) as h:
        h.process(("ann", 1))
        assert (h.state("sum", "ann"), h.state("rows", "ann")) == (1, 1)
        snapshot = h.snapshot()
    with pytest.raises(StateChanged):  # now 'sum' would be lost
        harness(Before(), key="user", schema=SCHEMA, restore=snapshot)
    with harness(Before(), key="user", schema=SCHEMA, restore=snapshot, drop_state=["sum"]) as h:
        assert h.state("total", "ann") is None  # dropped for good


@pytest.mark.feature("I31")
def test_two_states_swap_their_names_once() -> None:
    snapshot = taken(Before(), ("ann", 5))
    for rows in (2, 3):
        with harness(Swapped(), key="user", schema=SCHEMA, restore=snapshot) as h:
            h.process(("ann", 9))
            assert (h.state("total", "ann"), h.state("rows", "ann")) == (rows, 5)
            snapshot = h.snapshot()


def stream(uid: str) -> Any:
    rows = tg.Job("job").source("rows", frame(SCHEMA))
    return rows.key_by("user").process(uid, Before(), schema=SCHEMA)


@pytest.mark.feature("I37")
def test_a_renamed_uid_finds_its_state() -> None:
    with harness(stream("totals")) as h:
        h.process(("ann", 5))
        snapshot = h.snapshot()
    with pytest.raises(UnclaimedState, match="'totals'"):
        harness(stream("sums"), restore=snapshot)
    for total in (6, 7):
        with harness(stream(tg.Uid("sums", renamed_from="totals")), restore=snapshot) as h:
            h.process(("ann", 1))
            assert h.state("total", "ann") == total
            snapshot = h.snapshot()


class TwoClaims(tg.KeyedProcessFunction):
    a = tg.ValueState(int, renamed_from="old")
    b = tg.ValueState(int, renamed_from="old")

    def process_element(self, row, ctx):
        yield row


class OwnName(TwoClaims):
    a = tg.ValueState(int, renamed_from="a")


@pytest.mark.parametrize(
    ("function", "said"), [(TwoClaims(), "both declared with renamed_from='old'"), (OwnName(), "its own name")]
)
def test_an_impossible_rename_is_refused_when_it_is_declared(function: Any, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        harness(function, key="user", schema=SCHEMA)


def test_renamed_from_takes_names() -> None:
    with pytest.raises(GraphError, match="takes the old name"):
        tg.ValueState(int, renamed_from=5)  # type: ignore[call-overload]


def test_a_uid_that_is_old_and_new_at_once_is_refused() -> None:
    job = tg.Job("job")
    rows = job.source("rows", frame(SCHEMA)).key_by("user")
    rows.process("totals", Before(), schema=SCHEMA)
    rows.process(tg.Uid("sums", renamed_from="totals"), Before(), schema=SCHEMA)
    with pytest.raises(GraphError, match="the job has an operator 'totals'"):
        job.graph()


def test_a_sink_keeps_its_uid() -> None:
    with pytest.raises(GraphError, match="the target knows what it has by the uid"):
        stream("totals").sink(tg.Uid("out", renamed_from="before"), tg.PrintSink())
