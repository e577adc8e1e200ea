"""The names of metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import metrics as docs
from tidegate.metrics import catalog
from tidegate.metrics.catalog import METRICS
from tidegate.metrics.metric import Kind


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (catalog.LAST_CHECKPOINT_DURATION, "tidegate_job_last_checkpoint_duration_seconds"),
        (catalog.LAST_CHECKPOINT_SIZE, "tidegate_job_last_checkpoint_size_bytes"),
        (catalog.CHECKPOINTS_COMPLETED, "tidegate_job_number_of_completed_checkpoints_total"),
        (catalog.LAST_CHECKPOINT_COMPLETED, "tidegate_job_last_checkpoint_completed_timestamp_seconds"),
        (catalog.BUSY, "tidegate_task_busy_time_ratio"),
        (catalog.START_DELAY, "tidegate_task_checkpoint_start_delay_seconds"),
        (catalog.RECORDS_IN_RATE, "tidegate_operator_num_records_in_per_second"),
    ],
)
def test_a_prometheus_name_follows_from_flinks(metric, name):
    assert metric.prometheus_name == name


def test_prometheus_names_are_unique_and_valid():
    names = [metric.prometheus_name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"tidegate_[a-z0-9_]+", name)] == []


def test_counters_and_only_they_end_in_total():
    assert {m.prometheus_name.endswith("_total") == (m.kind is Kind.COUNTER) for m in METRICS} == {True}


def test_every_metric_explains_itself():
    assert [metric.name for metric in METRICS if not metric.help.endswith(".")] == []


def test_the_page_lists_every_metric():
    page = Path(__file__).parents[3] / "docs" / "operations" / "metrics.md"
    assert page.read_text() == docs.page(), "run: python -m tests.pages.metrics > docs/operations/metrics.md"
