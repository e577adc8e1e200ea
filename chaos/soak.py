"""`python -m chaos soak`: thousands of short epochs with checkpoints; nothing may grow that the state does not need."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from chaos.counted import Add, Number
from chaos.tally import Feed, read_output, verify, visible
from tidegate.testing.processes import descendants

SETTLE_S = 300.0
"""How long the last rows may take to come out."""
SUMMARY = "Run short epochs with checkpoints for a long time, and watch disk, memory, open files and files in storage."


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epochs", type=int, default=3000)
    parser.add_argument("--backend", default="rocksdb", choices=("rocksdb", "hashmap"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")


def run(options: argparse.Namespace) -> int:
    import tidegate as tg

    spark = tg.session("soak", master="local[2,4]", config={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    samples: list[dict[str, int]] = []
    with tempfile.TemporaryDirectory(prefix="tidegate-soak-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        feed = Feed(folder)
        feed.write(20)
        job = tg.Job("soak", parallelism=2)
        rows = spark.readStream.schema("k int, i bigint, v bigint").option("maxFilesPerTrigger", 1)
        one = job.source("rows", rows.json(str(folder / "in"))).key_by("k")
        marked = one.process(
            "number", Number(False), schema="b bigint, i bigint, v bigint, k int, n bigint, mark string"
        )
        schema = "b bigint, i bigint, k int, n bigint, m bigint, total bigint, mark string"
        marked.key_by("b").process("add", Add(), schema=schema).sink("out", tg.FileSink(str(folder / "out")))
        running = job.start(
            spark, state_backend=options.backend, options={"local_dir": str(folder / "local")},
            checkpoint=tg.Checkpointing(dir=str(folder / "checkpoints"), interval="1 s", incremental=True),
        )  # fmt: skip
        begun = time.monotonic()
        seen = 0
        while seen < options.epochs:
            if running.await_termination(0.05):
                break
            done = running.reports[-1].epoch.number if running.reports else 0
            if feed.files - done < 5:
                feed.write(20)
            if done - seen >= max(1, options.epochs // 50) or done >= options.epochs:
                seen = done
                samples.append(sample(folder, seen))
                say(f"epoch {seen}: {samples[-1]}")
        latest = time.monotonic() + SETTLE_S
        while visible(folder) < len(feed.rows) and time.monotonic() < latest:
            time.sleep(0.5)
        running.stop()
        verdict = verify(feed.rows, read_output(folder))
        report = running.checkpoints
        assert report is not None
        completed = report.counts.completed
    spark.stop()
    growth = {key: _growth([s[key] for s in samples]) for key in samples[0] if key != "epoch"}
    result: dict[str, Any] = {
        "epochs": seen, "checkpoints": completed, "seconds": round(time.monotonic() - begun, 1), "lost": verdict.lost,
        "duplicated": verdict.duplicated, "wrong": list(verdict.wrong), "growth": growth, "samples": samples,
    }  # fmt: skip
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    say(f"{seen} epochs, {completed} checkpoints; last quarter / second quarter: {growth}")
    flat = all(value <= LIMITS[key] for key, value in growth.items())
    return 0 if flat and verdict.exact else 1


LIMITS = {"memory_mb": 1.15, "open_files": 1.1, "local_files": 1.25, "local_mb": 1.5, "stored_files": 1.25}
"""Last quarter against second quarter. The log of a job is not counted: it grows by a small entry with each checkpoint
until a second folder is full, and then loses the first one."""


def sample(folder: Path, epoch: int) -> dict[str, int]:
    """What this process, its JVM and its Python workers hold, and what lies on disk."""
    pids = [os.getpid(), *descendants(os.getpid())]
    local = _files(folder / "local")
    stored = [path for path in _files(folder / "checkpoints") if "entries" not in path.parts]
    return {
        "epoch": epoch,
        "memory_mb": sum(map(_resident_kb, pids)) // 1024,
        "open_files": sum(map(_open_files, pids)),
        "local_files": len(local),
        "local_mb": sum(_size(path) for path in local) >> 20,
        "stored_files": len(stored),
    }


def _files(folder: Path) -> list[Path]:
    """All below it, as far as they stay while one looks."""
    return [Path(place, name) for place, _, names in os.walk(folder) for name in names]


def _growth(values: list[int]) -> float:
    quarter = max(1, len(values) // 4)
    before = statistics.mean(values[quarter : 2 * quarter] or values[:1])
    return round(statistics.mean(values[-quarter:]) / max(before, 1), 3)


def _resident_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)


def _open_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
