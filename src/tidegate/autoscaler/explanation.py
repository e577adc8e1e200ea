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
    found = decision.evaluation
    if found is None:
        return (_waiting(decision, config),)
    return (
        _conclusion(decision, found, config),
        *_measured(found),
        *_needed(found, config, restart_ms),
        *_fitted(decision, found, config, key_groups),
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


def _conclusion(decision: ScalingDecision, found: Evaluation, config: AutoscalerConfig) -> str:
    p, wanted = decision.parallelism, decision.recommended
    match decision.kind:
        case DecisionKind.SCALE_UP:
            return f"It would scale the job up from {p} to {wanted}."
        case DecisionKind.SCALE_DOWN:
            return f"It would scale the job down from {p} to {wanted}."
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
            fixed = "" if not found.fixed_s else f", which alone allow no more than {_rate(1 / found.fixed_s)}"
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


def _measured(found: Evaluation) -> Iterator[str]:
    backlog = f"{found.lag:,.0f} rows wait" if found.has_lag else "its sources do not report how many rows wait"
    yield (
        f"In the last {_time(found.duration_ms)} the job read {_rate(found.read_rate)}; {_rate(found.target_data_rate)} "
        f"arrived, and {backlog}."
    )
    if isinf(found.true_processing_rate):
        yield "No rows arrived, so nothing limits what it can process."
        return
    shares = ", ".join(f"{_named(each.level)} {each.load:.0%}" for each in found.levels)
    levels = f", one after the other ({shares})" if len(found.levels) > 1 else ""
    how = "as measured while it caught up" if found.is_observed else "if its epochs followed each other without a pause"
    yield (
        f"Its tasks were busy {found.load:.0%} of the time{levels}. With parallelism {found.parallelism} it can process "
        f"{_rate(found.true_processing_rate)}, {how}."
    )


def _needed(found: Evaluation, config: AutoscalerConfig, restart_ms: int) -> Iterator[str]:
    parts = [
        f"{_number(found.target_data_rate / config.target)} so that what arrives keeps it busy {config.target:.0%} of the time"
    ]
    if found.catch_up_data_rate:
        parts.append(f"{_number(found.catch_up_data_rate)} to process the backlog within {_time(config.catch_up_ms)}")
    if found.restart_rate:
        parts.append(f"{_number(found.restart_rate)} for what arrives during a restart of {_time(restart_ms)}")
    yield f"It should be able to process {_rate(found.target_capacity)}: {', '.join(parts)}."
    if found.is_processing_backlog:
        yield "It is catching up, so it may be busy all the time and is not scaled down."
    else:
        low, high = _number(found.scale_up_threshold), _number(found.scale_down_threshold)
        yield (
            f"It is too small below {low} rows/s (utilization above {config.max_utilization:.0%}) and too large above {high} "
            f"rows/s (below {config.min_utilization:.0%})."
        )


def _fitted(decision: ScalingDecision, found: Evaluation, config: AutoscalerConfig, key_groups: int) -> Iterator[str]:
    if decision.computed is None or decision.aligned is None:
        return
    yield f"That takes a parallelism of {decision.computed}."
    least, most = (1 - config.scale_down_factor) * found.parallelism, (1 + config.scale_up_factor) * found.parallelism
    step = ceil(min(max(decision.computed, least), most))
    if step != decision.computed:
        yield f"One step leads no further than from {found.parallelism} to {step}."
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
