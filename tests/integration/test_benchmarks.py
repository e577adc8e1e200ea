"""The benchmarks run from the command line and write what they promise."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.sparks import ROOT


def test_keyed_count_writes_its_figures_and_ratios(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "keyed-count", "--quick", "--only", "bare,spark-sql"]
    told = subprocess.run([*command, "--json", tmp_path / "out.json"], cwd=ROOT, capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert {"rate bare", "rate spark-sql", "epoch of 1000 rows bare"} == set(report["figures"])
    assert report["ratios"]["bare / Spark SQL"]["value"] > 0
    assert report["machine"]["cores"] >= 1
    assert "bare / Spark SQL" in told.stdout


def test_savepoint_takes_its_ratios_against_a_plain_copy(tmp_path):
    """Every contestant runs, on a megabyte: that shows that it works, and nothing about speed."""
    command = [sys.executable, "-m", "benchmarks", "savepoint", "--quick", "--megabytes", "1"]
    told = subprocess.run([*command, "--json", tmp_path / "out.json"], cwd=ROOT, capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    ratios = json.loads((tmp_path / "out.json").read_text())["ratios"]
    wanted = {name: ratio["wanted"] for name, ratio in ratios.items() if name.endswith("plain copy")}
    assert not any(ratio["at_most"] for ratio in ratios.values())
    assert wanted == {
        "native write / plain copy": 0.7,
        "native restore / plain copy": 0.7,
        "canonical write / plain copy": 0.25,
        "canonical restore / plain copy": 0.25,
        "rescale 4 to 8 / plain copy": 0.5,
        "rescale 8 to 4 / plain copy": 0.5,
    }


def test_release_compares_one_call_and_two_workers_with_a_call_per_slot_and_epoch(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "release", "--quick", "--only", "postgres"]
    told = subprocess.run([*command, "--json", tmp_path / "out.json"], cwd=ROOT, capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert set(report["figures"]) == {
        f"postgres, 8 slots: {how}" for how in ("call per slot and epoch", "one call", "two workers")
    }
    ratio = report["ratios"]["postgres, 8 slots: two workers / call per slot and epoch"]
    assert ratio["value"] > 0
    assert (ratio["wanted"], ratio["at_most"]) == (4, False)
    assert ">= 4" in told.stdout


def test_coordinator_runs_without_spark_and_reaches_the_goals_of_a_small_job(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "coordinator", "--quick"]
    told = subprocess.run([*command, "--json", tmp_path / "out.json"], cwd=ROOT, capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    ratios = json.loads((tmp_path / "out.json").read_text())["ratios"]
    assert ratios["requests of a start"]["reached"]
    assert any("epochs waiting: assignments of a backlog" in name for name in ratios)


def test_latency_reports_percentiles_and_where_the_time_goes(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "latency", "--quick"]
    chosen = ["--only", "plain at least once,changelog every epoch"]
    told = subprocess.run(
        [*command, *chosen, "--json", tmp_path / "out.json"], cwd=ROOT, capture_output=True, text=True
    )

    assert told.returncode == 0, told.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    ours = "500 rows/s, changelog every epoch"
    assert {f"{ours}: {which}" for which in ("p50", "p95", "p99", "epoch")} < set(report["figures"])
    assert {name: (each["wanted"], each["at_most"]) for name, each in report["ratios"].items()} == {
        f"{ours}: p99 / plain": (1.5, True),
        f"{ours}: p99 / epoch": (3, True),
    }
    assert set(report["steps_ms"]) == {ours}
    assert "waits for its epoch" in told.stdout


def test_memory_compares_resident_memory_with_the_budget(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "memory", "--quick", "--seconds", "2"]
    told = subprocess.run([*command, "--json", tmp_path / "out.json"], cwd=ROOT, capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    ratio = report["ratios"]["resident / (base + budget)"]
    assert (ratio["wanted"], ratio["at_most"]) == (1.15, True)
    assert 0.3 < ratio["value"] < 1.5
    assert report["ratios"]["rate, budget / unlimited"]["value"] > 0
    assert {"budget, resident", "unlimited, resident", "budget, write cache"} < set(report["figures"])


def test_skew_compares_two_stages_with_one(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "skew", "--quick", "--only", "running-two-stages,running-one-stage"]
    told = subprocess.run([*command, "--json", tmp_path / "out.json"], cwd=ROOT, capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert set(report["figures"]) == {"rate running-two-stages", "rate running-one-stage"}
    ratio = report["ratios"]["running: two stages / one"]
    assert ratio["value"] > 0
    assert (ratio["wanted"], ratio["at_most"]) == (3, False)


def test_async_calls_are_compared_with_what_their_capacity_allows(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "async", "--quick", "--only", "bare,async,ordered,map"]
    told = subprocess.run([*command, "--json", tmp_path / "out.json"], cwd=ROOT, capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    names = [f"async, 10 at a time, {order}" for order in ("unordered", "ordered")]
    others = ("asyncio without Spark, 10 at a time", "map, one at a time")
    assert set(report["figures"]) == {f"rate {name}" for name in (*names, *others)}
    assert {name: ratio["wanted"] for name, ratio in report["ratios"].items()} == {
        "async, 10 at a time, unordered / capacity by latency": 0.8,
        "async, 10 at a time, ordered / capacity by latency": None,
        "map, one at a time / capacity by latency": None,
        "async / without Spark": 0.8,
        "async / map": None,
    }
    tasks = report["size"]["tasks"]
    assert all(seen["most"] <= 10 * tasks and seen["errors"] for name in names for seen in report["server"][name])


def test_restore_compares_three_snapshots_over_three_ways(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "restore", "--quick", "--megabytes", "1"]
    told = subprocess.run([*command, "--json", tmp_path / "out.json"], cwd=ROOT, capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    ways = ("local disk", "S3 server", "S3 server over 20 MB/s")
    snapshots = ("incremental checkpoint", "full checkpoint", "canonical savepoint")
    assert set(report["figures"]) == {f"{way}: {snapshot}" for way in (*ways, "stored") for snapshot in snapshots}
    assert min(report["read_mb"].values()) > 0
    assert report["stored_files"]["incremental checkpoint"] > 1
    assert report["command"] == "python -m benchmarks restore --quick --megabytes 1"
    assert report["reduced"] == {"quick": True, "megabytes": 1}
