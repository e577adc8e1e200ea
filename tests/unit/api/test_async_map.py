"""Declaring an async function, and running one in the harness."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import tidegate as tg
from tidegate.core.errors import GraphError
from tidegate.graph.levels import plan

SCHEMA = "user string, amount double"


class Tier(tg.AsyncFunction):
    """Looks up the tier of a user."""

    async def open(self, ctx: tg.RuntimeContext) -> None:
        self.ctx, self.calls = ctx, 0

    async def async_invoke(self, row: Any) -> Any:
        self.calls += 1
        with self.ctx.span("lookup"):
            await asyncio.sleep(0)
        if row.user == "eve":
            raise LookupError(row.user)
        return row.user, "gold" if row.amount > 10 else "tin"


def orders(job: tg.Job | None = None) -> Any:
    return (job or tg.Job("shop")).source("orders", tg.testing.frame(SCHEMA))


def enriched(**options: Any) -> Any:
    return orders().async_map(
        "tier", Tier(), **({"schema": "user string, tier string", "timeout": "5 s"} | options)
    )  # fmt: skip


class WithState(Tier):
    seen = tg.ValueState(int)


class WithOperatorState(Tier, tg.CheckpointedFunction):
    def initialize_state(self, ctx: Any) -> None: ...
    def snapshot_state(self, ctx: Any) -> None: ...


class Listening(Tier, tg.CheckpointListener):
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None: ...


class Yields(tg.AsyncFunction):
    async def async_invoke(self, row: Any) -> Any:
        yield row


class TakesTwo(tg.AsyncFunction):
    async def async_invoke(self, row: Any, ctx: Any) -> Any:  # type: ignore[override]
        return row


class WaitsInTimeout(Tier):
    async def timeout(self, row: Any) -> Any:
        return row


class Upper(tg.MapFunction):
    def map(self, row: Any) -> Any:
        return row


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (WithState(), "declares state 'seen', and an async function has none"),
        (WithOperatorState(), "declares state, and an async function has none"),
        (Listening(), "is not notified of checkpoints"),
        (Tier, "not the class Tier"),
        (Upper(), "has no async_invoke. Upper is for map"),
        (len, "has no async_invoke"),
        (Yields(), "Return a list of rows"),
        (TakesTwo(), r"Write def async_invoke\(self, row\)"),
        (WaitsInTimeout(), r"Write def timeout\(self, row\)"),
    ],
)
def test_functions_that_cannot_work_are_refused(function: Any, text: str) -> None:
    with pytest.raises(GraphError, match=text):
        orders().async_map("tier", function, timeout="5 s")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"timeout": "soon"}, "timeout='soon' is not a duration"),
        ({"timeout": 5}, r"async_map 'tier': timeout=5 has no unit\. Write '5 s' or '5 ms'"),
        ({"timeout": 0}, "not positive"),
        ({"capacity": 0}, "at least 1"),
        ({"capacity": 2.5}, "at least 1"),
        ({"retry": 3}, "Use, for example, FixedDelayRetry"),
        ({"on_error": "ignore"}, "is not known"),
    ],
)
def test_options_that_cannot_work_are_refused(options: Any, text: str) -> None:
    with pytest.raises(GraphError, match=text):
        enriched(**options)


def test_a_timeout_and_a_uid_are_required() -> None:
    with pytest.raises(GraphError, match="missing a required argument: 'timeout'"):
        orders().async_map("tier", Tier())
    with pytest.raises(GraphError, match="needs a uid first"):
        orders().async_map(Tier(), timeout="1 s")


def test_an_async_function_is_no_map() -> None:
    with pytest.raises(GraphError, match="map takes a MapFunction or a callable"):
        orders().map(Tier())


def test_columns_stay_as_they_are_without_a_schema() -> None:
    job = tg.Job("j")
    rows = job.source("in", tg.testing.frame("a int, ts timestamp"), event_time="ts")
    assert rows.async_map("same", Tier(), timeout="1 s").schema == rows.schema
    assert rows.async_map("kept", Tier(), timeout="1 s").event_time == "ts"
    assert rows.async_map("lost", Tier(), timeout="1 s", schema="b int").event_time is None


def test_it_runs_before_the_shuffle_if_a_key_follows_and_with_the_sinks_if_none_does() -> None:
    job = tg.Job("j")
    rows = orders(job)
    before = rows.async_map("before", Tier(), timeout="1 s")
    counted = before.key_by("user").aggregate("count", n=tg.count())
    counted.async_map("after", Tier(), timeout="1 s").sink("a", tg.DiscardSink())
    rows.async_map("alone", Tier(), timeout="1 s").sink("b", tg.DiscardSink())
    made = plan(job.graph())
    levels = {str(node.uid): made.level_of(node.id) for node in job.graph().nodes}
    assert {uid: levels[uid] for uid in ("before", "after", "alone")} == {"before": 0, "after": 1, "alone": 1}


def test_explain_says_how_calls_are_made() -> None:
    job = tg.Job("j")
    made = orders(job).async_map(
        "tier", Tier(), schema="user string, tier string", timeout="5 s", capacity=20, ordered=False,
        retry=tg.FixedDelayRetry(3, "100 ms"), on_error=tg.dead_letter("bad"),
    )  # fmt: skip
    made.sink("out", tg.DiscardSink())
    job.side_output("bad").sink("dlq", tg.DiscardSink())
    text = job.explain()
    assert "async_map tier · Tier" in text
    assert "Looks up the tier of a user." in text
    assert "calls         unordered, at most 20 at a time in each task, timeout 5 s, up to 3 retries" in text
    assert "on error      dead-letter" in text
    assert "side output   bad: operator string" in text


def test_the_harness_runs_an_async_map() -> None:
    before = threading.active_count()
    with tg.testing.harness(enriched()) as h:
        h.process(("ann", 20.0), ("bob", 5.0))
        assert h.output() == [("ann", "gold"), ("bob", "tin")]
        h.snapshot()
        h.process(("cid", 11.0))
        assert h.output() == [("cid", "gold")]
        assert h.spans() == {"lookup": 3}
        with pytest.raises(LookupError, match="eve"):
            h.process(("eve", 1.0))
    assert threading.active_count() == before


def test_the_harness_runs_an_async_function_alone() -> None:
    with tg.testing.harness(Tier(), schema=SCHEMA, on_error="dead-letter", parallelism=2) as h:
        h.process(("ann", 20.0), ("eve", 5.0))
        assert h.output() == [("ann", "gold")]
        ((operator, key, row, error, *_),) = h.side_output("dead-letter")
        assert (operator, key, row, error) == (
            "function", None, '{"user":"eve","amount":5.0}', "LookupError: eve",
        )  # fmt: skip


def test_a_result_that_does_not_fit_the_schema_is_refused() -> None:
    with (
        tg.testing.harness(enriched(schema="user string, tier int")) as h,
        pytest.raises(tg.TidegateError, match="tier"),
    ):
        h.process(("ann", 20.0))
