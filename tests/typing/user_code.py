"""Typical code of users, as type checkers must accept it. It is checked and imported, and no job is run; see
`test_user_typing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, assert_type

import tidegate as tg
from tidegate import flink
from tidegate.api.context import BroadcastContext, OnTimerContext, ProcessContext
from tidegate.api.evictors import TimestampedValue
from tidegate.api.streams import Stream
from tidegate.api.triggers import TriggerContext
from tidegate.api.window_function import WindowContext
from tidegate.connectors.sink import CommitRequest, CommitterContext, Guarantee, WriterContext

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy import int64
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession


class Order(NamedTuple):
    user: str
    amount: float
    ts: datetime


@dataclass
class Rule:
    limit: float


class Mean(tg.AggregateFunction):
    """Its types are found in its methods."""

    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: float, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
        return a[0] + b[0], a[1] + b[1]


class Later(tg.ReduceFunction[datetime]):
    def reduce(self, a: datetime, b: datetime) -> datetime:
        return max(a, b)


class BatchTotals(tg.KeyedBatchFunction):
    total = tg.ValueState(float, default=0.0)

    def process_batch(
        self, batch: pa.RecordBatch, keys: tg.KeyIndex, ctx: tg.BatchContext
    ) -> Iterator[dict[str, object]]:
        totals = self.total.values(keys) + keys.counts()
        self.total.update_all(keys, totals)
        ctx.timer_service().register_event_time_timers(keys, 5)
        yield {"user": keys.distinct, "total": totals}


class Totals(tg.KeyedProcessFunction[Order, str]):
    total = tg.ValueState(float, default=0.0)
    name = tg.ValueState(str)
    last = tg.ListState(tuple[str, int], ttl="1 h")
    seen = tg.MapState(str, int, ttl=tg.StateTtlConfig("1 h"))
    prices = tg.SortedMapState(datetime, float)
    highest = tg.ReducingState(float, max)
    latest = tg.ReducingState(datetime, Later())
    mean = tg.AggregatingState(tuple[float, int], Mean())

    def process_element(self, row: Order, ctx: ProcessContext[str]) -> Iterator[tuple[str, float]]:
        assert_type(ctx.get_current_key(), str)
        assert_type(self.total.value(), float)
        assert_type(self.name.value(), str | None)
        assert_type(self.last.get(), Iterable[tuple[str, int]])
        assert_type(self.seen.get("a"), int | None)
        assert_type(self.seen["a"], int)
        assert_type(self.prices.first_key(), datetime | None)
        assert_type(self.highest.get(), float | None)
        assert_type(self.latest.get(), datetime | None)
        assert_type(self.mean.get(), float | None)
        assert_type(Totals.total, tg.ValueState[float])
        self.total.update(self.total.value() + row.amount)
        self.name.update(row.user)
        self.last.add((row.user, 1))
        self.last.update([("a", 1)])
        self.seen.put(row.user, 1)
        self.prices[row.ts] = row.amount
        self.highest.add(row.amount)
        self.mean.add(row.amount)
        ctx.timer_service().register_event_time_timer(row.ts + timedelta(days=1))
        ctx.output("large", (row.user,))
        yield row.user, self.total.value()

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> None:
        if ctx.time_domain() is tg.TimeDomain.EVENT_TIME:
            self.total.clear()


class Enrich(tg.AsyncFunction[Order]):
    async def open(self, ctx: tg.RuntimeContext) -> None:
        self.tiers = {"ann": "gold"}

    async def async_invoke(self, row: Order) -> tuple[str, str]:
        assert_type(row.user, str)
        return row.user, self.tiers[row.user]

    def timeout(self, row: Order) -> tuple[str, str]:
        return row.user, "unknown"

    async def close(self) -> None:
        self.tiers.clear()


class Untyped(tg.KeyedProcessFunction):
    """Whoever does not name the columns has rows with any attribute."""

    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):  # type: ignore[no-untyped-def]
        self.n.update(self.n.value() + 1)
        yield row.user, row.amount


class Alerts(tg.KeyedBroadcastProcessFunction[Order, Rule, str]):
    rules = tg.BroadcastState(str, Rule)

    def process_element(self, row: Order, ctx: ProcessContext[str]) -> Iterable[tuple[str, float]] | None:
        rule = self.rules.get(row.user)
        assert_type(rule, Rule | None)
        return [(row.user, row.amount)] if rule is not None and row.amount > rule.limit else None

    def process_broadcast_element(self, row: Rule, ctx: BroadcastContext) -> None:
        self.rules.put("all", row)
        ctx.apply_to_keyed_state("seen", lambda key, seen: seen.clear())


class PerWindow(tg.ProcessWindowFunction[Order, str]):
    fired = tg.ValueState(int, default=0).per_window()

    def process(self, key: str, context: WindowContext, elements: Iterable[Order]) -> Iterable[tuple[str, int, float]]:
        assert_type(context.window(), tg.TimeWindow)
        self.fired.update(self.fired.value() + 1)
        yield key, context.window().start, sum(order.amount for order in elements)


class Positions(tg.MapFunction[Order], tg.ListCheckpointed[int], element=int):
    at: int = 0

    def map(self, row: Order) -> tuple[str, int]:
        self.at += 1
        return row.user, self.at

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[int]:
        return [self.at]

    def restore_state(self, state: list[int]) -> None:
        self.at = sum(state)


class Published(tg.FilterFunction[Order], tg.CheckpointListener):
    def filter(self, row: Order) -> bool:
        return row.amount > 0

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        assert_type(checkpoint_id, int)


class EveryTenth(tg.Trigger):
    def on_element(
        self, element: Order, timestamp: int, window: tg.TimeWindow | tg.GlobalWindow, ctx: TriggerContext
    ) -> tg.TriggerResult:
        return tg.TriggerResult.FIRE if timestamp % 10 == 0 else tg.TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: tg.TimeWindow | tg.GlobalWindow, ctx: TriggerContext
    ) -> tg.TriggerResult:
        return tg.TriggerResult.CONTINUE

    def on_event_time(
        self, time: int, window: tg.TimeWindow | tg.GlobalWindow, ctx: TriggerContext
    ) -> tg.TriggerResult:
        return tg.TriggerResult.FIRE if time == window.max_timestamp() else tg.TriggerResult.CONTINUE

    def clear(self, window: tg.TimeWindow | tg.GlobalWindow, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class Renamed(tg.KeyedProcessFunction[Order, str], tg.CheckpointedFunction):
    """A parameter has the name that says what it is, in every method that users write."""

    def open(self, runtime: tg.RuntimeContext) -> None: ...

    def initialize_state(self, initialization: tg.InitializationContext) -> None: ...

    def snapshot_state(self, snapshot: tg.SnapshotContext) -> None: ...

    def process_element(self, order: Order, context: ProcessContext[str]) -> Iterator[tuple[str, float]]:
        yield order.user, order.amount

    def on_timer(self, due_ms: int, context: OnTimerContext[str]) -> None: ...


class RenamedMap(tg.MapFunction[Order], tg.CheckpointListener):
    def map(self, order: Order) -> tuple[str, float]:
        return order.user, order.amount

    def notify_checkpoint_complete(self, checkpoint: int) -> None: ...

    def notify_checkpoint_aborted(self, checkpoint: int) -> None: ...


class RenamedFilter(tg.FilterFunction[Order], tg.ListCheckpointed[int], element=int):
    def filter(self, order: Order) -> bool:
        return order.amount > 0

    def snapshot_state(self, checkpoint: int, at_ms: int) -> list[int]:
        return [checkpoint]

    def restore_state(self, counts: list[int]) -> None: ...


class RenamedFlatMap(tg.FlatMapFunction[Order]):
    def flat_map(self, order: Order) -> Iterator[tuple[str]]:
        yield (order.user,)


class RenamedBatch(tg.KeyedBatchFunction):
    def process_batch(self, orders: pa.RecordBatch, users: tg.KeyIndex, context: tg.BatchContext) -> None: ...

    def combine(self, orders: pa.RecordBatch, users: tg.KeyIndex) -> dict[str, object]:
        return {"user": users.distinct}

    def on_timers(self, users: tg.KeyIndex, due_ms: NDArray[int64], context: tg.BatchContext) -> None: ...


class RenamedPairs(tg.KeyedCoProcessFunction[Order, Rule, str]):
    def process_element1(self, order: Order, context: ProcessContext[str]) -> None: ...

    def process_element2(self, rule: Rule, context: ProcessContext[str]) -> None: ...

    def on_timer(self, due_ms: int, context: OnTimerContext[str]) -> None: ...


class RenamedBroadcast(tg.KeyedBroadcastProcessFunction[Order, Rule, str]):
    def process_element(self, order: Order, context: ProcessContext[str]) -> None: ...

    def process_broadcast_element(self, rule: Rule, context: BroadcastContext) -> None: ...

    def on_timer(self, due_ms: int, context: OnTimerContext[str]) -> None: ...


class RenamedAsync(tg.AsyncFunction[Order]):
    async def open(self, runtime: tg.RuntimeContext) -> None: ...

    async def async_invoke(self, order: Order) -> tuple[str]:
        return (order.user,)

    def timeout(self, order: Order) -> None: ...


class RenamedAggregate(tg.AggregateFunction[Order, float, float]):
    def create_accumulator(self) -> float:
        return 0.0

    def add(self, order: Order, total: float) -> float:
        return total + order.amount

    def get_result(self, total: float) -> float:
        return total

    def merge(self, total: float, other: float) -> float:
        return total + other


class RenamedReduce(tg.ReduceFunction[Order]):
    def reduce(self, order: Order, later: Order) -> Order:
        return later


class RenamedWindow(tg.ProcessWindowFunction[Order, str]):
    def process(self, user: str, ctx: WindowContext, orders: Iterable[Order]) -> None: ...

    def clear(self, ctx: WindowContext) -> None: ...


class RenamedTrigger(tg.Trigger):
    def on_element(
        self, order: Order, at_ms: int, w: tg.TimeWindow | tg.GlobalWindow, context: TriggerContext
    ) -> tg.TriggerResult:
        return tg.TriggerResult.FIRE

    def on_processing_time(
        self, now_ms: int, w: tg.TimeWindow | tg.GlobalWindow, context: TriggerContext
    ) -> tg.TriggerResult:
        return tg.TriggerResult.FIRE

    def on_event_time(
        self, now_ms: int, w: tg.TimeWindow | tg.GlobalWindow, context: TriggerContext
    ) -> tg.TriggerResult:
        return tg.TriggerResult.FIRE

    def clear(self, w: tg.TimeWindow | tg.GlobalWindow, context: TriggerContext) -> None: ...


class RenamedEvictor(tg.Evictor):
    def evict_before(
        self, orders: Sequence[TimestampedValue], w: tg.TimeWindow | tg.GlobalWindow
    ) -> Sequence[TimestampedValue]:
        return orders[-1:]


class RenamedJoin(tg.ProcessJoinFunction[Order, Rule, str]):
    def process_element(self, order: Order, rule: Rule, context: ProcessContext[str] | None) -> None: ...


class RenamedPorted(flink.KeyedProcessFunction):
    def process_element(self, order: Order, ctx: ProcessContext[str]) -> Iterator[tuple[str]]:
        yield (order.user,)


class RenamedListener(tg.JobListener):
    def on_epoch(self, accepted: tg.EpochEvent) -> None: ...

    def on_failure(self, failure: tg.JobFailureEvent) -> None: ...


def build(spark: SparkSession) -> tg.Job:
    job = tg.Job("orders", parallelism=4, max_parallelism=128)
    frame: DataFrame = spark.readStream.format("rate").load()
    orders = job.source("orders", frame, event_time="ts", out_of_orderness="5 s", idleness=timedelta(minutes=1))
    rules = job.source("rules", frame)
    large = orders.filter(lambda row: row.amount > 10).map(lambda row: (row.user,), schema="user string")
    large.sink("large-out", tg.PrintSink(limit=5))
    tiers = orders.async_map(
        "tiers", Enrich(), schema="user string, tier string", timeout="5 s", capacity=50, ordered=False,
        retry=tg.ExponentialBackoffDelayRetry(3, "100 ms", timedelta(seconds=1), if_exception=(OSError, TimeoutError)),
        on_error=tg.dead_letter("no-tier"),
    )  # fmt: skip
    tiers.sink("tiers-out", tg.DiscardSink())
    keyed = orders.key_by("user")
    totals = keyed.process(
        "totals", Totals(), schema="user string, total double", side_outputs={"large": "user string"}
    )
    totals.sink("out", tg.FileSink("out/", format="json"))
    totals.side_output("large").sink("sides", tg.CollectSink())
    keyed.process("loose", Untyped(), schema="user string, n int", on_error=tg.dead_letter("bad")).sink(
        "loose-out", tg.DiscardSink()
    )
    keyed.connect(rules.broadcast()).process("alerts", Alerts(), schema="user string, amount double").sink(
        "alerts-out", tg.CallbackSink(lambda rows, epoch: print(len(rows), epoch))
    )
    windows = tg.TumblingEventTimeWindows.of("1 min")
    assert_type(windows, tg.TumblingEventTimeWindows)
    assert_type(tg.EventTimeSessionWindows.with_gap("1 min"), tg.EventTimeSessionWindows)
    keyed.window(windows).allowed_lateness("1 min").aggregate("sums", n=tg.count(), spent=tg.sum("amount")).sink(
        "sums-out", tg.KafkaSink("localhost:9092", "sums")
    )
    keyed.window(tg.SlidingEventTimeWindows.of("1 h", "5 min")).trigger(tg.CountTrigger.of(100)).aggregate(
        "mean", Mean(), accumulator=tuple[float, int], schema="mean double"
    ).sink("mean-out", tg.DiscardSink())
    keyed.window(windows).trigger(EveryTenth()).process(
        "windows", PerWindow(), schema="user string, start bigint, spent double"
    ).sink("windows-out", tg.DiscardSink())
    keyed.map_with_state(
        "delta", lambda row, last: (row.amount - (last or 0), row.amount), state=float, schema="d double"
    ).sink("delta-out", tg.DiscardSink())
    orders.map(Positions(), uid="positions", schema="user string, n int").sink("positions-out", tg.DiscardSink())
    return job


def operate(spark: SparkSession) -> None:
    checkpoint = tg.Checkpointing(dir="s3://bucket/checkpoints", interval="10 s", num_retained=3)
    run = build(spark).start(spark, checkpoint=checkpoint, trigger="1 s", state_backend="rocksdb", options={"a": 1})
    assert_type(run, tg.JobRun)
    assert_type(run.status, str)
    assert_type(run.savepoint("s3://bucket/savepoints").result(), str)
    assert_type(run.stop_with_savepoint("s3://bucket/savepoints", drain=True), str)
    report = build(tg.session("orders")).run(checkpoint="s3://bucket/checkpoints", fresh=True)
    if report is not None:
        assert_type(report.rows_in, int)


def read(spark: SparkSession) -> DataFrame:
    savepoint = tg.Savepoint.open("s3://bucket/savepoints/sp-1", region="eu-central-1")
    assert_type(savepoint.states()[0].uid, str)
    print(savepoint.state("totals", "total").get("ann"))
    frame = savepoint.state("totals", "total").to_df(spark)
    tg.SavepointWriter.from_existing(savepoint).with_state("totals", "total", {"ann": 1.0}).rename_uid("a", "b").remove(
        "gone"
    ).write("s3://bucket/savepoints/sp-2")
    return frame.where("key = 'ann'")


class CountingWriter:
    def __init__(self) -> None:
        self.n = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self.n += rows.num_rows

    def prepare_commit(self) -> bytes | None:
        return str(self.n).encode() if self.n else None

    def abort(self) -> None: ...


class CountingCommitter:
    def commit(self, counts: Sequence[CommitRequest]) -> None:
        print(sum(int(count.payload) for count in counts))


class CountingSink:
    """A sink of one's own."""

    guarantee = Guarantee.AT_LEAST_ONCE

    def create_writer(self, ctx: WriterContext) -> tg.SinkWriter:
        return CountingWriter()

    def create_committer(self, ctx: CommitterContext) -> tg.Committer:
        return CountingCommitter()

    def describe(self) -> str:
        return "counted"


def end(stream: Stream, sink: tg.Sink | None = None) -> None:
    stream.sink("counted", sink or CountingSink())


def catch() -> None:
    try:
        tg.Job("j").run()
    except tg.errors.GraphError as error:
        print(error)
    except tg.TidegateError as error:
        print(error)
