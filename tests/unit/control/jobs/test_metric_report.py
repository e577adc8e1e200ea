"""The ids of metrics in Flink's form."""

from __future__ import annotations

import pytest

from tidegate.control.jobs.metric_report import aggregated_metrics, of_job, of_operators, of_tasks, value_text
from tidegate.graph.event_times import split_name
from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample


def test_a_job_has_a_metric_for_each_status_and_one_for_each_outcome() -> None:
    found = of_job(
        [
            Sample(catalog.STATE, 1, {"status": "RUNNING"}),
            Sample(catalog.COMMITS, 3, {"outcome": "committed"}),
            Sample(catalog.EPOCHS, 7),
            Sample(catalog.RECORDS_IN, 5, {"operator": "n"}),
        ]
    )
    assert found == {"runningState": 1, "numCommits.committed": 3, "epoch.numEpochs": 7}


def test_metrics_of_operators_are_those_of_the_vertex() -> None:
    samples = [
        Sample(catalog.RECORDS_IN, 5, {"operator": "n"}),
        Sample(catalog.RECORDS_IN, 6, {"operator": "other"}),
        Sample(catalog.EVENT_TIME_LAG, 80, {"source": split_name("orders", "p0")}),
        Sample(catalog.OUTPUT_WAITING, 2, {"sink": "out"}),
    ]
    found = of_operators(samples, {"n", "orders", "out"})
    assert list(found.values()) == [5, 80, 2]
    assert {"n.numRecordsIn", "out.committablesWaiting"} <= set(found)
    assert of_tasks(samples) == {}


@pytest.mark.parametrize(("value", "text"), [(20.0, "20"), (0.25, "0.25"), (float("nan"), "NaN"), (-3, "-3")])
def test_values_are_texts(value: float, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(("values", "skew"), [([5, 5], 0), ([0, 0], 0), ([0, 10], 100), ([0, 0, 0, 40], 100)])
def test_skew_is_the_mean_deviation_in_percent_of_the_average(values: list[float], skew: float) -> None:
    (found,) = aggregated_metrics([{"rows": value} for value in values], ["rows"], ["skew"])
    assert found.skew == skew
