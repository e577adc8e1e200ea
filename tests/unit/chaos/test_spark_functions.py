"""The functions that number rows of the tormented job, without a JVM: every row once, in spite of a change of parallelism."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import tidegate as tg
from chaos.spark_functions import numbered
from chaos.tally import verify
from tidegate.testing import frame, harness


@pytest.mark.parametrize("kind", ["stateful-processor", "group-state"])
def test_every_row_is_emitted_once_by_a_timer(kind):
    rows = [(i * 7 % 5, i, i % 10) for i in range(300)]

    def timed(k, i, v):
        return k, i, v, datetime.fromtimestamp(1_000_000 + i, UTC)

    source = tg.Job("job").source("in", frame("k int, i bigint, v bigint, t timestamp"), event_time="t")
    stream = numbered(kind, source.key_by("k"), unique=False)
    with harness(stream, parallelism=2) as h:
        for first in range(0, 200, 20):
            h.process(*[timed(*row) for row in rows[first : first + 20]])
            h.advance_watermark((1_000_000 + first - 50) * 1000)
        some, kept = h.output(), h.snapshot()
    with harness(stream, parallelism=3, restore=kept) as h:
        h.process(*[timed(*row) for row in rows[200:]], timed(-1, 9_000_000, 0))
        h.advance_watermark(9_000_000_000)
        rest = h.output()

    buckets: dict[int, list[int]] = {}
    out = []
    for row in [*some, *rest]:
        values = buckets.setdefault(row.b, [])
        values.append(row.v)
        out.append({**row._asdict(), "m": len(values), "total": sum(values)})
    assert some
    assert rest
    assert verify(rows, out).exact
