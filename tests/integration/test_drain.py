"""A bounded run with checkpoints ends the job: its open windows close, once, whenever the driver dies."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.integration.inputs import write_batches
from tests.integration.test_time import BATCHES as EVENTS
from tests.integration.test_time import RESULT, SCHEMA, rows
from tests.integration.test_time import windows as per_ten_seconds
from tidegate.checkpoint.job_log.start import StartRefused
from tidegate.core import faults
from tidegate.core.errors import TidegateError
from tidegate.core.times import MAX_WATERMARK
from tidegate.savepoint.snapshot import StoredSnapshot

ON_TIME = [
    rows(("a", 10, 101)),
    rows(("b", 20, 102)),
    rows(("a", 30, 103)),
]
"""Rows of windows that are open as long as event time has not ended."""


def windows(spark: Any, folder: Path) -> tg.Job:
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    job = per_ten_seconds(source, tg.FileSink(str(folder / "out")), tg.FileSink(str(folder / "late")))
    job.name = "windows"
    return job


def choices(folder: Path) -> dict[str, Any]:
    """Checkpoints are due all the time; none of the drain is taken before the last."""
    checkpoint = tg.Checkpointing(dir=str(folder / "ckpt"), interval="50 ms")
    return {"trigger": "available-now", "checkpoint": checkpoint, "options": {"local_dir": str(folder / "local")}}


def written(folder: Path) -> list[tuple[str, int]]:
    lines = [line for path in (folder / "out").glob("*.json") for line in path.read_text().splitlines()]
    return sorted((row["k"], row["total"]) for row in map(json.loads, lines))


def drained(folder: Path, id: int) -> str | None:
    """The checkpoint that is being published, if it is of the end of event time. An earlier one may be published in a drain."""
    written = (folder / "ckpt" / "windows").glob(f"chk-{id}*/_metadata")
    newest = str(max(written, key=lambda path: path.stat().st_mtime_ns).parent)
    return newest if StoredSnapshot.open(newest).metadata.watermark_ms == MAX_WATERMARK else None


@pytest.mark.feature("C50", "C51")
def test_a_drained_job_has_emitted_all_windows_and_its_last_checkpoint_has_no_state_but_committables(spark, tmp_path):
    write_batches(tmp_path / "in", SCHEMA, EVENTS[:3])
    windows(spark, tmp_path).run(spark, **choices(tmp_path))
    assert len(written(tmp_path)) == 3
    write_batches(tmp_path / "in", SCHEMA, EVENTS[3:4], first=3)
    left = []

    def look(point: str, **context: Any) -> None:
        """The last checkpoint is in the log. Its output waits, and it is deleted when the job has finished."""
        if point == "publish.2-entry" and (newest := drained(tmp_path, context["id"])) is not None:
            states = tg.Savepoint.open(newest)
            kept = {info.state: states.state("sums", info.state).to_arrow().num_rows for info in states.states()}
            waiting = StoredSnapshot.open(newest).metadata.committables
            left.append((kept, {str(each.sink) for each in waiting}))

    faults.arm(look)
    try:
        windows(spark, tmp_path).run(spark, drain=True, **choices(tmp_path))
    finally:
        faults.arm(None)
    assert written(tmp_path) == sorted((k, total) for k, _, _, total in RESULT)
    ((kept, waiting),) = left
    assert "on_timer" in kept
    assert (set(kept.values()), waiting) == ({0}, {"out"})
    assert not list((tmp_path / "ckpt" / "windows").glob("chk-*"))
    with pytest.raises(StartRefused, match="has finished"):
        windows(spark, tmp_path).run(spark, drain=True, **choices(tmp_path))


class Hung:
    """A driver that hangs at one step of its drain while its heartbeat moves. Another one takes the job over by force."""

    def __init__(self, spark: Any, folder: Path, point: str, *, force: bool) -> None:
        self._point, self._folder = point, folder
        self._reached, self._go = threading.Event(), threading.Event()
        faults.arm(self._wait)
        self.run = windows(spark, folder).start(spark, drain=True, force=force, **choices(folder))
        assert self._reached.wait(120), point
        faults.arm(None)

    def _wait(self, point: str, **context: Any) -> None:
        if point != self._point or self._reached.is_set():
            return
        if not point.startswith("publish") or drained(self._folder, context["id"]) is not None:
            self._reached.set()
            self._go.wait()

    def wake(self) -> None:
        """It finds that the job is not its own any more, or that the job has ended."""
        self._go.set()
        with suppress(TidegateError):
            assert self.run.await_termination(300)


@pytest.mark.feature("C50", "C51")
@pytest.mark.timeout(1800)
def test_a_driver_that_is_lost_at_any_step_of_its_drain_has_emitted_each_window_once(spark, tmp_path):
    """Rows that arrive after it are on time until the last checkpoint is in the log, and are not read from then on."""
    write_batches(tmp_path / "in", SCHEMA, EVENTS[:4])
    lost: list[Hung] = []
    for number, point in enumerate(("drain.1-begun", "drain.2-passed", "publish.1-metadata")):
        lost.append(Hung(spark, tmp_path, point, force=bool(lost)))
        write_batches(tmp_path / "in", SCHEMA, [ON_TIME[number]], first=4 + number)
    lost.append(Hung(spark, tmp_path, "publish.2-entry", force=True))
    write_batches(tmp_path / "in", SCHEMA, [rows(("a", 1_000, 104))], first=7)
    lost.append(Hung(spark, tmp_path, "release.2-committed", force=True))
    windows(spark, tmp_path).run(spark, drain=True, force=True, **choices(tmp_path))
    expected = sorted([*((k, total) for k, _, _, total in RESULT), ("a", 40), ("b", 20)])
    assert written(tmp_path) == expected
    for each in lost:
        each.wake()
    assert written(tmp_path) == expected
    assert not list((tmp_path / "late").glob("*.json"))
