"""Checkpoints over a slow line: the upload takes what the line takes, and epochs go on meanwhile.

By hand, as large as specified: `TIDEGATE_SLOW_MB=200 TIDEGATE_SLOW_MB_PER_S=5 pytest tests/integration/test_slow_storage.py`.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest

import tidegate as tg
from tests.integration.inputs import write_batches
from tests.servers.proxy import FaultyProxy, Rule, Throttle
from tests.servers.seaweedfs import S3Address

MEGABYTES = int(os.environ.get("TIDEGATE_SLOW_MB", "16"))
SPEED = float(os.environ.get("TIDEGATE_SLOW_MB_PER_S", "2"))
VALUE_BYTES = 100_000


class Hold(tg.KeyedProcessFunction):
    """Keeps bytes that no one can compress."""

    held = tg.ValueState(bytes)

    def process_element(self, row, ctx):
        if row.fill:
            self.held.update(os.urandom(VALUE_BYTES))
        yield (row.k,)


@pytest.mark.feature("C2", "C11", "C24")
def test_epochs_continue_while_a_checkpoint_is_written_to_slow_storage(
    spark, tmp_path: Path, s3_server: S3Address, s3_proxy: FaultyProxy
) -> None:
    keys = MEGABYTES * 1_000_000 // VALUE_BYTES
    write_batches(tmp_path / "in", "k int, fill boolean", [[(k, True) for k in range(keys)]])
    job = tg.Job("slow", parallelism=2)
    rows = spark.readStream.schema("k int, fill boolean").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    job.source("rows", rows).key_by("k").process("hold", Hold(), schema="k int").sink("out", tg.DiscardSink())
    address = s3_server.behind(s3_proxy.port).options()
    # Two tasks share the line.
    s3_proxy.script(Rule(Throttle(SPEED * 1e6 / 2), method="PUT", path=".*/shared/.*", times=None))
    run = job.start(
        spark,
        state_backend="rocksdb",
        checkpoint=tg.Checkpointing(
            dir=f"s3://{s3_server.bucket}/{uuid.uuid4().hex}", interval="1 s", incremental=True
        ),
        options={**s3_options(address), "local_dir": str(tmp_path / "local")},
    )
    try:
        number, latest = 1, time.monotonic() + 4 * MEGABYTES / SPEED + 90
        while not _uploaded(run, keys * VALUE_BYTES):
            assert time.monotonic() < latest, "the checkpoint did not complete"
            write_batches(tmp_path / "in", "k int, fill boolean", [[(k, False) for k in range(10)]], number)
            number += 1
            time.sleep(0.3)
        done = _uploaded(run, keys * VALUE_BYTES)
        line_ms = 1000 * MEGABYTES / SPEED
        during = [r for r in run.reports if r.rows_in == 10]
        assert done.end_to_end_ms < 1.6 * line_ms + 5_000, f"{done.end_to_end_ms} ms for a line of {line_ms:.0f} ms"
        assert len(during) >= line_ms / 1000 / 3, f"only {len(during)} epochs in {line_ms:.0f} ms"
    finally:
        s3_proxy.script()
        run.cancel()


def s3_options(address: dict[str, str]) -> dict[str, str]:
    """Under Flink's keys."""
    names = {
        "endpoint": "endpoint",
        "access_key_id": "access-key",
        "secret_access_key": "secret-key",
        "region": "region",
    }
    return {f"s3.{names[key]}": value for key, value in address.items()}


def _uploaded(run, size: int):
    return next((s for s in run.checkpoints.history() if s.status == "COMPLETED" and s.state_size_bytes > size), None)
