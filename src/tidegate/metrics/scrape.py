"""The configuration with which Prometheus reads the metrics of jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence

RULES_FILE = "tidegate-alerts.yml"


def scrape_config(targets: Sequence[str], token_file: str, *, evaluation_s: int, scrape_s: int) -> str:
    """Return a complete `prometheus.yml`. Labels of the job's own samples win (`honor_labels`): `job` is the name of the job."""
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
