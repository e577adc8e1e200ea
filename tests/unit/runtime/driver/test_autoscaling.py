"""The autoscaler of a run: what it records of epochs, what it shows, and when it acts."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.unit.runtime.driver.epoch_kit import epoch_report
from tests.unit.runtime.monitoring.test_job_metrics import ack
from tidegate.autoscaler.decision import DecisionKind
from tidegate.config.autoscaler import AutoscalerConfig
from tidegate.core.errors import PreconditionFailed
from tidegate.core.ids import EpochId, Term
from tidegate.metrics import catalog
from tidegate.runtime.driver.autoscaling import Autoscaler
from tidegate.runtime.epochs.run_options import RunOptions
from tidegate.runtime.epochs.settings import read_settings
from tidegate.runtime.epochs.streaming_time import StreamingTime
from tidegate.runtime.exchange.messages import TaskMetrics
from tidegate.testing.clock import ManualClock

ON = AutoscalerConfig(enabled=True, window_ms=60_000, stabilization_ms=0, restart_ms=0)
ACTS = replace(ON, scaling_enabled=True)


class Run:
    """A job whose epochs take ten seconds each."""

    def __init__(self, config: AutoscalerConfig = ON) -> None:
        self.clock, self.number = ManualClock(5_000), 0
        self.scaler = Autoscaler("shop", config, 128, clock=self.clock)
        self.scaler.started(2)

    def epochs(self, count: int, *busy_ms: int, pending_rows: int | None = 0) -> Autoscaler:
        acks = tuple(
            ack(slot, rows_in=500, metrics=TaskMetrics(busy_ms=each, started_ms=1)) for slot, each in enumerate(busy_ms)
        )
        for _ in range(count):
            self.number += 1
            self.clock.advance(10_000)
            report = epoch_report(EpochId(Term(1), self.number), rows_in=1_000, duration_ms=9_000, acks=acks)
            self.scaler.epoch(report, pending_rows)
        return self.scaler


def test_a_sample_has_the_rows_the_time_and_the_busiest_task_of_its_epochs() -> None:
    found = Run().epochs(3, 4_000, 2_000, pending_rows=7).trace.samples
    assert [(each.from_ms, each.to_ms, each.last_began_ms) for each in found] == [
        (5_000, 15_000, 6_000), (15_000, 25_000, 16_000), (25_000, 35_000, 26_000),
    ]  # fmt: skip
    (level,) = found[0].levels
    assert (level.level, level.rows_in, level.busy_max_ms, level.busy_min_ms, level.busy_avg_ms) == (
        1, 1_000, 4_000, 2_000, 3_000,
    )  # fmt: skip
    assert (found[0].rows_in, found[0].pending_rows, found[0].working_ms, found[0].parallelism) == (1_000, 7, 9_000, 2)


class Rescales:
    """What the autoscaler has asked for. `ends` says how each of them ends: None as wanted; the last one stays as it is."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)
        self.asked: list[int] = []
        self.answers: list[Future[None]] = []

    def __call__(self, parallelism: int) -> Future[None]:
        self.asked.append(parallelism)
        self.answers.append(Future())
        if self.ends:
            end = self.ends.pop(0)
            self.answers[-1].set_result(None) if end is None else self.answers[-1].set_exception(end)
        return self.answers[-1]


def counted(scaler: Autoscaler) -> tuple[float, float]:
    found = {sample.metric: sample.value for sample in scaler.samples() if not sample.labels}
    return found[catalog.SCALINGS], found[catalog.SCALING_ERRORS]


def test_it_recommends_and_does_not_act_by_default() -> None:
    run, rescales = Run(), Rescales()
    run.scaler.act_by(rescales)
    scaler = run.epochs(12, 12_000, 11_000)
    assert scaler.last is not None
    decision, reasons = scaler.last
    assert decision.kind is DecisionKind.SCALE_UP
    assert reasons[0] == f"It would scale the job up from 2 to {decision.recommended}."
    assert reasons[-1] == "It does not act: job.autoscaler.scaling.enabled is false."
    assert rescales.asked == []


def test_it_rescales_the_job_once_and_waits_for_the_outcome() -> None:
    run, rescales = Run(ACTS), Rescales()
    run.scaler.act_by(rescales)
    scaler = run.epochs(60, 12_000, 11_000)
    assert rescales.asked == [4]
    rescales.answers[0].set_result(None)
    run.scaler.started(4)
    run.epochs(60, 6_000, 6_000)
    assert (rescales.asked, counted(scaler)) == ([4], (1, 0))


def test_a_rescale_that_fails_is_counted_and_tried_again_after_a_window_then_after_twice_as_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The job is back at its old parallelism, as busy as before."""
    no = RuntimeError("no room")
    run, rescales = Run(ACTS), Rescales(no, no, no)
    run.scaler.act_by(rescales)
    epochs = []
    for number in range(1, 41):
        run.epochs(1, 12_000, 11_000)
        epochs += [number] * (len(rescales.asked) - len(epochs))
    first, second, third = epochs[:3]
    window = ON.window_ms // 10_000
    assert (second - first, third - second) == (window + 1, 2 * window + 1)
    assert counted(run.scaler) == (len(epochs), 3)
    assert "AutoscalerError: the job was not scaled, next try in 60 s: no room" in caplog.text


def test_a_refusal_is_an_error_of_the_autoscaler_and_not_of_the_job(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(parallelism: int) -> Future[None]:
        raise PreconditionFailed("Another rescale of the job is in progress.")

    run = Run(ACTS)
    run.scaler.act_by(refuse)
    assert counted(run.epochs(9, 12_000, 11_000)) == (1, 1)
    assert "Another rescale of the job is in progress." in caplog.text


def test_after_a_rescale_that_succeeded_the_next_failure_waits_for_one_window() -> None:
    run, rescales = Run(ACTS), Rescales(RuntimeError("no"), None, RuntimeError("no"))
    run.scaler.act_by(rescales)
    run.epochs(40, 12_000, 11_000)
    assert (len(rescales.asked), run.scaler._failures) == (4, 1)


def test_what_was_not_carried_out_is_not_judged_by_its_effect() -> None:
    run, rescales = Run(replace(ACTS, blocks_ineffective=True)), Rescales(RuntimeError("no"))
    run.scaler.act_by(rescales)
    scaler = run.epochs(12, 12_000, 11_000)
    assert scaler._decider.history == ()


def test_a_job_that_cannot_be_rescaled_logs_that_it_only_gets_recommendations(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Run(ACTS)
    assert "recommends only" in caplog.text


def test_an_error_is_counted_and_does_not_reach_the_job(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run()
    monkeypatch.setattr(run.scaler, "_decider", None)
    assert counted(run.epochs(2, 12_000, 11_000)) == (0, 2)
    assert "could not decide" in caplog.text


def test_a_recommendation_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidegate")
    Run().epochs(30, 12_000, 11_000)
    assert sum("would scale the job up" in record.getMessage() for record in caplog.records) == 1


def test_metrics_have_the_names_of_flinks_autoscaler() -> None:
    scaler = Run().epochs(12, 8_000, 2_000)
    found = {(each.metric.name, each.labels.get("vertex")): each.value for each in scaler.samples()}
    assert found["LOAD.Average", "job"] == found["LOAD.Average", "level-1"] == pytest.approx(0.8)
    assert found["TRUE_PROCESSING_RATE.Average", "job"] == pytest.approx(125)
    assert found["TARGET_DATA_RATE.Average", "level-1"] == pytest.approx(100)
    assert found["RECOMMENDED_PARALLELISM.Current", "job"] == found["PARALLELISM.Current", "job"] == 2
    assert found["balanced", None] > 0


def test_values_that_are_not_known_are_absent() -> None:
    names = {each.metric.name for each in Run().epochs(2, 8_000).samples()}
    assert {"PARALLELISM.Current", "MAX_PARALLELISM.Current"} <= names
    assert "RECOMMENDED_PARALLELISM.Current" not in names
    assert "LOAD.Average" not in names


def test_a_restart_begins_with_a_new_window() -> None:
    run = Run()
    run.epochs(12, 12_000, 11_000)
    run.clock.advance(30_000)
    run.scaler.started(8)
    scaler = run.epochs(1, 1_000)
    assert scaler.last is not None
    assert (scaler.last[0].kind, scaler.last[0].parallelism) == (DecisionKind.COLLECTING, 8)
    assert scaler.trace.samples[-1].from_ms == scaler.trace.samples[-1].running_since_ms


def test_tasks_that_do_not_measure_leave_it_undecided() -> None:
    run = Run()
    run.epochs(12)
    assert run.scaler.last is not None
    assert run.scaler.last[0].kind is DecisionKind.UNMEASURED


def test_the_trace_repeats_the_last_decision() -> None:
    scaler = Run().epochs(20, 12_000, 11_000)
    assert scaler.trace.replay()[-1] == scaler.last


def test_options_reach_the_settings() -> None:
    settings, _ = read_settings(
        1, RunOptions(parallelism=1, options={"job.autoscaler.enabled": True, "job.autoscaler.metrics.window": "3 min"})
    )
    assert settings.autoscaler == AutoscalerConfig(enabled=True, window_ms=180_000)


def test_pending_rows_are_those_of_the_sources_that_report_them() -> None:
    kafka = {"endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 12}}}

    progress = {"durationMs": {}, "sources": [kafka, {"endOffset": 3, "latestOffset": 4}, kafka]}
    streaming = StreamingTime()
    assert streaming.pending_rows is None
    streaming.ms(SimpleNamespace(lastProgress=progress))  # type: ignore[arg-type]
    assert streaming.pending_rows == 14
