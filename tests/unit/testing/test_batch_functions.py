"""Functions over whole batches, in the harness: the same state, timers and errors as functions over rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.tiers.profiles import examples
from tidegate.core.errors import GraphError, SchemaError, WrongValue

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
SCHEMA, OUT = "user string, amount double", "user string, n bigint, total double"


class Rows(tg.KeyedProcessFunction):
    """Number and sum of the amounts of each user, row by row."""

    n = tg.ValueState(int, default=0)
    total = tg.ValueState(float, default=0.0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        self.total.update(self.total.value() + row.amount)
        yield row.user, self.n.value(), self.total.value()


class Batches(tg.KeyedBatchFunction):
    """The same over columns, with one row for each user and batch."""

    n = tg.ValueState(int, default=0)
    total = tg.ValueState(float, default=0.0)

    def process_batch(self, batch, keys, ctx):
        n = self.n.values(keys) + keys.counts()
        sums = np.bincount(keys.index, batch["amount"].to_numpy(), len(keys))
        total = self.total.values(keys) + sums
        self.n.update_all(keys, n)
        self.total.update_all(keys, total)
        yield {"user": keys.distinct, "n": n, "total": total}


def harness(function, backend="hashmap", **options):
    options = {"output_schema": OUT, "parallelism": 2} | options
    return tg.testing.harness(function, key="user", schema=SCHEMA, state_backend=backend, **options)


@BACKENDS
def test_columns_in_columns_and_state_out(backend):
    with harness(Batches(), backend, parallelism=1) as h:
        h.process(("ann", 5.0), ("bob", 20.0), ("ann", 7.0))
        assert h.output() == [("ann", 2, 12.0), ("bob", 1, 20.0)]
        h.process(("bob", 1.0))
        assert h.output() == [("bob", 2, 21.0)]
        assert (h.state("n", "ann"), h.state("total", "bob"), h.state("n", "eve")) == (2, 21.0, None)


@BACKENDS
@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 9))))))
def test_row_and_batch_functions_on_one_state_give_the_same_results(backend, epochs):
    """Each epoch runs one kind of function on what the other kind left, at another parallelism."""
    counts: dict[str, int] = {}
    totals: dict[str, float] = {}
    snapshot = None
    for number, (in_batches, rows) in enumerate(epochs):
        function = Batches() if in_batches else Rows()
        with harness(function, backend, restore=snapshot, parallelism=1 + number % 3) as h:
            h.process(*((user, float(amount)) for user, amount in rows))
            for user, amount in rows:
                counts[user] = counts.get(user, 0) + 1
                totals[user] = totals.get(user, 0.0) + amount
            last = {user: (n, total) for user, n, total in h.output()}
            assert last == {user: (counts[user], totals[user]) for user in {user for user, _ in rows}}
            snapshot = h.snapshot()


class Expiring(tg.KeyedBatchFunction):
    n = tg.ValueState(int, default=0, ttl="10 ms")

    def process_batch(self, batch, keys, ctx):
        n = self.n.values(keys) + keys.counts()
        self.n.update_all(keys, n)
        yield {"user": keys.distinct, "n": n}


@BACKENDS
def test_values_expire_as_they_do_row_by_row(backend):
    with harness(Expiring(), backend, parallelism=1, output_schema="user string, n bigint") as h:
        h.process(("ann", 1.0))
        h.set_processing_time(8)
        h.process(("ann", 1.0), ("bob", 1.0))
        h.snapshot()
        h.set_processing_time(17)
        h.process(("ann", 1.0))
        h.set_processing_time(18)
        h.process(("ann", 1.0), ("bob", 1.0))
        assert h.output() == [("ann", 1), ("ann", 2), ("bob", 1), ("ann", 3), ("ann", 4), ("bob", 1)]


class Everything(tg.KeyedBatchFunction):
    """States of all kinds, key by key."""

    last = tg.ValueState(str)
    seen = tg.ListState(float)
    by_size = tg.MapState(str, int)
    highest = tg.ReducingState(float, max)

    def process_batch(self, batch, keys, ctx):
        amounts = batch["amount"].to_numpy()
        before = self.last.values(keys)
        for user, rows in keys.each():
            self.seen.add_all(amounts[rows].tolist())
            self.by_size.put("all", (self.by_size.get("all") or 0) + len(rows))
            for amount in amounts[rows]:
                self.highest.add(float(amount))
            self.last.update(f"{user} {len(rows)}")
        return pa.table({"user": keys.column("user"), "before": before})


@BACKENDS
def test_lists_maps_and_folded_states_are_reached_key_by_key(backend):
    with harness(Everything(), backend, output_schema="user string, before string") as h:
        h.process(("ann", 1.0), ("bob", 2.0), ("ann", 3.0))
        h.process(("ann", 2.0))
        assert sorted(h.output(), key=str) == [("ann", "ann 2"), ("ann", None), ("bob", None)]
        assert (h.state("seen", "ann"), h.state("by_size", "ann")) == ([1.0, 3.0, 2.0], {"all": 3})
        assert (h.state("highest", "ann"), h.state("last", "ann")) == (3.0, "ann 1")


class Silent(tg.KeyedBatchFunction):
    """Says who has not been heard of for ten milliseconds of event time."""

    last = tg.ValueState(int, default=0)

    def process_batch(self, batch, keys, ctx):
        last = np.maximum(self.last.values(keys), 0)
        np.maximum.at(last, keys.index, ctx.timestamps())
        self.last.update_all(keys, last)
        ctx.timer_service().register_event_time_timers(keys, last + 10)

    def on_timers(self, keys, timestamps, ctx):
        silent = self.last.values(keys)[keys.index] + 10 == timestamps
        who = keys.distinct.take(pa.array(keys.index[silent]))
        yield {"user": who, "at": timestamps[silent], "domain": [str(ctx.time_domain().name)] * len(who)}
        gone = keys.take(np.unique(keys.index[silent]))
        self.last.clear_all(gone)
        ctx.output("gone", {"user": gone.distinct})


@BACKENDS
def test_timers_are_set_and_fire_as_arrays(backend):
    timed = tg.testing.harness(
        Silent(), key="user", schema="user string, at timestamp", event_time="at", state_backend=backend,
        output_schema="user string, at bigint, domain string", side_outputs={"gone": "user string"},
    )  # fmt: skip
    with timed as h:
        h.process(("ann", ms(5)), ("bob", ms(1)), ("ann", ms(2)))
        h.process(("ann", ms(8)))
        assert h.next_timers() == (11, None)
        h.advance_watermark(15)
        assert h.output() == [("bob", 11, "EVENT_TIME")]
        assert h.side_output("gone") == [("bob",)]
        h.advance_watermark(100)
        assert h.output() == [("ann", 18, "EVENT_TIME")]
        assert h.state("last", "ann") is None


def ms(number: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number)


class Chained(tg.KeyedBatchFunction):
    """Sets the next timer when one fires, as long as it is before 50."""

    def process_batch(self, batch, keys, ctx):
        ctx.timer_service().register_event_time_timers(keys, 10)

    def on_timers(self, keys, timestamps, ctx):
        yield {"user": keys.distinct, "at": timestamps}
        if timestamps.max() < 50:
            ctx.timer_service().register_event_time_timers(keys, timestamps + 10)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@BACKENDS
def test_timers_set_for_a_time_already_reached_fire_in_the_same_pass(backend, on_error):
    options = {"output_schema": "user string, at bigint", "parallelism": 1, "on_error": on_error}
    with harness(Chained(), backend, **options) as h:
        h.process(("ann", 1.0))
        h.advance_watermark(35)
        assert [at for _, at in h.output()] == [10, 20, 30]
        h.advance_watermark(1000)
        assert [at for _, at in h.output()] == [40, 50]
        assert h.next_timers() == (None, None)


class Reusing(tg.KeyedBatchFunction):
    """Changes an array after it was emitted."""

    def process_batch(self, batch, keys, ctx):
        n = np.zeros(len(keys), np.int64)
        for _ in range(3):
            n += 1
            ctx.output("also", {"n": n})
            yield {"n": n}


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_what_was_emitted_stays_as_it_was(on_error):
    options = {"output_schema": "n bigint", "side_outputs": {"also": "n bigint"}, "on_error": on_error}
    with harness(Reusing(), parallelism=1, **options) as h:
        h.process(("ann", 1.0))
        assert h.output() == h.side_output("also") == [(1,), (2,), (3,)]


class Picky(tg.KeyedBatchFunction):
    """Takes no negative amounts."""

    total = tg.ValueState(float, default=0.0)
    seen = tg.ListState(float)

    def process_batch(self, batch, keys, ctx):
        amounts = batch["amount"].to_numpy()
        total = self.total.values(keys) + np.bincount(keys.index, amounts, len(keys))
        self.total.update_all(keys, total)
        for _, rows in keys.each():
            self.seen.add_all(amounts[rows].tolist())
        yield {"user": keys.distinct, "total": total}
        if (amounts < 0).any():
            raise ValueError("negative")


@BACKENDS
@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 5)), max_size=12))
def test_a_batch_is_halved_until_the_rows_that_fail_are_found(backend, rows):
    with harness(Picky(), backend, output_schema="user string, total double", on_error="dead-letter") as h:
        h.process(*((user, float(amount)) for user, amount in rows))
        good = [(user, float(amount)) for user, amount in rows if amount >= 0]
        assert sorted(letter.row for letter in h.side_output("dead-letter")) == sorted(
            f'{{"user":"{user}","amount":{float(amount)}}}' for user, amount in rows if amount < 0
        )
        last = dict(h.output())
        for user in "abc":
            amounts = [amount for each, amount in good if each == user]
            assert h.state("seen", user) == (amounts or None)
            assert h.state("total", user) == (sum(amounts) if amounts else None)
            assert last.get(user) == (sum(amounts) if amounts else None)


def test_without_on_error_a_failure_is_the_functions_own():
    with harness(Picky(), output_schema="user string, total double") as h, pytest.raises(ValueError, match="negative"):
        h.process(("ann", -1.0))


class Combined(Batches):
    """Sends one row for each user to the user's task."""

    combined = "user string, n bigint, amount double"

    def combine(self, batch, keys):
        amounts = np.bincount(keys.index, batch["amount"].to_numpy(), len(keys))
        return {"user": keys.distinct, "n": keys.counts(), "amount": amounts}

    def process_batch(self, batch, keys, ctx):
        n = self.n.values(keys)
        np.add.at(n, keys.index, batch["n"].to_numpy())
        total = self.total.values(keys) + np.bincount(keys.index, batch["amount"].to_numpy(), len(keys))
        self.n.update_all(keys, n)
        self.total.update_all(keys, total)
        yield {"user": keys.distinct, "n": n, "total": total}


def test_rows_are_combined_before_they_reach_their_key():
    rows = [("ann", 5.0), ("bob", 20.0), ("ann", 7.0)]
    with harness(Combined(), parallelism=3) as combined, harness(Batches(), parallelism=3) as plain:
        for h in (combined, plain):
            h.process(*rows)
            h.process(("ann", 1.0))
        assert sorted(combined.output()) == sorted(plain.output())


class Undeclared(Combined):
    combined = ""


class WithoutKey(Combined):
    combined = "user bigint, n bigint"


@pytest.mark.parametrize(
    ("function", "message"),
    [(Undeclared(), "does not say which columns"), (WithoutKey(), "key column 'user' as string")],
)
def test_what_combine_returns_is_declared_and_has_the_key(function, message):
    with pytest.raises(GraphError, match=message):
        harness(function)
    job = tg.Job("j")
    keyed = job.source("rows", tg.testing.frame(SCHEMA)).key_by("user")
    with pytest.raises(GraphError, match=message):
        keyed.process("count", function, schema=OUT)


class Wrong(tg.KeyedBatchFunction):
    n = tg.ValueState(int, default=0)

    def __init__(self, do) -> None:
        self.do = do

    def process_batch(self, batch, keys, ctx):
        return self.do(self, keys, ctx)


@pytest.mark.parametrize(
    ("do", "error", "message"),
    [
        (lambda f, keys, _: f.n.update_all(keys, np.zeros(5, int)), WrongValue, "5 values for 1 keys"),
        (lambda f, keys, _: f.n.update_all(keys, np.zeros(1)), WrongValue, "array of float64 for a state of int"),
        (lambda f, keys, _: f.n.update_all(keys, 7), WrongValue, "one value for each key"),
        (lambda f, keys, _: f.n.update_all(keys, np.zeros((1, 1), int)), WrongValue, "one dimension"),
        (
            lambda f, keys, ctx: ctx.timer_service().register_event_time_timers(keys, 5),
            GraphError,
            "no method on_timers",
        ),
        (lambda f, keys, _: f.n.values(keys.take([0, 0])), ValueError, "chosen twice"),
        (lambda f, keys, ctx: ctx.output("late", {}), GraphError, "no side output 'late'"),
        (lambda f, keys, ctx: 7, SchemaError, "returned 7"),
        (lambda f, keys, ctx: [7], SchemaError, "emitted 7"),
        (lambda f, keys, ctx: {"user": ["a"]}, SchemaError, "schema has user, n, total"),
    ],
)
def test_mistakes_say_what_to_do(do, error, message):
    with harness(Wrong(do)) as h, pytest.raises(error, match=message):
        h.process(("ann", 1.0))


def test_the_harness_needs_the_columns_that_a_function_over_batches_emits():
    with pytest.raises(GraphError, match="output_schema"):
        tg.testing.harness(Batches(), key="user", schema=SCHEMA)


def test_large_unsigned_numbers_are_stored_as_they_are():
    storing = Wrong(lambda f, keys, ctx: f.n.update_all(keys, np.array([2**63 + 5], np.uint64)))
    with harness(storing, parallelism=1) as h:
        h.process(("ann", 1.0))
        assert h.state("n", "ann") == 2**63 + 5


def test_combine_cannot_skip_rows():
    keyed = tg.Job("j").source("rows", tg.testing.frame(SCHEMA)).key_by("user")
    with pytest.raises(GraphError, match="cannot skip any"):
        keyed.process("count", Combined(), schema=OUT, on_error="skip")


class Helper(tg.KeyedProcessFunction):
    """Has a method of its own that is called like that of another kind of function."""

    def process_element(self, row, ctx):
        yield from self.process_batch([row])

    def process_batch(self, rows):
        return [(row.user,) for row in rows]


def test_a_method_called_process_batch_does_not_make_a_batch_function():
    keyed = tg.Job("j").source("rows", tg.testing.frame(SCHEMA)).key_by("user")
    node = keyed.process("own", Helper(), schema="user string").node()
    assert not node.batches
    with harness(Helper(), output_schema="user string") as h:
        h.process(("ann", 1.0))
        assert h.output() == [("ann",)]


def test_the_error_for_a_number_too_large_for_an_array_suggests_reading_key_by_key():
    class Huge(tg.KeyedProcessFunction):
        n = tg.ValueState(int, default=0)

        def process_element(self, row, ctx):
            self.n.update(1 << 63)

    with harness(Huge(), parallelism=1) as h:
        h.process(("ann", 1.0))
        snapshot = h.snapshot()
    reading = Wrong(lambda f, keys, ctx: f.n.values(keys))
    with harness(reading, restore=snapshot, parallelism=1) as h, pytest.raises(WrongValue, match="key by key"):
        h.process(("ann", 1.0))
