"""Decides whether a job should have another parallelism, by the rules of Flink's autoscaler. Pure: samples in, decisions out."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tidegate.autoscaler.decision import DecisionKind, ScalingDecision
from tidegate.autoscaler.epoch_sample import EpochSample
from tidegate.autoscaler.evaluation import Evaluation, evaluate
from tidegate.config.autoscaler import AutoscalerConfig
from tidegate.config.choices import ParallelismAlignment

_ROUNDING = 1e-9
"""A parallelism that is computed as 4.0000000001 is 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastScaling:
    """A change of parallelism that was carried out."""

    at_ms: int
    old: int
    new: int
    rate_before: float
    rate_expected: float


@dataclass(frozen=True, slots=True)
class _WantedScaleDown:
    at_ms: int
    parallelism: int
    is_outside: bool


class ScalingDecider:
    """Sees the samples of one job in their order. `max_parallelism` is the number of key groups."""

    def __init__(self, config: AutoscalerConfig, max_parallelism: int) -> None:
        self._config = config
        self._key_groups = max_parallelism
        self._window: list[EpochSample] = []
        self._last: EpochSample | None = None
        self._before: EpochSample | None = None
        """The sample before those of the window, of the same attempt: where the backlog was then."""
        self._wanted: list[_WantedScaleDown] = []
        """Since scaling down has been right without a break; the first one, and those within the interval."""
        self._history: list[PastScaling] = []
        self._restarts_ms: list[int] = []
        """How long changes of parallelism interrupted the job."""
        self._pending: PastScaling | None = None
        """A change that the job has not come back from."""
        self._row_limit: int | None = None
        """Rows of the last epoch that left some unread: it read as many as it may."""

    def observe(self, sample: EpochSample) -> ScalingDecision:
        """Add a sample, and decide."""
        config = self._config
        if self._last is None or sample.running_since_ms != self._last.running_since_ms:
            self._restarted(sample)
        self._last = sample
        if sample.pending_rows:
            self._row_limit = sample.largest_epoch
        stable_ms = sample.running_since_ms + config.stabilization_ms

        # By its beginning: a sample that reaches back into the start contains slow first epochs.
        if sample.from_ms < stable_ms:
            self._before = sample
            return self._wait(DecisionKind.STABILIZING, sample, stable_ms)
        self._window.append(sample)

        # Arrivals are a difference between two samples, so one alone decides nothing, however long it is.
        full_ms = self._window[0].from_ms + config.window_ms
        if sample.to_ms < full_ms or (self._before is None and len(self._window) < 2):
            return self._wait(DecisionKind.COLLECTING, sample, full_ms)
        while len(self._window) > 1 and self._window[1].from_ms <= sample.to_ms - config.window_ms:
            self._before = self._window.pop(0)  # What remains covers the whole window.
        evaluation = evaluate(
            self._window, config, restart_ms=self.restart_ms, before=self._before, row_limit=self._row_limit
        )
        if evaluation is None:
            return self._wait(DecisionKind.UNMEASURED, sample, None)
        return self._decide(sample.to_ms, evaluation)

    def scaled(self, decision: ScalingDecision, at_ms: int) -> None:
        """The decision is being carried out."""
        evaluation = decision.evaluation
        assert evaluation is not None
        self._pending = PastScaling(
            at_ms=at_ms,
            old=decision.parallelism,
            new=decision.recommended,
            rate_before=evaluation.true_processing_rate,
            rate_expected=evaluation.rate_at(decision.recommended),
        )
        oldest_ms = at_ms - self._config.history_age_ms
        recent = [each for each in self._history if each.at_ms >= oldest_ms]
        self._history = [*recent, self._pending][-self._config.history_count :]
        self._wanted.clear()

    def not_scaled(self) -> None:
        """The last decision could not be carried out: nothing is learned from it."""
        if self._pending is not None:
            self._history = [each for each in self._history if each is not self._pending]
            self._pending = None

    @property
    def restart_ms(self) -> int:
        """How long a change of parallelism is expected to interrupt the job."""
        config = self._config
        if config.tracks_restarts and self._restarts_ms:
            return min(max(self._restarts_ms), config.restart_limit_ms)
        return config.restart_ms

    @property
    def history(self) -> tuple[PastScaling, ...]:
        """The last changes, oldest first."""
        return tuple(self._history)

    def _restarted(self, sample: EpochSample) -> None:
        self._window.clear()
        self._before = None
        # A restart with the same parallelism does not interrupt the wait to scale down.
        if self._last is not None and sample.parallelism != self._last.parallelism:
            self._wanted.clear()
        pending = self._pending
        if pending is not None and sample.running_since_ms >= pending.at_ms:
            self._pending = None
            if sample.parallelism == pending.new:
                took_ms = sample.running_since_ms - pending.at_ms
                self._restarts_ms = [*self._restarts_ms, took_ms][-self._config.history_count :]

    def _wait(self, kind: DecisionKind, sample: EpochSample, until_ms: int | None) -> ScalingDecision:
        p = sample.parallelism
        return ScalingDecision(kind=kind, at_ms=sample.to_ms, parallelism=p, recommended=p, until_ms=until_ms)

    def _decide(self, now_ms: int, evaluation: Evaluation) -> ScalingDecision:
        current = evaluation.parallelism
        config = self._config
        needed = evaluation.parallelism_for(evaluation.target_capacity)

        # Towards what cannot be reached, only as far as more tasks help.
        exact = needed if needed <= current else min(needed, max(current, evaluation.reachable_parallelism))
        if needed > current == exact:
            self._wanted.clear()
            kind = (
                DecisionKind.NOT_SCALABLE
                if evaluation.true_processing_rate < evaluation.scale_up_threshold
                else DecisionKind.BALANCED
            )
            return ScalingDecision(
                kind=kind, at_ms=now_ms, parallelism=current, recommended=current, evaluation=evaluation
            )
        computed = ceil(exact - _ROUNDING)

        # One step is bounded by factors of the current parallelism, as in Flink: the next measurement corrects the rest.
        factor = min(max(exact / current, 1 - config.scale_down_factor), 1 + config.scale_up_factor)
        limited = self._limited(ceil(factor * current - _ROUNDING), current)
        aligned = limited if limited == current else self._aligned(limited, current)

        def decided(kind: DecisionKind, **more: object) -> ScalingDecision:
            fields = {"computed": computed, "aligned": aligned, "recommended": current, **more}
            return ScalingDecision(kind=kind, at_ms=now_ms, parallelism=current, evaluation=evaluation, **fields)  # type: ignore[arg-type]

        if aligned >= current:
            self._wanted.clear()
        if aligned == current:
            return decided(DecisionKind.BALANCED)
        if aligned < current:
            until_ms, target = self._wanted_down(now_ms, aligned, evaluation.is_outside)
            if until_ms > now_ms:
                kind = DecisionKind.DELAYED if evaluation.is_outside else DecisionKind.BALANCED
                return decided(kind, until_ms=until_ms)
            # The largest parallelism wanted in the interval decides. If the load was within its boundaries then, nothing
            # changes.
            if not target.is_outside:
                return decided(DecisionKind.BALANCED)
            return decided(DecisionKind.SCALE_DOWN, recommended=target.parallelism)
        gain = self._missing_gain(evaluation)
        if gain is not None and config.blocks_ineffective:
            return decided(DecisionKind.INEFFECTIVE, gain=gain)
        if not evaluation.is_outside:
            return decided(DecisionKind.BALANCED)
        return decided(DecisionKind.SCALE_UP, recommended=aligned, gain=gain)

    def _limited(self, parallelism: int, current: int) -> int:
        """Within the limits, which do not move a job that is already beyond them."""
        least = min(current, self._config.min_parallelism)
        most = min(max(current, self._config.max_parallelism), self._key_groups)
        return min(max(parallelism, least), most)

    def _aligned(self, parallelism: int, current: int) -> int:
        """Return the first parallelism from the wanted one upwards that suits the key groups, not beyond the current one if the
        job is scaled down. The wanted one if there is none."""
        mode = self._config.alignment
        groups = self._key_groups
        if mode is ParallelismAlignment.OFF:
            return parallelism
        most = current if parallelism < current else min(groups, max(current, self._config.max_parallelism))
        for each in range(parallelism, most + 1):
            is_lighter = mode is ParallelismAlignment.BALANCED and groups // each < groups // parallelism
            if groups % each == 0 or is_lighter:
                return each
        return parallelism

    def _wanted_down(self, now_ms: int, parallelism: int, is_outside: bool) -> tuple[int, _WantedScaleDown]:
        """When the job may be scaled down, and how: to the greatest parallelism that was wanted within the interval."""
        interval_ms = self._config.scale_down_interval_ms
        self._wanted.append(_WantedScaleDown(now_ms, parallelism, is_outside))
        first = self._wanted[0]
        start_ms = now_ms - interval_ms
        recent = [each for each in self._wanted if each.at_ms >= start_ms]
        # The first one says since when; of the others, only those that may still be the greatest.
        self._wanted = [first, *(each for each in recent if each is not first)]
        greatest = max(recent, key=lambda each: (each.parallelism, each.at_ms))
        return first.at_ms + interval_ms, greatest

    def _missing_gain(self, evaluation: Evaluation) -> tuple[float, float] | None:
        """Return what the last scaling was expected to add and what it added, if that was not enough."""
        last = self._history[-1] if self._history else None
        if last is None or last.new <= last.old or last.new != evaluation.parallelism:
            return None
        expected = last.rate_expected - last.rate_before
        actual = evaluation.true_processing_rate - last.rate_before
        return (expected, actual) if expected > 0 and actual / expected < self._config.effectiveness else None
