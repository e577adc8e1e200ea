"""Join two streams whose rows arrive in any order: each side is kept in state, and each row is matched with the other side.

    python examples/join.py

Bids and offers are matched by product. Both lists only grow, so the job takes incremental checkpoints, which store only what
was added since the previous one.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tidegate as tg

# Each inner list is one file and one epoch; both streams share the epochs.
BIDS = [[("tea", "ann", 4)], [("oil", "bob", 9)], [("tea", "eve", 5)]]
OFFERS = [[], [("tea", "zoe", 3)], [("oil", "max", 8), ("tea", "kim", 6)]]

MATCH = "product string, bidder string, bid int, seller string, price int"


class Join(tg.KeyedCoProcessFunction):
    """Match every bid with every offer of its product, in whichever order they arrive."""

    bids = tg.ListState(tuple[str, int])
    offers = tg.ListState(tuple[str, int])

    def process_element1(self, bid, ctx) -> Iterator[tuple[str, str, int, str, int]]:
        self.bids.add((bid.bidder, bid.amount))
        for seller, price in self.offers.get():
            yield bid.product, bid.bidder, bid.amount, seller, price

    def process_element2(self, offer, ctx) -> Iterator[tuple[str, str, int, str, int]]:
        self.offers.add((offer.seller, offer.amount))
        for bidder, amount in self.bids.get():
            yield offer.product, bidder, amount, offer.seller, offer.amount


def build(bids, offers, sink=None) -> tg.Job:
    job = tg.Job("join", parallelism=2)
    left = job.source("bids", bids).key_by("product")
    right = job.source("offers", offers).key_by("product")
    left.connect(right).process("match", Join(), schema=MATCH).sink("out", sink or tg.PrintSink(prefix="match "))
    return job


def write_input(folder: Path) -> None:
    for name, person, batches in (("bids", "bidder", BIDS), ("offers", "seller", OFFERS)):
        (folder / name).mkdir()
        for number, batch in enumerate(batches):
            path = folder / name / f"{number}.json"
            path.write_text("\n".join(json.dumps(dict(zip(("product", person, "amount"), row))) for row in batch))
            os.utime(path, (number + 1, number + 1))  # Spark reads files in the order of their modification times


def main() -> None:
    spark = tg.session("join")
    with tempfile.TemporaryDirectory() as folder:
        write_input(Path(folder))
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        job = build(
            reader.schema("product string, bidder string, amount int").json(f"{folder}/bids"),
            reader.schema("product string, seller string, amount int").json(f"{folder}/offers"),
        )
        where = tg.Checkpointing(dir=f"{folder}/checkpoints", interval="1 s", incremental=True)
        job.run(trigger="available-now", checkpoint=where, state_backend="rocksdb")
    spark.stop()


if __name__ == "__main__":
    main()
