"""A job to look at: two sources, two levels with state, a side output, a row path over a level. No Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tidegate as tg


@dataclass
class Frame:
    """Stands in for a DataFrame: only what declaring a source asks for."""

    ddl: str
    isStreaming: bool = True

    @property
    def schema(self) -> Frame:
        return self

    def jsonValue(self) -> dict[str, Any]:
        names = {"int": "integer", "bigint": "long"}
        fields = [
            {"name": name, "type": names.get(kind, kind), "nullable": True, "metadata": {}}
            for name, kind in (column.split() for column in self.ddl.split(","))
        ]
        return {"type": "struct", "fields": fields}


class NullSink:
    """Takes rows and shows nobody."""

    def create_writer(self, context: Any) -> Any: ...


class Totals(tg.KeyedProcessFunction):
    """Running total per user; forgets a user after a day of silence.

    The rest of this is for readers of the code.
    """

    total = tg.ValueState(float, default=0.0)
    orders_seen = tg.MapState(str, int)

    def process_element(self, row: Any, ctx: Any) -> Any:
        yield row


class Regions(tg.KeyedProcessFunction):
    """The largest totals of each region."""

    best = tg.ListState(tuple[str, float])

    def process_element(self, row: Any, ctx: Any) -> Any:
        yield row


def negated(row: Any) -> Any:
    """Refunds count against the total."""
    return row._replace(amount=-row.amount)


def shop() -> tg.Job:
    job = tg.Job("shop", parallelism=4)
    columns = "user string,region string,amount double,ts timestamp"
    orders = job.source("orders", Frame(columns), event_time="ts", out_of_orderness="5 s")
    refunds = job.source("refunds", Frame(columns))
    changes = orders.union(refunds.map(negated)).filter(lambda row: row.amount)
    totals = changes.key_by("user").process(
        "totals",
        Totals(),
        schema="user string, region string, amount double, ts timestamp",
        side_outputs={"large": "user string, amount double", "odd": "user string"},
    )
    regions = totals.union(orders).key_by("region").process("regions", Regions(), schema="region string, total double")
    job.side_output("large").sink("alerts", NullSink())
    regions.sink("board", NullSink())
    orders.sink("archive", NullSink())
    return job
