"""Mistakes that type checkers must find: those on the marked lines, and no others. Checked and never run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import tidegate as tg
from tidegate.api.context import ProcessContext


class Order(NamedTuple):
    user: str
    amount: float


class Longest(tg.AggregateFunction[str, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: str, accumulator: int) -> int:
        return max(len(value), accumulator)

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return max(a, b)


class Totals(tg.KeyedProcessFunction[Order, str]):
    total = tg.ValueState(float)
    count = tg.ValueState(int, default=0)
    last = tg.ListState(str)
    seen = tg.MapState(str, int)
    prices = tg.SortedMapState(int, float)
    highest = tg.ReducingState(float, max)
    longest = tg.AggregatingState(int, Longest())
    rules = tg.BroadcastState(str, float)

    def process_element(self, row: Order, ctx: ProcessContext[str]) -> Iterator[tuple[str, float]]:
        self.total.update("x")  # rejected: a float is stored
        self.total.value() + 1.0  # rejected: None until written
        self.count.update(self.count.value() + 0.5)  # rejected: an int is stored
        self.last.add(1)  # rejected: a list of str
        self.seen.put(1, 1)  # rejected: keys are str
        self.seen["a"] = "b"  # rejected: values are int
        self.prices.items("a", "b")  # rejected: bounds are int
        self.highest.add("x")  # rejected: a float is reduced
        self.longest.add(1)  # rejected: a str is aggregated
        self.rules.put("a", "b")  # rejected: values are float
        self.total.updaet(1.0)  # rejected: no such method
        ctx.timer_service().register_event_time_timer("now")  # rejected: a time is an int or a datetime
        ctx.get_current_key().amount  # rejected: the key is a str  # noqa: B018
        yield row.user, row.amonut  # rejected: no such column


def build(job: tg.Job) -> None:
    orders = job.source("orders", [("ann", 1.0)])  # rejected: a DataFrame
    orders.async_map("tiers", Totals(), timeout="1 s")  # rejected: an AsyncFunction
    orders.async_map("tiers", retry=3, timeout="1 s")  # rejected: a strategy, and the function is missing
    tg.FixedDelayRetry("3", "1 s")  # rejected: a number
    keyed = orders.key_by("user")
    keyed.process("totals", Totals, schema="user string")  # rejected: an instance, not the class
    keyed.process("totals", Totals())  # rejected: the schema is missing
    keyed.window("1 min")  # rejected: an assigner
    keyed.window(tg.TumblingEventTimeWindows.of("1 min").with_gap("1 s"))  # rejected: only sessions have a gap
    keyed.window(tg.GlobalWindows.create()).trigger(100)  # rejected: a trigger
    keyed.aggregate("sums", n="count")  # rejected: an aggregate
    orders.sink("out", "out/")  # rejected: a sink
    orders.proces("totals")  # rejected: no such method


def operate(job: tg.Job) -> None:
    job.run(checkpoint=10)  # rejected: a Checkpointing
    job.run(checkpont=tg.Checkpointing(dir="x"))  # rejected: no such argument
    job.start(trigger=5)  # rejected: a text
    tg.Checkpointing(intervall="10 s")  # rejected: no such argument
    tg.Checkpointing(interval=1.5)  # rejected: a duration
    tg.Checkpointing(interval=30)  # rejected: a number without a unit
    job.start().savepiont("x")  # rejected: no such method
    job.run().rows_in  # rejected: None for a streaming job  # noqa: B018
    tg.Savepoint.open(5)  # rejected: a path
    tg.NoSuchName  # rejected: no such name  # noqa: B018
