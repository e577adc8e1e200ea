"""A decision in plain sentences, with the numbers that led to it."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, isinf

from tidegate.autoscaler.decision import DecisionKind, ScalingDecision
from tidegate.autoscaler.epoch_sample import SOURCE_LEVEL
from tidegate.autoscaler.evaluation import Evaluation
from tidegate.config.autoscaler import AutoscalerConfig
from tidegate.config.declared import autoscaler as options


def explain(decision: ScalingDecision, config: AutoscalerConfig, key_groups: int, restart_ms: int) -> tuple[str, ...]:
    """Return what the autoscaler would do, then why. `restart_ms` is how long it expects a restart to take."""
    evaluation = decision.evaluation
    if evaluation is None:
        return (_waiting(decision, config),)
    return (
        _conclusion(decision, evaluation, config),
        *_measured(evaluation),
        *_needed(evaluation, config, restart_ms),
        *_fitted(decision, evaluation, config, key_groups),
        *_acting(decision, config),
    )


def _waiting(decision: ScalingDecision, config: AutoscalerConfig) -> str:
    left_ms = 0 if decision.until_ms is None else max(0, decision.until_ms - decision.at_ms)
    match decision.kind:
        case DecisionKind.STABILIZING:
            return (
                f"No decision yet: the job has just started, and its epochs count in {_time(left_ms)} "
                f"({options.STABILIZATION.key} is {_time(config.stabilization_ms)})."
            )
        case DecisionKind.COLLECTING:
            return (
                f"No decision yet: the window is full in {_time(left_ms)} "
                f"({options.WINDOW.key} is {_time(config.window_ms)})."
            )
        case _:
            return "No decision: no task measured how busy it is (metrics.tasks.enabled)."


def _conclusion(decision: ScalingDecision, evaluation: Evaluation, config: AutoscalerConfig) -> str:
    p = decision.parallelism
    recommended = decision.recommended
    match decision.kind:
        case DecisionKind.SCALE_UP:
            return f"It would scale the job up from {p} to {recommended}."
        case DecisionKind.SCALE_DOWN:
            return f"It would scale the job down from {p} to {recommended}."
        case DecisionKind.DELAYED:
            left_ms = max(0, (decision.until_ms or 0) - decision.at_ms)
            return (
                f"It leaves the job at {p}. {decision.aligned} would be enough; it scales down if that stays so for "
                f"another {_time(left_ms)} ({options.SCALE_DOWN_INTERVAL.key} is {_time(config.scale_down_interval_ms)})."
            )
        case DecisionKind.INEFFECTIVE:
            return (
                f"It leaves the job at {p}, though that is too small: the last step up did not help. {_gain(decision)}"
            )
        case DecisionKind.NOT_SCALABLE:
            fixed = (
                "" if not evaluation.fixed_s else f", which alone allow no more than {_rate(1 / evaluation.fixed_s)}"
            )
            return (
                f"It leaves the job at {p}, though that is too small. More tasks would hardly help: the time goes into reading "
                f"the sources and into what each epoch takes besides its rows{fixed}. Give the sources more partitions, or let "
                "epochs read more rows."
            )
        # BALANCED, and nothing else was computed. Otherwise another parallelism was, but not for a reason to act.
        case _ if decision.aligned in (None, p):
            return f"It leaves the job at {p}, which is right."
        case _:
            return (
                f"It leaves the job at {p}. {decision.aligned} would be nearer to the target, but the load is within its "
                "boundaries."
            )


def _measured(evaluation: Evaluation) -> Iterator[str]:
    backlog = (
        f"{evaluation.lag:,.0f} rows wait" if evaluation.has_lag else "its sources do not report how many rows wait"
    )
    yield (
        f"In the last {_time(evaluation.duration_ms)} the job read {_rate(evaluation.read_rate)}; "
        f"{_rate(evaluation.target_data_rate)} arrived, and {backlog}."
    )
    if isinf(evaluation.true_processing_rate):
        yield "No rows arrived, so nothing limits what it can process."
        return
    shares = ", ".join(f"{_named(each.level)} {each.load:.0%}" for each in evaluation.levels)
    levels = f", one after the other ({shares})" if len(evaluation.levels) > 1 else ""
    how = (
        "as measured while it caught up"
        if evaluation.is_observed
        else "if its epochs followed each other without a pause"
    )
    yield (
        f"Its tasks were busy {evaluation.load:.0%} of the time{levels}. With parallelism {evaluation.parallelism} it can "
        f"process {_rate(evaluation.true_processing_rate)}, {how}."
    )


def _needed(evaluation: Evaluation, config: AutoscalerConfig, restart_ms: int) -> Iterator[str]:
    parts = [
        f"{_number(evaluation.target_data_rate / config.target)} so that what arrives keeps it busy {config.target:.0%} of the "
        "time"
    ]
    if evaluation.catch_up_data_rate:
        parts.append(
            f"{_number(evaluation.catch_up_data_rate)} to process the backlog within {_time(config.catch_up_ms)}"
        )
    if evaluation.restart_rate:
        parts.append(f"{_number(evaluation.restart_rate)} for what arrives during a restart of {_time(restart_ms)}")
    yield f"It should be able to process {_rate(evaluation.target_capacity)}: {', '.join(parts)}."
    if evaluation.is_processing_backlog:
        yield "It is catching up, so it may be busy all the time and is not scaled down."
    else:
        low = _number(evaluation.scale_up_threshold)
        high = _number(evaluation.scale_down_threshold)
        yield (
            f"It is too small below {low} rows/s (utilization above {config.max_utilization:.0%}) and too large above {high} "
            f"rows/s (below {config.min_utilization:.0%})."
        )


def _fitted(
    decision: ScalingDecision, evaluation: Evaluation, config: AutoscalerConfig, key_groups: int
) -> Iterator[str]:
    if decision.computed is None or decision.aligned is None:
        return
    yield f"That takes a parallelism of {decision.computed}."
    least, most = (
        (1 - config.scale_down_factor) * evaluation.parallelism,
        (1 + config.scale_up_factor) * evaluation.parallelism,
    )
    step = ceil(min(max(decision.computed, least), most))
    if step != decision.computed:
        yield f"One step leads no further than from {evaluation.parallelism} to {step}."
    if decision.aligned != step:
        limits = f"{config.min_parallelism} to {min(config.max_parallelism, key_groups)}"
        yield f"Within its limits ({limits}) and fitted to {key_groups} key groups that is {decision.aligned}."
    if decision.kind is DecisionKind.SCALE_DOWN and decision.recommended != decision.aligned:
        yield (
            f"Within the last {_time(config.scale_down_interval_ms)} it needed as many as {decision.recommended}, so it goes no "
            "lower."
        )
    if decision.kind is DecisionKind.SCALE_UP and decision.gain is not None:
        yield f"The last step up did not help. {_gain(decision)}"


def _acting(decision: ScalingDecision, config: AutoscalerConfig) -> Iterator[str]:
    if decision.changes and not config.scaling_enabled:
        yield f"It does not act: {options.SCALING_ENABLED.key} is false."


def _gain(decision: ScalingDecision) -> str:
    expected, actual = decision.gain or (0.0, 0.0)
    return f"It was to add {_rate(expected)} and added {_rate(max(0.0, actual))}."


def _named(level: int) -> str:
    return "the source stage" if level == SOURCE_LEVEL else f"level {level}"


def _rate(rows: float) -> str:
    return f"{_number(rows)} rows/s"


def _number(rows: float) -> str:
    return "∞" if isinf(rows) else f"{rows:,.0f}" if rows >= 10 or rows == 0 else f"{rows:.2g}"


def _time(ms: int) -> str:
    """Rounded: `75 s`, `19 min`, `2.5 h`."""
    seconds = round(max(0, ms) / 1000)
    if seconds < 120:
        return f"{seconds} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{round(seconds / 3600, 1):g} h"
