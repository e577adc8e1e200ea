"""Windows over a stream out of order, with a failure at half of the input: every sum as if nothing had happened.

As Flink's EventTimeWindowCheckpointingITCase: the failure comes only when a checkpoint holds state, and once.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tidegate as tg
from tests.integration.inputs import stream

SCHEMA = "k string, v int, at bigint, ts timestamp"
RESULT = "k string, total bigint, start bigint, end bigint"
BATCHES, ROWS, DISORDER_S, GAP_S = 14, 40, 20, 3
END_S = 100_000


class Sums(tg.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, sum(row.v for row in elements), context.window().start // 1000, context.window().end // 1000


class FailsAtHalf:
    """A function for `map`: raises at one row, if a checkpoint is there, until the epoch was given up once."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self, row):
        folder = Path(self.folder)
        if row.v == 7777 and any(folder.glob("ckpt/*/chk-*/_metadata")):
            tried = folder / "tried"
            tried.mkdir(exist_ok=True)
            if len(list(tried.iterdir())) < 2:
                (tried / uuid.uuid4().hex).touch()
                raise ConnectionError("at half of the input")
        return row


def events(seed: int) -> list[list[tuple[str, int, int]]]:
    """Batches of key, value and second. Times go forward and are out of order by less than the watermark allows."""
    chance = random.Random(seed)
    made = []
    for batch in range(BATCHES):
        rows = [
            (chance.choice("abcde"), chance.randrange(100), batch * 30 + chance.randrange(30 + DISORDER_S))
            for _ in range(ROWS)
        ]
        if batch == BATCHES // 2:
            rows[ROWS // 2] = ("a", 7777, batch * 30)
        made.append(rows)
    return [*made, [(key, 0, END_S) for key in "abcde"]]


def tumbling(at: int) -> list[tuple[int, int]]:
    return [(at // 20 * 20, at // 20 * 20 + 20)]


def sliding(at: int) -> list[tuple[int, int]]:
    return [(start, start + 30) for start in range(at // 10 * 10, at - 30, -10)]


def closed_form(rows, windows_of) -> list[tuple[str, int, int, int]]:
    sums: dict[tuple[str, int, int], int] = defaultdict(int)
    for key, value, at in rows:
        for start, end in windows_of(at):
            sums[key, start, end] += value
    return sorted((key, total, start, end) for (key, start, end), total in sums.items())


def sessions(rows) -> list[tuple[str, int, int, int]]:
    found = []
    for key in "abcde":
        groups: list[list[tuple[int, int]]] = []
        for at, value in sorted((at, value) for k, value, at in rows if k == key):
            if groups and at - groups[-1][-1][0] <= GAP_S:
                groups[-1].append((at, value))
            else:
                groups.append([(at, value)])
        found += [(key, sum(v for _, v in group), group[0][0], group[-1][0] + GAP_S) for group in groups]
    return sorted(found)


def written(folder: Path) -> list[tuple[str, int, int, int]]:
    rows = [json.loads(line) for path in folder.glob("*.json") for line in path.read_text().splitlines()]
    return sorted((row["k"], row["total"], row["start"], row["end"]) for row in rows)


def bounds(row):
    return row.k, row.total, int(row.window_start.timestamp()), int(row.window_end.timestamp())


@pytest.mark.parametrize(
    ("backend", "incremental"), [pytest.param("hashmap", False, marks=pytest.mark.slow), ("rocksdb", True)]
)
@pytest.mark.feature("A4", "A5", "B2", "H1")
def test_windows_are_exact_through_a_failure_at_half_of_the_input(spark, tmp_path, backend, incremental):
    batches = events(seed=len(backend))
    source = stream(
        spark, tmp_path / "in", SCHEMA,
        [[(k, v, at, datetime.fromtimestamp(at, UTC)) for k, v, at in batch] for batch in batches],
    )  # fmt: skip
    job = tg.Job("half", parallelism=3)
    rows = job.source("rows", source, event_time="ts", out_of_orderness=f"{30 + DISORDER_S} s")
    keyed = rows.map(FailsAtHalf(tmp_path), schema=SCHEMA).key_by("k")
    per_twenty = keyed.window(tg.TumblingEventTimeWindows.of("20 s")).aggregate("tumbling", total=tg.sum("v"))
    outputs = {
        "tumbling": per_twenty.map(bounds, schema=RESULT),
        "sliding": keyed.window(tg.SlidingEventTimeWindows.of("30 s", "10 s")).process(
            "sliding", Sums(), schema=RESULT
        ),
        "sessions": keyed.window(tg.EventTimeSessionWindows.with_gap(f"{GAP_S} s")).process(
            "sessions", Sums(), schema=RESULT
        ),
    }
    for name, output in outputs.items():
        output.sink(f"{name}-out", tg.FileSink(str(tmp_path / name)))
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "ckpt"), interval="200 ms", incremental=incremental)
    job.run(
        spark, trigger="available-now", checkpoint=checkpoint, state_backend=backend,
        options={"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 3},
    )  # fmt: skip
    assert len(list((tmp_path / "tried").iterdir())) == 2
    fed = [row for batch in batches[:-1] for row in batch]
    assert written(tmp_path / "tumbling") == closed_form(fed, tumbling)
    assert written(tmp_path / "sliding") == closed_form(fed, sliding)
    assert written(tmp_path / "sessions") == sessions(fed)
