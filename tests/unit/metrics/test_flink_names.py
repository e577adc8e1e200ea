"""Flink's own names for the metrics that Flink has."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tidegate.metrics import catalog as c
from tidegate.metrics.exposition import exposition
from tidegate.metrics.metric import Sample

ID = "f" * 32
JOB = {"job_id": ID, "job_name": "shop"}


def exported(*samples: Sample, flink_id: str | None = ID) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Flink's name → labels and values."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(exposition("shop", samples, flink_id).decode()):
        for sample in family.samples:
            if sample.name.startswith("flink_"):
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_a_job_metric_has_the_name_and_the_unit_of_flinks_reporter() -> None:
    found = exported(Sample(c.LAST_CHECKPOINT_DURATION, 1_500))
    assert found == {"flink_jobmanager_job_lastCheckpointDuration": [(JOB, 1_500)]}


def test_a_task_is_named_by_its_level_and_its_index() -> None:
    found = exported(Sample(c.BUSY, 250, {"task": "L1-S3"}))
    labels = {**JOB, "task_name": "level-1", "subtask_index": "3"}
    assert found == {"flink_taskmanager_job_task_busyTimeMsPerSecond": [(labels, 250)]}


def test_sources_operators_and_sinks_are_operators_of_flink() -> None:
    found = exported(
        Sample(c.SOURCE_RECORDS, 9, {"source": "lines"}),
        Sample(c.RECORDS_IN, 7, {"operator": "count"}),
        Sample(c.RECORDS_SEND, 5, {"sink": "db"}),
    )
    assert found == {
        "flink_taskmanager_job_task_operator_numRecordsIn": [
            ({**JOB, "operator_name": "lines"}, 9),
            ({**JOB, "operator_name": "count"}, 7),
        ],
        "flink_taskmanager_job_task_operator_numRecordsSend": [({**JOB, "operator_name": "db"}, 5)],
    }


def test_the_watermark_of_a_split_is_below_its_source() -> None:
    found = exported(Sample(c.SPLIT_WATERMARK, 7, {"source": "lines", "split": "3"}))
    labels = {**JOB, "operator_name": "lines", "split": "3"}
    assert found == {"flink_taskmanager_job_task_operator_split_watermark_currentWatermark": [(labels, 7)]}


def test_every_status_has_a_metric_of_its_own() -> None:
    found = exported(Sample(c.STATE, 1, {"status": "RUNNING"}), Sample(c.STATUS_TIME, 40, {"status": "RESTARTING"}))
    assert found == {
        "flink_jobmanager_job_runningState": [(JOB, 1)],
        "flink_jobmanager_job_restartingTime": [(JOB, 40)],
    }


def test_every_operator_has_the_watermark_of_the_epoch() -> None:
    found = exported(
        Sample(c.WATERMARK, 99), Sample(c.RECORDS_IN, 1, {"operator": "a"}), Sample(c.RECORDS_IN, 1, {"operator": "b"})
    )
    watermarks = found["flink_taskmanager_job_task_operator_currentInputWatermark"]
    assert [labels["operator_name"] for labels, _ in watermarks] == ["a", "b"]


def test_what_flink_does_not_have_is_left_out() -> None:
    assert exported(Sample(c.DISK_FREE, 1, {"task": "L1-S0"}), Sample(c.EPOCHS, 1)) == {}


def test_flinks_names_are_exported_only_on_request() -> None:
    assert exported(Sample(c.RESTARTS, 1), flink_id=None) == {}
