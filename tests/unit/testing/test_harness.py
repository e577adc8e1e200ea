"""The harness: a keyed function without a JVM."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.core.errors import GraphError, SchemaError, StateUnbound
from tidegate.state.keys.entry_keys import key_group_range, split_entry_key

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
SCHEMA = "user string, amount double"


class Totals(tg.KeyedProcessFunction):
    """Running total per user."""

    total = tg.ValueState(float, default=0.0)
    amounts = tg.ListState(float)
    by_size = tg.MapState(str, int)

    def process_element(self, order, ctx):
        if order.amount < 0:
            ctx.output("refunds", (order.user, order.amount))
            self.total.clear()
            return
        self.total.update(self.total.value() + order.amount)
        self.amounts.add(order.amount)
        size = "big" if order.amount > 10 else "small"
        self.by_size.put(size, (self.by_size.get(size) or 0) + 1)
        yield order.user, self.total.value()


def harness(backend="hashmap", **options):
    return tg.testing.harness(
        Totals(), key="user", schema=SCHEMA, state_backend=backend, side_outputs=["refunds"], **options
    )


@BACKENDS
@pytest.mark.feature("A10", "A16", "A17", "A18", "A23")
def test_rows_in_output_and_state_out(backend):
    with harness(backend) as h:
        h.process(("ann", 5.0), ("bob", 20.0), {"user": "ann", "amount": 7.0})
        assert h.output() == [("ann", 5.0), ("bob", 20.0), ("ann", 12.0)]
        assert h.output() == []
        assert (h.state("total", "ann"), h.state("amounts", "ann")) == (12.0, [5.0, 7.0])
        assert h.state("by_size", "bob") == {"big": 1}
        assert h.state("total", "nobody") is None


@pytest.mark.feature("A16")
@BACKENDS
def test_side_outputs_and_clearing(backend):
    with harness(backend) as h:
        h.process(("ann", 5.0), ("ann", -1.0))
        assert h.side_output("refunds") == [("ann", -1.0)]
        assert h.state("total", "ann") is None
        assert h.state("amounts", "ann") == [5.0]


@BACKENDS
@pytest.mark.feature("A10", "A13", "A14", "A15", "A17")
@pytest.mark.parametrize("before", [1, 2, 3, 8])
@pytest.mark.parametrize("after", [1, 2, 3, 8])
def test_a_snapshot_restores_into_any_parallelism(backend, before, after):
    users = [f"user-{n}" for n in range(20)]
    with harness(backend, parallelism=before) as h:
        h.process(*[(user, float(n)) for n, user in enumerate(users)])
        snapshot = h.snapshot()
        h.process(("user-0", 99.0))
    with harness(backend, parallelism=after, restore=snapshot) as h:
        assert [h.state("total", user) for user in users] == [float(n) for n in range(20)]
        h.process(("user-3", 1.0))
        assert h.output() == [("user-3", 4.0)]
        assert h.state("amounts", "user-3") == [3.0, 1.0]
        assert {h.subtask_of(user) for user in users} == set(range(after)) or after == 8


@BACKENDS
@pytest.mark.feature("A11")
def test_a_task_has_many_keys_and_a_key_is_on_one_task_only(backend):
    users = {f"user-{n}" for n in range(40)}
    with harness(backend, parallelism=4) as h:
        for _ in range(2):
            h.process(*[(user, 1.0) for user in users])
            h.snapshot()
        stores = [subtask.store.scan(*key_group_range(0, 127)) for subtask in h._subtasks]
        found = [{split_entry_key(raw, h._codec).key for raw, _ in store} for store in stores]
        assert {h.state("total", user) for user in users} == {2.0}
    assert min(map(len, found)) > 1
    assert sum(map(len, found)) == len(users)
    assert set().union(*found) == users


class ReadsInOpen(Totals):
    def open(self, ctx):
        self.total.value()


@pytest.mark.feature("A9")
def test_there_is_no_keyed_state_where_there_is_no_key():
    with pytest.raises(StateUnbound, match="used where there is no key"):
        tg.testing.harness(ReadsInOpen(), key="user", schema=SCHEMA)


@pytest.mark.feature("F2", "I23", "I27")
def test_state_goes_from_one_backend_to_the_other():
    with harness("rocksdb") as h:
        h.process(("ann", 5.0))
        snapshot = h.snapshot()
    with harness("hashmap", restore=snapshot) as h:
        assert h.state("total", "ann") == 5.0


class Careless(tg.KeyedProcessFunction):
    total = tg.ValueState(int)

    def process_element(self, row, ctx):
        self.total.update(row["amount"] if row.amount == 1 else "three")


@BACKENDS
def test_a_value_that_its_state_cannot_hold_fails_the_call_that_wrote_it(backend):
    h = tg.testing.harness(Careless(), key="user", schema=SCHEMA, state_backend=backend)
    with h, pytest.raises(tg.errors.WrongValue, match=r"State 'total' was given a value of another type.*'three'"):
        h.process(("ann", 3.0))


def test_a_value_that_its_state_cannot_hold_comes_with_its_key_and_its_line():
    h = tg.testing.harness(Careless(), key="user", schema=SCHEMA)
    with h, pytest.raises(tg.errors.WrongValue) as raised:
        h.process(("ann", 3.0))
    key, written = raised.value.__notes__[-2:]
    assert key == "key: 'ann'"
    assert "test_harness.py" in written
    assert written.endswith('in process_element: self.total.update(row["amount"] if row.amount == 1 else "three")')


class CarelessKeys(tg.KeyedProcessFunction):
    seen = tg.MapState(str, int)

    def process_element(self, row, ctx):
        self.seen.put(1, 1)


@BACKENDS
def test_a_map_key_of_another_type_is_the_mistake_of_the_function(backend):
    """It was reported as a failure of tidegate itself, and a job that made it was restarted for ever."""
    h = tg.testing.harness(CarelessKeys(), key="user", schema=SCHEMA, state_backend=backend)
    with (
        h,
        pytest.raises(tg.errors.WrongValue, match="State 'seen' was given a map key of another type than declared"),
    ):
        h.process(("ann", 1.0))


def test_a_side_output_that_is_misspelt_is_named():
    with harness() as h, pytest.raises(GraphError, match="no side output 'refnds'; declared are: refunds"):
        h.side_output("refnds")


def test_a_row_that_is_read_like_a_dict_says_how_to_read_it():
    h = tg.testing.harness(Careless(), key="user", schema=SCHEMA)
    with h, pytest.raises(TypeError, match="tuple indices") as raised:
        h.process(("ann", 1.0))
    assert "write row.column instead of row['column']" in raised.value.__notes__[0]


def test_wrong_use_is_reported():
    with pytest.raises(SchemaError, match="no key column 'usr'"):
        tg.testing.harness(Totals(), key="usr", schema=SCHEMA)
    with pytest.raises(GraphError, match="no process_element"):
        tg.testing.harness(object(), key="user", schema=SCHEMA)
    with harness() as h:
        with pytest.raises(GraphError, match="no state 'totl'"):
            h.state("totl", "ann")
        snapshot = h.snapshot()
    with pytest.raises(GraphError, match="max_parallelism 128"):
        tg.testing.harness(Totals(), key="user", schema=SCHEMA, restore=snapshot, max_parallelism=256)
