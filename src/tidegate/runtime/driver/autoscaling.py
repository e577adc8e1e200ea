"""The autoscaler of a run: records its epochs, keeps the last decision, and acts on it if it may.

The thread that runs epochs writes, any thread reads. Everything that others read is replaced as a whole.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from math import isfinite
from typing import Any

from tidegate.autoscaler.decider import ScalingDecider
from tidegate.autoscaler.decision import DecisionKind, ScalingDecision
from tidegate.autoscaler.epoch_sample import EpochSample, LevelSample, SampleCollector
from tidegate.autoscaler.explanation import explain
from tidegate.autoscaler.trace import ScalingTrace
from tidegate.config.autoscaler import AutoscalerConfig
from tidegate.core.clock import SYSTEM_CLOCK, Clock
from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.exchange.messages import TaskAck

log = logging.getLogger("tidegate")

AskToRescale = Callable[[int], Future[Any]]
"""Begins to change the parallelism of the running job, or raises. The future completes when the job runs again, or fails."""

_TRACED = 2_000
"""Samples that a trace has at most: eight hours with the default window."""
_DAY_MS = 24 * 3_600_000


class Autoscaler:
    """Decisions are only shown, unless `job.autoscaler.scaling.enabled` is set and the job can be rescaled (`act_by`).

    A decision is carried out by the thread that runs epochs, between two of them, and one at a time. After a rescale that was
    refused or has failed, none is asked for during a window, and twice as long after each further one, up to a day: every try
    interrupts the job.
    """

    def __init__(
        self, job: str, config: AutoscalerConfig, max_parallelism: int, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._job = job
        self.config = config
        self._key_groups = max_parallelism
        self._rescale: AskToRescale | None = None
        self._clock = clock
        self._asked: Future[Any] | None = None
        """The rescale in progress, or one whose outcome has not been seen."""
        self._failures = 0
        """Rescales that failed since the last that succeeded."""
        self._retry_ms = 0
        """No rescale is asked for before."""
        self._decider = ScalingDecider(config, max_parallelism)
        self._collector = SampleCollector(config.window_ms)
        self._samples: deque[EpochSample] = deque(maxlen=_TRACED)
        self._since_ms = self._ended_ms = int(clock.now().monotonic_ms)
        self._parallelism = 1
        self._scalings = self._errors = self._balanced = 0
        self.last: tuple[ScalingDecision, tuple[str, ...]] | None = None
        """The last decision, and the reasons for it."""

    def act_by(self, rescale: AskToRescale) -> None:
        """Have decisions carried out by `rescale`, if the configuration allows it."""
        self._rescale = rescale if self.config.scaling_enabled else None

    def started(self, parallelism: int) -> None:
        """The job starts, or starts again, with this parallelism."""
        if self.config.scaling_enabled and self._rescale is None:
            log.warning(
                "the autoscaler recommends only: without checkpoints, a job cannot change its parallelism while it runs"
            )
        self._since_ms = self._ended_ms = int(self._clock.now().monotonic_ms)
        self._parallelism = parallelism

    def epoch(self, report: EpochReport, pending_rows: int | None = None) -> None:
        """An epoch was accepted. `pending_rows`: what its sources have besides what was read, if they report it."""
        try:
            self._observe(self._sample(report, pending_rows))
        except Exception:
            # Nothing depends on the autoscaler, and the job must not.
            self._errors += 1
            log.warning("the autoscaler could not decide", exc_info=True)

    def _sample(self, report: EpochReport, pending_rows: int | None) -> EpochSample:
        now_ms, before_ms = int(self._clock.now().monotonic_ms), self._ended_ms
        self._ended_ms = now_ms
        began_ms = max(before_ms, now_ms - report.duration_ms)
        return EpochSample(
            from_ms=before_ms,
            to_ms=now_ms,
            last_began_ms=began_ms,
            running_since_ms=self._since_ms,
            parallelism=self._parallelism,
            rows_in=report.rows_in,
            largest_epoch=report.rows_in,
            levels=tuple(_levels(report.acks)),
            pending_rows=pending_rows,
            working_ms=min(now_ms - before_ms, report.duration_ms + report.phases.get("streaming", 0)),
        )

    def _observe(self, epoch: EpochSample) -> None:
        # Before the sample: after a rescale that failed, the decider must not judge this epoch by it.
        self._see_rescale()
        sample = self._collector.add(epoch)
        if sample is None:
            return

        self._samples.append(sample)
        decision = self._decider.observe(sample)
        reasons = explain(decision, self.config, self._key_groups, self._decider.restart_ms)
        self._note(decision, reasons)
        self.last = decision, reasons

        if decision.changes and self._rescale is not None and self._asked is None and sample.to_ms >= self._retry_ms:
            self._act(decision, sample.to_ms, self._rescale)

    def _act(self, decision: ScalingDecision, at_ms: int, rescale: AskToRescale) -> None:
        log.info(
            "autoscaler: ScalingReport: the job is scaled from %d to %d", decision.parallelism, decision.recommended
        )
        # Before the request, which may raise at once and is then taken back by `not_scaled`.
        self._decider.scaled(decision, at_ms)
        self._scalings += 1
        try:
            self._asked = rescale(decision.recommended)
        except Exception as error:
            self._failed(error)

    def _see_rescale(self) -> None:
        """See what became of the rescale that was asked for."""
        if self._asked is None or not self._asked.done():
            return
        error = self._asked.exception()
        self._asked = None
        if error is None:
            self._failures = self._retry_ms = 0
        else:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._decider.not_scaled()
        self._errors += 1
        # The shift is bounded: a job that fails for weeks must not build numbers of a million bits.
        wait_ms = min(self.config.window_ms << min(self._failures, 20), _DAY_MS)
        self._failures += 1
        self._retry_ms = int(self._clock.now().monotonic_ms) + wait_ms
        log.warning("autoscaler: AutoscalerError: the job was not scaled, next try in %d s: %s", wait_ms // 1000, error)

    def _note(self, decision: ScalingDecision, reasons: tuple[str, ...]) -> None:
        """Log a recommendation when it changes, and count what is right as it is."""
        self._balanced += decision.kind is DecisionKind.BALANCED
        before = None if self.last is None else self.last[0]
        if decision.changes and (before is None or before.recommended != decision.recommended):
            log.info("autoscaler: %s", " ".join(reasons))

    @property
    def trace(self) -> ScalingTrace:
        """What it has seen, to be replayed."""
        return ScalingTrace(
            job=self._job,
            max_parallelism=self._key_groups,
            config=self.config,
            samples=tuple(self._samples.copy()),
        )

    def samples(self) -> Iterator[Sample]:
        """Its metrics."""
        yield Sample(catalog.SCALINGS, self._scalings)
        yield Sample(catalog.SCALING_ERRORS, self._errors)
        yield Sample(catalog.BALANCED, self._balanced)
        if self.last is not None:
            found = [*_of_job(self.last[0], self._key_groups), *_of_levels(self.last[0])]
            yield from (sample for sample in found if isfinite(sample.value))


def _levels(acks: Iterable[TaskAck]) -> Iterator[LevelSample]:
    by_level: dict[int, list[TaskAck]] = {}
    for ack in acks:
        if ack.metrics.started_ms:
            by_level.setdefault(ack.level, []).append(ack)
    for level, found in sorted(by_level.items()):
        busy_ms = [each.metrics.busy_ms for each in found]
        yield LevelSample(
            level=level,
            rows_in=sum(each.rows_in for each in found),
            busy_max_ms=max(busy_ms),
            busy_min_ms=min(busy_ms),
            busy_avg_ms=sum(busy_ms) / len(busy_ms),
        )


def _of_job(decision: ScalingDecision, key_groups: int) -> Iterator[Sample]:
    labels = {"vertex": "job"}
    yield Sample(catalog.PARALLELISM, decision.parallelism, labels)
    yield Sample(catalog.MAX_PARALLELISM, key_groups, labels)
    found = decision.evaluation
    if found is None:
        return
    yield Sample(catalog.RECOMMENDED_PARALLELISM, decision.recommended, labels)
    yield Sample(catalog.LOAD, found.load, labels)
    yield Sample(catalog.TRUE_PROCESSING_RATE, found.true_processing_rate, labels)
    yield Sample(catalog.TARGET_DATA_RATE, found.target_data_rate, labels)
    yield Sample(catalog.CATCH_UP_DATA_RATE, found.catch_up_data_rate, labels)
    yield Sample(catalog.LAG, found.lag, labels)
    yield Sample(catalog.SCALE_UP_RATE_THRESHOLD, found.scale_up_threshold, labels)
    yield Sample(catalog.SCALE_DOWN_RATE_THRESHOLD, found.scale_down_threshold, labels)
    yield Sample(catalog.EXPECTED_PROCESSING_RATE, found.rate_at(decision.recommended), labels)


def _of_levels(decision: ScalingDecision) -> Iterator[Sample]:
    for each in () if decision.evaluation is None else decision.evaluation.levels:
        labels = {"vertex": f"level-{each.level}"}
        yield Sample(catalog.LOAD, each.load, labels)
        yield Sample(catalog.TRUE_PROCESSING_RATE, each.true_processing_rate, labels)
        yield Sample(catalog.TARGET_DATA_RATE, each.target_data_rate, labels)
