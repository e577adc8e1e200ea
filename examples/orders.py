"""Sum orders by region, with two sources, two levels and a side output.

    python examples/orders.py

Level 1 joins customers (who may move) with their orders; orders of unknown customers go to a side output. Level 2 sums by
region. Every operator with state has a uid.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tidegate as tg

# Each inner list is one file and one epoch. Sources are not ordered within an epoch, so customers come one epoch earlier.
CUSTOMERS = [[("ann", "north"), ("bob", "south")], [], [("eve", "north")], []]
ORDERS = [[("zoe", 3.0)], [("ann", 10.0), ("eve", 1.0)], [("bob", 5.0), ("ann", 2.5)], [("eve", 7.0)]]

EVENT = "customer string, region string, amount double"


class Enrich(tg.KeyedProcessFunction):
    """Remember each customer's region and add it to their orders."""

    region = tg.ValueState(str)
    spent = tg.ValueState(float, default=0.0)

    def process_element(self, event, ctx) -> Iterator[tuple[str, str, float]]:
        if event.region is not None:
            self.region.update(event.region)
        elif self.region.value() is None:
            ctx.output("unknown", (event.customer, event.amount))
        else:
            self.spent.update(self.spent.value() + event.amount)
            yield event.customer, self.region.value(), event.amount


class Regions(tg.KeyedProcessFunction):
    """Total and number of customers by region."""

    total = tg.ValueState(float, default=0.0)
    customers = tg.MapState(str, int)

    def process_element(self, order, ctx) -> Iterator[tuple[str, float, int]]:
        self.total.update(self.total.value() + order.amount)
        self.customers.put(order.customer, (self.customers.get(order.customer) or 0) + 1)
        yield order.region, self.total.value(), sum(1 for _ in self.customers)


def build(customers, orders, totals=None, unknown=None) -> tg.Job:
    job = tg.Job("orders", parallelism=2)
    moves = job.source("customers", customers).map(lambda c: (c.name, c.region, None), schema=EVENT, name="as-event")
    sales = job.source("orders", orders).map(lambda o: (o.customer, None, o.amount), schema=EVENT, name="as-event")
    enriched = (
        moves.union(sales)
        .key_by("customer")
        .process(
            "enrich",
            Enrich(),
            schema="customer string, region string, amount double",
            side_outputs={"unknown": "customer string, amount double"},
        )
    )
    enriched.key_by("region").process("regions", Regions(), schema="region string, total double, customers int").sink(
        "totals", totals or tg.PrintSink(prefix="total   ")
    )
    enriched.side_output("unknown").sink("rejected", unknown or tg.PrintSink(prefix="unknown "))
    return job


def write_input(folder: Path) -> None:
    for name, columns, batches in (
        ("customers", ("name", "region"), CUSTOMERS),
        ("orders", ("customer", "amount"), ORDERS),
    ):
        (folder / name).mkdir()
        for number, batch in enumerate(batches):
            lines = [json.dumps(dict(zip(columns, row))) for row in batch]
            path = folder / name / f"{number}.json"
            path.write_text("\n".join(lines))
            os.utime(path, (number + 1, number + 1))  # Spark reads files in the order of their modification times


def main() -> None:
    spark = tg.session("orders")
    with tempfile.TemporaryDirectory() as folder:
        write_input(Path(folder))
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        job = build(
            reader.schema("name string, region string").json(f"{folder}/customers"),
            reader.schema("customer string, amount double").json(f"{folder}/orders"),
        )
        print(job.explain())
        job.run(trigger="available-now")
    spark.stop()


if __name__ == "__main__":
    main()
