"""Check payments against rules that change while the job runs.

    python examples/alerts.py

Rules are broadcast to every task, payments are keyed by customer. A payment that cannot be parsed becomes a dead letter
instead of ending the job.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tidegate as tg

# Each inner list is one file and one epoch. Streams are not ordered within an epoch, so rules come one epoch earlier.
RULES = [[("large", 100.0, 1), ("often", 10.0, 3)], [], [("large", 500.0, 1)], []]
PAYMENTS = [
    [],
    [("ann", "120"), ("bob", "20"), ("bob", "20"), ("bob", "much")],
    [("bob", "20")],
    [("ann", "120"), ("eve", "700")],
]


@dataclass
class Rule:
    limit: float
    times: int


class Alerts(tg.KeyedBroadcastProcessFunction):
    """Alert when a customer has exceeded the limit of a rule as often as the rule allows, within a day."""

    rules = tg.BroadcastState(str, Rule)
    broken = tg.MapState(str, int, ttl="1 d")

    def process_element(self, payment, ctx) -> Iterator[tuple[str, str]]:
        amount = float(payment.amount)
        for name, rule in self.rules.items():
            if amount > rule.limit:
                times = (self.broken.get(name) or 0) + 1
                self.broken.put(name, times)
                if times == rule.times:
                    yield payment.customer, name

    def process_broadcast_element(self, update, ctx) -> None:
        self.rules.put(update.name, Rule(update.limit, update.times))
        ctx.apply_to_keyed_state("broken", lambda customer, broken: broken.remove(update.name))


def build(payments, rules, alerts=None, unreadable=None) -> tg.Job:
    job = tg.Job("alerts", parallelism=2)
    found = (
        job.source("payments", payments)
        .key_by("customer")
        .connect(job.source("rules", rules).broadcast())
        .process("alerts", Alerts(), schema="customer string, rule string", on_error=tg.dead_letter("unreadable"))
    )
    found.sink("out", alerts or tg.PrintSink(prefix="alert      "))
    letters = found.side_output("unreadable").map(
        lambda letter: (letter.key, letter.error), schema="customer string, error string"
    )
    letters.sink("letters", unreadable or tg.PrintSink(prefix="unreadable "))
    return job


def write_input(folder: Path) -> None:
    for name, columns, batches in (
        ("rules", ("name", "limit", "times"), RULES),
        ("payments", ("customer", "amount"), PAYMENTS),
    ):
        (folder / name).mkdir()
        for number, batch in enumerate(batches):
            path = folder / name / f"{number}.json"
            path.write_text("\n".join(json.dumps(dict(zip(columns, row))) for row in batch))
            os.utime(path, (number + 1, number + 1))  # Spark reads files in the order of their modification times


def main() -> None:
    spark = tg.session("alerts")
    with tempfile.TemporaryDirectory() as folder:
        write_input(Path(folder))
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        job = build(
            reader.schema("customer string, amount string").json(f"{folder}/payments"),
            reader.schema("name string, limit double, times int").json(f"{folder}/rules"),
        )
        print(job.explain())
        job.run(trigger="available-now")
    spark.stop()


if __name__ == "__main__":
    main()
