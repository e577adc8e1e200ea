"""Every kind of state in the harness, on both backends, with a snapshot and a restore in the middle."""

from __future__ import annotations

import pickle

import pytest
from pyspark import cloudpickle

import tidegate as tg
from tidegate.core.errors import GraphError, SchemaError, StateError

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
WIDTHS = (1, 2, 3, 8)


class Mean(tg.AggregateFunction):
    def create_accumulator(self):
        return (0.0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return (a[0] + b[0], a[1] + b[1])


class Prices(tg.KeyedProcessFunction):
    highest = tg.ReducingState(float, max)
    mean = tg.AggregatingState(tuple[float, int], Mean())
    by_day = tg.SortedMapState(int, float)

    def process_element(self, row, ctx):
        self.highest.add(row.price)
        self.mean.add(row.price)
        self.by_day.put(row.day, row.price)
        lately = list(self.by_day.items(row.day - 2, row.day))
        yield row.shop, self.highest.get(), self.mean.get(), [day for day, _ in lately]


def prices(backend, **options):
    return tg.testing.harness(
        Prices(), key="shop", schema="shop string, day int, price double", state_backend=backend, **options
    )


@BACKENDS
@pytest.mark.feature("A19", "A21", "A22")
def test_reduced_aggregated_and_sorted(backend):
    with prices(backend) as h:
        h.process(("a", 3, 5.0), ("a", 1, 9.0), ("b", 7, 1.0))
        snapshot = h.snapshot()
    with prices(backend, restore=snapshot, parallelism=3) as h:
        h.process(("a", 2, 4.0), ("a", 4, 6.0))
        assert h.output() == [("a", 9.0, 6.0, [1]), ("a", 9.0, 6.0, [2, 3])]
        assert (h.state("highest", "a"), h.state("mean", "b")) == (9.0, (1.0, 1))
        assert h.state("by_day", "a") == {1: 9.0, 2: 4.0, 3: 5.0, 4: 6.0}
        assert h.state("mean", "nobody") is None


class Joined(tg.KeyedProcessFunction):
    words = tg.ReducingState(str, lambda before, word: f"{before} {word}")

    def process_element(self, row, ctx):
        self.words.add(row.word)


@BACKENDS
@pytest.mark.feature("A19")
def test_a_reduce_function_gets_what_there_is_and_then_the_new_element(backend):
    with tg.testing.harness(Joined(), key="k", schema="k int, word string", state_backend=backend) as h:
        h.process((1, "one"), (1, "after"), (2, "other"))
        h.snapshot()
        h.process((1, "another"))
        assert (h.state("words", 1), h.state("words", 2)) == ("one after another", "other")


class Together(tg.ReduceFunction):
    def reduce(self, so_far, numbers):
        return so_far + numbers


class Spread(tg.AggregateFunction):
    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        return [*accumulator, value]

    def get_result(self, accumulator):
        return max(accumulator) - min(accumulator)

    def merge(self, one, other):
        return one + other


class Lists(tg.KeyedProcessFunction):
    numbers = tg.ReducingState(list[int], Together())
    spread = tg.AggregatingState(list[int], Spread())

    def process_element(self, row, ctx):
        self.numbers.add([row.n])
        self.spread.add(row.n)
        yield row.k, self.numbers.get(), self.spread.get()


@BACKENDS
@pytest.mark.feature("A19", "A21")
def test_lists_are_reduced_and_aggregated_like_numbers(backend):
    with tg.testing.harness(Lists(), key="k", schema="k int, n int", state_backend=backend) as h:
        h.process((1, 3), (1, 5), (2, 9))
        h.snapshot()
        h.process((1, 4))
        assert h.output() == [(1, [3], 0), (1, [3, 5], 2), (2, [9], 0), (1, [3, 5, 4], 2)]


class Ends(tg.KeyedProcessFunction):
    days = tg.SortedMapState(int, str)

    def process_element(self, row, ctx):
        if row.word is None:
            yield self.days.first_key(), self.days.last_key(), list(self.days.keys(-5, 20, reverse=True))
        else:
            self.days[row.day] = row.word


@BACKENDS
@pytest.mark.feature("A22")
def test_a_sorted_map_is_read_from_either_end(backend):
    with tg.testing.harness(
        Ends(), key="k", schema="k int, day int, word string", state_backend=backend, parallelism=2
    ) as h:
        h.process(*[(1, day, "x") for day in (7, -3, 300, 20)])
        h.process((1, 0, None))
        h.snapshot()
        h.process((1, 0, None), (2, 0, None))
        assert h.output() == [(-3, 300, [7, -3]), (-3, 300, [7, -3]), (None, None, [])]


# Operator state


class Offsets(tg.MapFunction, tg.CheckpointedFunction):
    """A local variable that survives, as in Flink's documentation of CheckpointedFunction."""

    kept = tg.ListState(int, operator=True)

    def initialize_state(self, ctx):
        self.offsets = list(self.kept.get()) if ctx.is_restored() else []

    def snapshot_state(self, ctx):
        self.kept.clear()
        self.kept.add_all(self.offsets)

    def map(self, row):
        self.offsets.append(row.n)
        return (len(self.offsets),)


class UnionOffsets(Offsets):
    kept = tg.ListState(int, union=True)

    def initialize_state(self, ctx):
        # The usual way: see everybody's, keep what is one's own.
        self.seen = sorted(self.kept.get())
        self.offsets = []


class ByList(tg.MapFunction, tg.ListCheckpointed, element=int):
    offsets: list[int]

    def open(self, ctx):
        self.offsets = getattr(self, "offsets", [])

    def map(self, row):
        self.offsets.append(row.n)
        return (len(self.offsets),)

    def snapshot_state(self, checkpoint_id, timestamp):
        return self.offsets

    def restore_state(self, state):
        self.offsets = state


def offsets(function, backend, **options):
    return tg.testing.harness(function, schema="n bigint", output_schema="n int", state_backend=backend, **options)


@BACKENDS
@pytest.mark.feature("A24", "A25", "A30", "A31", "N4")
def test_a_local_variable_survives_epochs_and_restores(backend):
    with offsets(Offsets(), backend) as h:
        h.process((10,), (11,))
        h.snapshot()
        h.process((12,))
        snapshot = h.snapshot()
        h.process((13,))
    with offsets(Offsets(), backend, restore=snapshot) as h:
        h.process((14,))
        assert h.output() == [(4,)]
        assert h.operator_state("kept") == [[10, 11, 12]]


@pytest.mark.feature("A32", "N5")
def test_the_shorter_form_keeps_its_list_too():
    with offsets(ByList(), "hashmap", parallelism=2) as h:
        h.process((1,), (2,), (3,))
        snapshot = h.snapshot()
    with offsets(ByList(), "hashmap", restore=snapshot, parallelism=1) as h:
        h.process((4,))
        assert h.output() == [(4,)]
        h.snapshot()
        assert h.operator_state("_default_") == [[1, 3, 2, 4]]


class Restores(ByList, element=int):
    """Says how it began. Its list is complete when it is asked for it: `close` comes later."""

    def open(self, ctx):
        self.began = "restored" if hasattr(self, "offsets") else "anew"
        super().open(ctx)

    def map(self, row):
        self.offsets.append(row.n)
        return (self.began,)

    def close(self):
        self.offsets.clear()

    def snapshot_state(self, checkpoint_id, timestamp):
        return list(self.offsets)


@pytest.mark.feature("A30", "A32")
def test_a_list_is_restored_only_if_there_is_one_and_saved_before_the_function_is_closed():
    def opened(**options):
        return tg.testing.harness(Restores(), schema="n bigint", output_schema="began string", **options)

    with opened() as h:
        h.process((1,), (2,))
        snapshot = h.snapshot()
        assert h.output() == [("anew",), ("anew",)]
        assert h.operator_state("_default_") == [[1, 2]]
    with opened(restore=snapshot) as h:
        h.process((3,))
        assert h.output() == [("restored",)]


@pytest.mark.feature("A32")
def test_the_shorter_form_travels_to_tasks_and_needs_a_type():
    class Local(ByList, element=int):
        pass

    class Untyped(tg.MapFunction, tg.ListCheckpointed):
        map = snapshot_state = restore_state = ByList.map

    with offsets(pickle.loads(cloudpickle.dumps(Local())), "hashmap") as h:
        h.process((1,), (2,))
        h.snapshot()
        assert h.operator_state("_default_") == [[1, 2]]
    with pytest.raises(GraphError, match=r"Say it: class Untyped\(…, element=int\)"):
        offsets(Untyped(), "hashmap")


class Timed(tg.MapFunction, tg.ListCheckpointed, element=tuple[int, int]):
    """Keeps when it was asked for its list."""

    def open(self, ctx):
        self.asked = getattr(self, "asked", [])

    def map(self, row):
        return row

    def snapshot_state(self, checkpoint_id, timestamp):
        return [*self.asked, (checkpoint_id, timestamp)]

    def restore_state(self, state):
        self.asked = state


@pytest.mark.feature("A32")
def test_the_shorter_form_gets_the_number_and_the_time_of_its_epoch():
    with offsets(Timed(), "hashmap") as h:
        h.set_processing_time(5000)
        h.snapshot()
        h.snapshot()
        assert h.operator_state("_default_") == [[(1, 0), (2, 5000)]]


class FromStore(tg.MapFunction, tg.CheckpointedFunction):
    """Takes its lists from the operator state store of the context."""

    own = tg.ListState(int, operator=True)
    everyones = tg.ListState(int, union=True)

    def initialize_state(self, ctx):
        store = ctx.get_operator_state_store()
        self.mine, self.all = store.get_list_state("own"), store.get_union_list_state("everyones")
        self.numbers, self.restored = list(self.mine.get()), ctx.is_restored()

    def snapshot_state(self, ctx):
        for kept in (self.mine, self.all):
            kept.clear()
            kept.add_all(self.numbers)

    def map(self, row):
        self.numbers.append(row.n)
        return self.restored, sorted(self.numbers), sorted(self.all.get())


@BACKENDS
@pytest.mark.feature("A31")
def test_the_context_has_the_lists_of_the_function_and_says_whether_they_were_restored(backend):
    with tg.testing.harness(FromStore(), schema="n bigint", state_backend=backend, parallelism=2) as h:
        h.process((1,), (2,), (3,))
        assert h.output() == [(False, [1], []), (False, [2], []), (False, [1, 3], [])]
        h.snapshot()
        snapshot = h.snapshot()
    with tg.testing.harness(
        FromStore(), schema="n bigint", state_backend=backend, parallelism=3, restore=snapshot
    ) as h:
        h.process((4,), (5,), (6,))
        assert h.output() == [(True, sorted([kept, n]), [1, 2, 3]) for kept, n in ((1, 4), (3, 5), (2, 6))]


class WithOneMore(FromStore):
    later = tg.ListState(int, operator=True)


@pytest.mark.feature("A31")
def test_a_function_that_declares_one_more_list_is_restored_all_the_same():
    with tg.testing.harness(FromStore(), schema="n bigint") as h:
        h.process((1,))
        snapshot = h.snapshot()
    with tg.testing.harness(WithOneMore(), schema="n bigint", restore=snapshot) as h:
        h.process((2,))
        assert h.output() == [(True, [1, 2], [1])]


class KnowsRules(tg.KeyedBroadcastProcessFunction, tg.CheckpointedFunction):
    rules = tg.BroadcastState(str, int)

    def initialize_state(self, ctx):
        self.known = sorted(ctx.get_operator_state_store().get_broadcast_state("rules").keys())

    def snapshot_state(self, ctx): ...

    def process_element(self, row, ctx):
        yield row.k, self.known

    def process_broadcast_element(self, row, ctx):
        self.rules.put(row.name, 1)


@BACKENDS
@pytest.mark.feature("A31")
def test_the_context_has_the_broadcast_state_of_the_function(backend):
    with tg.testing.harness(
        KnowsRules(), key="k", schema="k int", broadcast_schema="name string", state_backend=backend, parallelism=2
    ) as h:
        h.process_broadcast(("low",), ("high",))
        h.snapshot()
        h.process((1,))
        assert h.output() == [(1, ["high", "low"])]


class Misnamed(FromStore):
    def initialize_state(self, ctx):
        ctx.get_operator_state_store().get_list_state("everyones")


@pytest.mark.feature("A31")
def test_a_list_that_is_declared_otherwise_is_not_in_the_store():
    with pytest.raises(
        StateError, match=r"no split operator state 'everyones'; it has: own \(split\), everyones \(union\)"
    ):
        tg.testing.harness(Misnamed(), schema="n bigint")


@BACKENDS
@pytest.mark.feature("A26", "N15")
@pytest.mark.parametrize("before", WIDTHS)
@pytest.mark.parametrize("after", WIDTHS)
def test_a_list_is_dealt_out_evenly(backend, before, after):
    with offsets(Offsets(), backend, parallelism=before) as h:
        h.process(*[(n,) for n in range(20)])
        snapshot = h.snapshot()
    with offsets(Offsets(), backend, parallelism=after, restore=snapshot) as h:
        shares = h.operator_state("kept")
        assert sorted(n for share in shares for n in share) == list(range(20))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@BACKENDS
@pytest.mark.feature("A27", "A28", "N15")
@pytest.mark.parametrize("before", WIDTHS)
@pytest.mark.parametrize("after", WIDTHS)
def test_a_union_list_is_given_to_all_and_does_not_grow(backend, before, after):
    with offsets(UnionOffsets(), backend, parallelism=before) as h:
        h.process(*[(n,) for n in range(10)])
        snapshot = h.snapshot()
    with offsets(Offsets2(), backend, parallelism=after, restore=snapshot) as h:
        assert [sorted(share) for share in h.operator_state("kept")] == [list(range(10))] * after
        # Nobody writes before the next snapshot: every element is still there once.
        again = h.snapshot()
    with offsets(Offsets2(), backend, parallelism=before, restore=again) as h:
        assert [sorted(share) for share in h.operator_state("kept")] == [list(range(10))] * before


class Reader(tg.MapFunction, tg.CheckpointedFunction):
    """Counts the rows of its share of the partitions. Which partitions those are depends on the parallelism."""

    positions = tg.ListState(tuple[int, int], union=True)

    def initialize_state(self, ctx):
        self.known = dict(self.positions.get())

    def open(self, ctx):
        index, parallelism = ctx.get_index_of_this_subtask(), ctx.get_number_of_parallel_subtasks()
        self.mine = {partition: at for partition, at in self.known.items() if partition % parallelism == index}

    def snapshot_state(self, ctx):
        self.positions.update(sorted(self.mine.items()))

    def map(self, row):
        self.mine[row.partition] = self.mine.get(row.partition, 0) + 1
        return row.partition, self.mine[row.partition]


@BACKENDS
@pytest.mark.feature("A28")
@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 3), (3, 2), (8, 3)])
def test_a_reader_finds_the_positions_of_partitions_that_others_read_before(backend, before, after):
    def reader(parallelism, **more):
        return tg.testing.harness(
            Reader(), schema="partition int", parallelism=parallelism, state_backend=backend, **more
        )

    with reader(before) as h:
        for partition in range(8):
            h.process_on(partition % before, *[(partition,)] * (partition + 1))
        h.snapshot()
        snapshot = h.snapshot()
    with reader(after, restore=snapshot) as h:
        for partition in range(8):
            h.process_on(partition % after, (partition,))
        h.snapshot()
        for partition in range(8):
            h.process_on(partition % after, (partition,))
        again = [[(partition, partition + more) for partition in range(8)] for more in (2, 3)]
        assert h.output() == again[0] + again[1]


class Offsets2(tg.MapFunction):
    kept = tg.ListState(int, union=True)

    def map(self, row):
        return row


# Broadcast state


class Alerts(tg.KeyedBroadcastProcessFunction):
    seen = tg.MapState(str, int)
    rules = tg.BroadcastState(str, float)

    def process_element(self, event, ctx):
        if event.kind == "break the rule":
            self.rules.put("mine", 1.0)
        self.seen.put(event.kind, (self.seen.get(event.kind) or 0) + 1)
        for name, limit in self.rules.items():
            if event.amount > limit:
                yield event.user, name

    def process_broadcast_element(self, rule, ctx):
        if rule.limit is None:
            self.rules.remove(rule.name)
        else:
            self.rules.put(rule.name, rule.limit)
        if rule.name == "forget":
            ctx.apply_to_keyed_state("seen", lambda key, seen: seen.clear() if key != "ann" else None)


def alerts(backend, **options):
    return tg.testing.harness(
        Alerts(), key="user", schema="user string, kind string, amount double", state_backend=backend,
        broadcast_schema="name string, limit double", output_schema="user string, rule string", **options,
    )  # fmt: skip


@BACKENDS
@pytest.mark.feature("A29", "N15")
@pytest.mark.parametrize("before", WIDTHS)
@pytest.mark.parametrize("after", WIDTHS)
def test_broadcast_state_is_the_same_in_every_task_however_many(backend, before, after):
    with alerts(backend, parallelism=before) as h:
        h.process_broadcast(("low", 1.0), ("high", 100.0), ("gone", 0.0))
        h.process_broadcast(("gone", None), ("new", 50.0))
        snapshot = h.snapshot()
    with alerts(backend, parallelism=after, restore=snapshot) as h:
        assert h.operator_state("rules") == [{"low": 1.0, "high": 100.0, "new": 50.0}] * after
        h.process(*[(f"user-{n}", "buy", 60.0) for n in range(10)])
        assert h.output() == [(f"user-{n}", rule) for n in range(10) for rule in ("low", "new")]


@BACKENDS
@pytest.mark.feature("A29")
def test_broadcast_state_cannot_be_written_on_the_keyed_side(backend):
    with alerts(backend) as h:
        h.process_broadcast(("low", 1.0))
        with pytest.raises(StateError, match="read-only here"):
            h.process(("ann", "break the rule", 5.0))
        assert h.operator_state("rules") == [{"low": 1.0}]


@pytest.mark.feature("A29")
@BACKENDS
def test_a_broadcast_row_may_reach_into_the_state_of_every_key(backend):
    with alerts(backend, parallelism=3) as h:
        users = ["ann", *(f"user-{n}" for n in range(12))]
        h.process(*[(user, "buy", 0.0) for user in users])
        h.snapshot()
        h.process(("late", "buy", 0.0))
        h.process_broadcast(("forget", 9.0))
        assert [user for user in (*users, "late") if h.state("seen", user)] == ["ann"]


# Rows that fail


class Fragile(tg.KeyedProcessFunction):
    total = tg.ValueState(int, default=0)
    history = tg.ListState(int)
    counts = tg.MapState(str, int)
    most = tg.ReducingState(int, max)

    def process_element(self, row, ctx):
        self.total.update(self.total.value() + row.n)
        self.history.add(row.n)
        self.counts.put("rows", (self.counts.get("rows") or 0) + 1)
        self.most.add(row.n)
        ctx.output("all", (row.k, row.n))
        yield row.k, self.total.value()
        if row.n < 0:
            self.counts.clear()
            raise ValueError(f"{row.n} is negative")


def fragile(backend, on_error, **options):
    return tg.testing.harness(
        Fragile(), key="k", schema="k string, n int", side_outputs=["all"], state_backend=backend, on_error=on_error,
        **options,
    )  # fmt: skip


@BACKENDS
@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_a_row_that_fails_leaves_no_trace_in_state_and_output(backend, on_error):
    with fragile(backend, on_error) as h:
        h.process(("a", 1), ("a", -5), ("a", 2), ("b", -1))
        h.snapshot()
        h.process(("a", -7), ("a", 3))
        assert h.output() == [("a", 1), ("a", 3), ("a", 6)]
        assert h.side_output("all") == [("a", 1), ("a", 2), ("a", 3)]
        assert (h.state("total", "a"), h.state("history", "a"), h.state("most", "a")) == (6, [1, 2, 3], 3)
        assert (h.state("counts", "a"), h.state("counts", "b"), h.state("total", "b")) == ({"rows": 3}, None, None)


def test_a_dead_letter_says_what_where_and_when():
    with fragile("hashmap", tg.dead_letter("bad")) as h:
        h.process(("a", -5))
        ((operator, key, row, error, trace, epoch, position),) = h.side_output("bad")
        assert (operator, key, row, error) == ("function", '"a"', '{"k":"a","n":-5}', "ValueError: -5 is negative")
        assert "process_element" in trace
        assert (epoch, position) == ("1.1", None)


def test_a_dead_letter_says_where_a_row_of_kafka_came_from():
    schema = "k string, n int, topic string, partition int, offset bigint"
    with tg.testing.harness(Fragile(), key="k", schema=schema, side_outputs=["all"], on_error="dead-letter") as h:
        h.process(("a", -5, "orders", 3, 41))
        (letter,) = h.side_output("dead-letter")
        assert letter[-1] == '{"topic":"orders","partition":3,"offset":41}'


def test_by_default_an_error_ends_the_job():
    with fragile("hashmap", "fail") as h, pytest.raises(ValueError, match="-5 is negative"):
        h.process(("a", -5))


def test_errors_of_the_program_are_never_skipped():
    class Wrong(tg.KeyedProcessFunction):
        def process_element(self, row, ctx):
            ctx.output("nowhere", row)

    with (
        tg.testing.harness(Wrong(), key="k", schema="k string", on_error="skip") as h,
        pytest.raises(GraphError, match="no side output 'nowhere'"),
    ):
        h.process(("a",))
    with pytest.raises(GraphError, match="on_error='ignore' is not known"):
        tg.testing.harness(Wrong(), key="k", schema="k string", on_error="ignore")


@BACKENDS
def test_a_value_that_cannot_be_stored_is_an_error_of_its_row(backend):
    class Loose(tg.KeyedProcessFunction):
        last = tg.ValueState(int)
        all = tg.ListState(int)
        by_name = tg.MapState(str, int)

        def process_element(self, row, ctx):
            word = int(row.word) if row.word.isdigit() else row.word
            {"last": self.last.update, "all": self.all.add, "map": lambda n: self.by_name.put("x", n)}[row.where](word)

    rows = [("a", where, word) for where in ("last", "all", "map") for word in ("1", "two", "3")]
    with tg.testing.harness(
        Loose(), key="k", schema="k string, where string, word string", on_error="dead-letter", state_backend=backend
    ) as h:
        h.process(*rows)
        h.snapshot()
        assert (h.state("last", "a"), h.state("all", "a"), h.state("by_name", "a")) == (3, [1, 3], {"x": 3})
        assert [row[2] for row in h.side_output("dead-letter")] == [
            f'{{"k":"a","where":"{where}","word":"two"}}' for where in ("last", "all", "map")
        ]


@BACKENDS
def test_a_broadcast_row_that_fails_undoes_what_it_did_to_every_key(backend):
    class Resets(tg.KeyedBroadcastProcessFunction):
        rules = tg.BroadcastState(str, int)
        total = tg.ValueState(int, default=0)

        def process_element(self, row, ctx):
            self.total.update(self.total.value() + row.n)

        def process_broadcast_element(self, rule, ctx):
            self.rules.put(rule.name, 1)
            for _ in range(2):
                ctx.apply_to_keyed_state("total", lambda key, total: total.update(total.value() + 100))
            if rule.name == "bad":
                raise ValueError("a bad rule")

    with tg.testing.harness(
        Resets(), key="k", schema="k string, n int", broadcast_schema="name string", on_error="skip",
        state_backend=backend,
    ) as h:  # fmt: skip
        h.process(("a", 1))
        h.snapshot()
        h.process(("b", 2))
        h.process_broadcast(("bad",))
        assert ([h.state("total", key) for key in "abc"], h.operator_state("rules")) == ([1, 2, None], [{}])
        h.process_broadcast(("good",))
        assert ([h.state("total", key) for key in "abc"], h.operator_state("rules")) == (
            [201, 202, None],
            [{"good": 1}],
        )


# Wrong use


def test_a_class_is_not_a_function():
    with pytest.raises(GraphError, match=r"not the class Prices. Write Prices\(\)"):
        tg.testing.harness(Prices, key="shop", schema="shop string")


def test_rows_that_do_not_fit_the_schema_are_reported():
    class Doubled(tg.KeyedProcessFunction):
        def process_element(self, row, ctx):
            yield row.k, str(row.n * 2)

    with (
        tg.testing.harness(Doubled(), key="k", schema="k string, n int", output_schema="k string, n int") as h,
        pytest.raises(SchemaError, match="Column 'n'"),
    ):
        h.process(("a", 1))


# Rows in and out are those of a job


class Echo(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield [row.k, row.price, row.price / 2]


class EchoByName(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield {"price": row.price, "k": row.k}


def test_rows_go_in_as_spark_would_give_them():
    with tg.testing.harness(Echo(), key="k", schema="k string, price double") as h:
        h.process(("a", 3), {"price": 4, "k": "b"}, ["c", 5.0])
        out = h.output()
    assert out == [("a", 3.0, 1.5), ("b", 4.0, 2.0), ("c", 5.0, 2.5)]
    assert [type(price) for _, price, _ in out] == [float] * 3


def test_a_row_that_spark_could_not_give_is_refused():
    with (
        tg.testing.harness(Echo(), key="k", schema="k string, price double") as h,
        pytest.raises(SchemaError, match="Column 'price'"),
    ):
        h.process(("a", "3.0"))


def test_rows_come_out_as_the_next_operator_would_read_them():
    with tg.testing.harness(
        EchoByName(), key="k", schema="k string, price double", output_schema="k string, price double"
    ) as h:
        h.process(("a", 3))
        [row] = h.output()
    assert row == ("a", 3.0)
    assert row.price == 3.0


def test_rows_of_a_function_without_keys_are_those_of_a_job_too():
    class Half(tg.MapFunction):
        def map(self, row):
            return row.n / 2, type(row.n).__name__

    with tg.testing.harness(Half(), schema="n double") as h:
        h.process((3,), {"n": 4})
        assert h.output() == [(1.5, "float"), (2.0, "float")]
