"""Decisions in plain sentences, and traces that repeat them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.unit.autoscaler.queue_model import Drive, QueueJob
from tidegate.autoscaler.decision import DecisionKind
from tidegate.autoscaler.epoch_sample import EpochSample, SampleCollector
from tidegate.autoscaler.trace import FORMAT, ScalingTrace
from tidegate.config.autoscaler import AutoscalerConfig

QUICK = AutoscalerConfig(enabled=True, window_ms=120_000, stabilization_ms=60_000, scale_down_interval_ms=120_000)


def recorded(minutes: float, config: AutoscalerConfig = QUICK, **given: Any) -> ScalingTrace:
    job, collector, samples = QueueJob(**given), SampleCollector(config.window_ms), list[EpochSample]()
    while job.now_s < minutes * 60:
        epoch = job.epoch()
        sample = None if epoch is None else collector.add(epoch)
        samples += [] if sample is None else [sample]
    return ScalingTrace(job="shop", max_parallelism=128, config=config, samples=tuple(samples))


def told(trace: ScalingTrace) -> tuple[DecisionKind, str]:
    decision, sentences = trace.replay()[-1]
    return decision.kind, " ".join(sentences)


def steady(rate: float) -> dict[str, Any]:
    return {"arrivals": lambda second: rate, "every_s": 5.0}


@pytest.mark.parametrize(
    ("minutes", "job", "kind", "parts"),
    [
        (0.8, steady(3_000) | {"parallelism": 4}, "STABILIZING", ["has just started", "stabilization.interval is 60 s"]),
        (2.5, steady(3_000) | {"parallelism": 4}, "COLLECTING", ["the window is full in", "metrics.window is 2 min"]),
        (
            5,
            {"arrivals": lambda second: 3_000, "parallelism": 2, "most_rows": 50_000},
            "SCALE_UP",
            [
                "would scale the job up from 2 to 7.", "the job read 1,9", "3,000 rows/s arrived", "rows wait",
                "busy 99% of the time. With parallelism 2 it can process 1,9", "4,286 so that what arrives keeps it busy 70%",
                "to process the backlog within 30 min, 500 for what arrives during a restart of 5 min",
                "It does not act: job.autoscaler.scaling.enabled is false.",
            ],
        ),
        (
            3.5,
            steady(1_000) | {"parallelism": 20},
            "DELAYED",
            ["leaves the job at 20. 8 would be enough", "One step leads no further than from 20 to 8.", "of 2."],
        ),
        (6, steady(1_000) | {"parallelism": 20}, "SCALE_DOWN", ["would scale the job down from 20 to 8."]),
        (6, steady(3_000) | {"parallelism": 5}, "BALANCED", ["leaves the job at 5, which is right."]),
        (
            6,
            steady(3_000) | {"parallelism": 4},
            "BALANCED",
            ["leaves the job at 4. 6 would be nearer", "fitted to 128 key groups that is 6", "below 3,000", "above 8,000"],
        ),
        (
            6,
            {"arrivals": lambda second: 20_000, "parallelism": 128, "most_rows": 5_000},
            "NOT_SCALABLE",
            ["More tasks would hardly help", "no more than 16,667 rows/s", "let epochs read more rows"],
        ),
        (
            6,
            steady(1_000) | {"parallelism": 2, "levels_s": (0.0005, 0.0007), "source_s": 0.0001, "tells_backlog": False},
            "BALANCED",
            ["do not report how many rows wait", "one after the other (the source stage 10%, level 1 25%, level 2 35%)"],
        ),
    ],
)  # fmt: skip
def test_an_explanation_has_the_decision_and_its_reasons(
    minutes: float, job: dict[str, Any], kind: str, parts: list[str]
) -> None:
    found, text = told(recorded(minutes, **job))
    assert found == kind, text
    assert [part for part in parts if part not in text] == [], text


def test_an_idle_job_and_one_without_measurements_are_explained() -> None:
    trace = recorded(6, **steady(3_000), parallelism=4)
    idle = [
        replace(each, rows_in=0, levels=tuple(replace(x, rows_in=0) for x in each.levels)) for each in trace.samples
    ]
    assert "No rows arrived" in told(replace(trace, samples=tuple(idle)))[1]
    blind = replace(trace, samples=tuple(replace(each, levels=()) for each in trace.samples))
    assert "no task measured how busy it is" in told(blind)[1]


def test_a_step_up_that_did_not_help_is_explained() -> None:
    job = QueueJob(arrivals=lambda second: 8_000, parallelism=4, slots=4, most_rows=200_000)
    drive = Drive(job, replace(QUICK, blocks_ineffective=True)).run(hours=0.4)
    kinds = {each.kind for each in drive.decisions}
    assert DecisionKind.SCALE_UP in kinds
    assert drive.directions == "u"


def test_a_trace_repeats_its_decisions_after_it_was_stored() -> None:
    trace = recorded(6, **steady(1_000), parallelism=20)
    assert ScalingTrace.from_bytes(trace.to_bytes()) == trace
    assert ScalingTrace.from_bytes(trace.to_bytes()).replay() == trace.replay()


def test_a_trace_can_be_seen_with_other_options() -> None:
    trace = recorded(6, **steady(1_000), parallelism=20)
    patient = trace.with_config(replace(QUICK, scale_down_interval_ms=3_600_000))
    assert (told(trace)[0], told(patient)[0]) == (DecisionKind.SCALE_DOWN, DecisionKind.DELAYED)


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff"])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        ScalingTrace.from_bytes(data)


def test_a_trace_of_a_newer_format_is_refused() -> None:
    newer = replace(recorded(1, **steady(10), parallelism=1), format=FORMAT + 1)
    with pytest.raises(ValueError, match="is newer than"):
        ScalingTrace.from_bytes(msgspec.json.encode(newer))
