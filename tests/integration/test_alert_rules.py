"""The alert rules as Prometheus itself reads and evaluates them, on series that are written down here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.servers.prometheus import promtool
from tidegate.metrics import catalog as c
from tidegate.metrics.alerts import rules_file
from tidegate.metrics.metric import Metric

JOB = 'instance="h:8081", job="orders"'
HOUR = 120
"""Samples of one hour, one each 30 seconds."""


def series(metric: Metric, labels: str = "") -> str:
    return f"{metric.prometheus_name}{{{JOB}{labels and ', ' + labels}}}"


UP = 'up{instance="h:8081", job="tidegate"}'
ROWS = series(c.SOURCE_RECORDS, 'source="lines"')
RUNNING = series(c.STATE, 'status="RUNNING"')
WATERMARK, RESTARTS, DOWNTIME = series(c.WATERMARK), series(c.RESTARTS), series(c.DOWNTIME)
FAILED, UNPROTECTED, INTERVAL = series(c.CHECKPOINTS_FAILED), series(c.UNPROTECTED_AGE), series(c.CHECKPOINT_INTERVAL)
ERRORS, OLDEST, HELD = series(c.SEND_ERRORS, 'sink="db"'), series(c.OLDEST_WAITING, 'sink="db"'), series(c.HELD_BATCHES)
MEMORY, BUDGET = series(c.MEMORY_USED, 'task="L1-S0"'), series(c.MEMORY_BUDGET, 'task="L1-S0"')
FREE, DISK = series(c.DISK_FREE, 'task="L1-S0"'), series(c.DISK_SIZE, 'task="L1-S0"')

HEALTHY = {
    UP: f"1x{HOUR}", RUNNING: f"1x{HOUR}", ROWS: f"0+100x{HOUR}", WATERMARK: f"1000+30x{HOUR}", RESTARTS: f"0x{HOUR}",
    DOWNTIME: f"0x{HOUR}", FAILED: f"0x{HOUR}", UNPROTECTED: f"5x{HOUR}", INTERVAL: f"10x{HOUR}", ERRORS: f"0x{HOUR}",
    OLDEST: f"8x{HOUR}", HELD: f"0x{HOUR}", MEMORY: f"50x{HOUR}", BUDGET: f"100x{HOUR}", FREE: f"60x{HOUR}",
    DISK: f"100x{HOUR}",
}  # fmt: skip
STOPPED = f"0+100x40 4000x{HOUR}"
"""Rows come for 20 minutes, then no more."""

SCENES: dict[str, tuple[dict[str, str], str, set[str]]] = {
    "all is well": ({}, "60m", set()),
    "the driver is gone": ({UP: f"1x20 0x{HOUR}"}, "11m", {"DriverDown"}),
    "one scrape fails": ({UP: f"1x20 0 1x{HOUR}"}, "11m", set()),
    "the job cannot return to its checkpoint": ({DOWNTIME: f"0x20 30+30x{HOUR}"}, "12m", {"JobRestarting"}),
    "one restart": ({RESTARTS: f"0x20 1x{HOUR}"}, "12m", set()),
    "a restart loop": ({RESTARTS: f"0x20 1+1x{HOUR}"}, "13m", {"RestartLoop"}),
    "a checkpoint fails and the next completes": ({FAILED: f"0x20 1x{HOUR}"}, "12m", set()),
    "checkpoints fail": (
        {FAILED: f"0x20 1+1x{HOUR}", UNPROTECTED: f"5x20 30+30x{HOUR}"}, "10m30s", {"CheckpointsFailing"},
    ),
    "checkpoints fail for minutes": (
        {FAILED: f"0x20 1+1x{HOUR}", UNPROTECTED: f"5x20 30+30x{HOUR}"}, "13m", {"CheckpointsFailing", "CheckpointTooOld"},
    ),
    "a checkpoint does not complete": ({UNPROTECTED: f"5x20 30+30x{HOUR}"}, "13m", {"CheckpointTooOld"}),
    "a long interval": ({UNPROTECTED: f"1700x{HOUR}", INTERVAL: f"600x{HOUR}"}, "60m", set()),
    "the target refuses": ({ERRORS: f"0x20 1x{HOUR}"}, "10m30s", {"TargetRefuses"}),
    "output waits": ({OLDEST: f"8x20 30+30x{HOUR}"}, "17m", {"OutputWaiting"}),
    "no batch is read": ({HELD: f"0x20 1x{HOUR}"}, "12m", {"InputHeld"}),
    "a source stalls": ({ROWS: STOPPED}, "31m", {"SourceStalled"}),
    "a source pauses for five minutes": ({ROWS: STOPPED}, "25m", set()),
    "a source never had a row": ({ROWS: f"0x{HOUR}"}, "60m", set()),
    "the sink holds back the source": ({ROWS: STOPPED, HELD: f"0x40 1x{HOUR}"}, "31m", {"InputHeld"}),
    "the job restarts meanwhile": ({ROWS: STOPPED, RUNNING: f"1x40 0x{HOUR}"}, "31m", set()),
    "the watermark stands still": ({WATERMARK: f"1000+30x20 1600x{HOUR}"}, "25m", {"WatermarkStuck"}),
    "no rows, so no watermark": ({WATERMARK: f"1000+30x20 1600x{HOUR}", ROWS: f"0x{HOUR}"}, "40m", set()),
    "memory is short": ({MEMORY: f"50x20 95x{HOUR}"}, "12m", {"MemoryNearBudget"}),
    "the disk is full": ({FREE: f"60x20 5x{HOUR}"}, "11m", {"DiskNearlyFull"}),
}  # fmt: skip
"""What happens → series that differ from a healthy job, when to look, which alerts fire."""


@pytest.mark.parametrize("scene", SCENES)
def test_alerts_fire_when_they_should_and_only_then(scene: str, tmp_path: Path) -> None:
    changed, at, firing = SCENES[scene]
    (tmp_path / "alerts.yml").write_text(rules_file())
    expected = [{"labels": f'{{alertname="Tidegate{name}"}}', "value": 1} for name in sorted(firing)]
    test = {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in {**HEALTHY, **changed}.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": at,
                "exp_samples": expected,
            }
        ],
    }
    (tmp_path / "test.yml").write_text(
        json.dumps({"rule_files": ["alerts.yml"], "evaluation_interval": "30s", "tests": [test]})
    )
    done = promtool("test", "rules", tmp_path / "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stalled_source_is_named_in_the_alert(tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(rules_file())
    labels = 'ALERTS{alertname="TidegateSourceStalled", alertstate="firing", severity="warning", source="lines", '
    test = {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in {**HEALTHY, ROWS: STOPPED}.items()],
        "promql_expr_test": [
            {"expr": "ALERTS", "eval_time": "31m", "exp_samples": [{"labels": f"{labels}{JOB}}}", "value": 1}]}
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["alerts.yml"], "tests": [test]}))
    done = promtool("test", "rules", tmp_path / "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_the_configuration(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from tidegate.control.cli import main

    token = tmp_path / "token"
    token.write_text("secret")
    written = CliRunner().invoke(main, ["dashboards", "--to", str(tmp_path), "--token-file", str(token)])
    assert written.exit_code == 0, written.output
    for check in (
        ("check", "rules", tmp_path / "tidegate-alerts.yml"),
        ("check", "config", tmp_path / "prometheus.yml"),
    ):
        done = promtool(*check)
        assert done.returncode == 0, done.stdout + done.stderr
