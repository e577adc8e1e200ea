"""How metrics are exported. Flink has reporters instead, which are Java classes."""

from __future__ import annotations

from tidegate.config.choices import MetricNaming
from tidegate.config.option import Option, enum

TITLE = "Metrics"

NAMING: Option[MetricNaming] = Option(
    "metrics.reporter.prom.naming",
    enum(MetricNaming),
    MetricNaming.TIDEGATE,
    "FLINK: `/metrics` has every metric a second time under the name that Flink's Prometheus reporter gives it "
    "(`flink_jobmanager_job_lastCheckpointDuration`), in Flink's units, for dashboards made for Flink.",
)
