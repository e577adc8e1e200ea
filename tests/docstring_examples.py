"""The examples in docstrings: what they may use without saying so, and which of them need Spark.

An example is a session at the prompt, below `Examples:` in the docstring of a public function. It starts with the names of
`names()`: `tg`, and the streams of a small shop.
"""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import tidegate as tg
from tests.described import reference

NEEDS_SPARK = "spark"
"""The name that an example uses if it needs a session."""


def examples(*, with_spark: bool) -> Iterator[doctest.DocTest]:
    """The examples in the docstrings of the modules with public names."""
    for name in sorted({each.module for each in reference()}):
        for each in doctest.DocTestFinder().find(import_module(name)):
            if each.examples and with_spark == any(NEEDS_SPARK in example.source for example in each.examples):
                yield each


class Totals(tg.KeyedProcessFunction):
    total = tg.ValueState(float, default=0.0)

    def process_element(self, order: Any, ctx: Any) -> Any:
        self.total.update(self.total.value() + order.amount)
        yield order.user, self.total.value()


def names() -> dict[str, Any]:
    """What every example can use."""
    job = tg.Job("shop")
    columns = tg.testing.frame("id bigint, user string, amount double, ts timestamp")
    return {
        "tg": tg,
        "job": job,
        "orders": job.source("orders", columns, event_time="ts"),
        "payments": job.source(
            "payments", tg.testing.frame("order bigint, paid double, ts timestamp"), event_time="ts"
        ),
        "limits": job.source("limits", tg.testing.frame("user string, most double")),
        "Totals": Totals,
        "T0": datetime(2026, 1, 1, tzinfo=UTC),
        "timedelta": timedelta,
    }


def run(example: doctest.DocTest, **more: Any) -> str:
    """Run an example; return what differs from what it shows."""
    example.globs = names() | more
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    return "".join(said)
