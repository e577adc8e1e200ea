"""`tidegate dashboards`: a Grafana dashboard and Prometheus alert rules for jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import BadOption, Line, Output
from tidegate.core.durations import duration_ms

DASHBOARD_FILE = "tidegate-dashboard.json"
RULES_FILE = "tidegate-alerts.yml"
CONFIG_FILE = "prometheus.yml"


@click.command("dashboards")
@click.option("--to", "directory", required=True, type=click.Path(file_okay=False), help="Where to write the files.")
@click.option(
    "--target", "targets", multiple=True, metavar="HOST:PORT", help="Address of a job's REST server; repeatable."
)
@click.option(
    "--token-file",
    default="/etc/prometheus/tidegate-token",
    show_default=True,
    help="File with the token of those servers.",
)
@click.option("--evaluation-interval", default="30 s", show_default=True, help="How often alert rules are evaluated.")
@click.option("--scrape-interval", default="15 s", show_default=True, help="How often metrics are read.")
@click.option("--checkpoint-intervals", default=3, show_default=True, help="A checkpoint older than that is too old.")
@click.option("--output-wait", default="5 min", show_default=True, help="How long output may wait for its target.")
@click.option("--stall", default="10 min", show_default=True, help="How long a source may deliver no row.")
@click.option("--runbook", default="", metavar="URL", help="Address of your copy of the runbook, for links in alerts.")
@with_output
def command(  # noqa: PLR0913 one parameter for each option
    out: Output,
    directory: str,
    targets: tuple[str, ...],
    token_file: str,
    evaluation_interval: str,
    scrape_interval: str,
    checkpoint_intervals: int,
    output_wait: str,
    stall: str,
    runbook: str,
) -> None:
    """Write a Grafana dashboard, alert rules for Prometheus, and a configuration with which it reads jobs."""
    from tidegate.metrics.alerts import AlertSettings, rules_file
    from tidegate.metrics.grafana import dashboard_file

    evaluation_s = _seconds(evaluation_interval)
    scrape_s = _seconds(scrape_interval)
    try:
        settings = AlertSettings(
            evaluation_s=evaluation_s,
            checkpoint_intervals=checkpoint_intervals,
            output_wait_s=_seconds(output_wait),
            stall_s=_seconds(stall),
            runbook=runbook,
        )
    except ValueError as error:
        raise BadOption(str(error)) from None
    addresses = targets or ("127.0.0.1:8081",)
    files = {
        DASHBOARD_FILE: dashboard_file(),
        RULES_FILE: rules_file(settings),
        CONFIG_FILE: _scrape_config(addresses, token_file, evaluation_s=evaluation_s, scrape_s=scrape_s),
    }

    # All texts exist before the first file is written: a wrong option leaves no half of a set.
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadOption(f"The files cannot be written to {folder}: {error}.") from None
    out.show({"files": [str(folder / name) for name in files]}, *(Line(str(folder / name)) for name in files))


def _seconds(text: str) -> int:
    """Return a duration in whole seconds, the unit of the intervals in Prometheus' files."""
    try:
        ms = duration_ms(text)
    except ValueError as error:
        raise BadOption(str(error)) from None
    if ms < 1000 or ms % 1000:
        raise BadOption(f"{text!r} is not a whole number of seconds.")
    return ms // 1000


def _scrape_config(targets: Sequence[str], token_file: str, *, evaluation_s: int, scrape_s: int) -> str:
    """Return a complete `prometheus.yml`. Labels of the job's own samples win (`honor_labels`): `job` is the name of the job."""
    # A JSON string is a YAML string, too, whatever the address or the path contains.
    listed = ", ".join(json.dumps(target) for target in targets)
    return f"""global:
  scrape_interval: {scrape_s}s
  evaluation_interval: {evaluation_s}s

rule_files:
  - {RULES_FILE}

scrape_configs:
  - job_name: tidegate
    honor_labels: true
    authorization:
      credentials_file: {json.dumps(token_file)}
    static_configs:
      - targets: [{listed}]
"""
