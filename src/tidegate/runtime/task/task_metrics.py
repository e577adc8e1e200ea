"""What a task attempt reports of itself with its acknowledgement: bounded, however many operators and states it has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from tidegate.runtime.exchange.messages import HotKey, StateAccess, TaskMetrics
from tidegate.runtime.task.attempt_state import AttemptState
from tidegate.runtime.task.background_work import BackgroundWork
from tidegate.runtime.task.operators.async_operator import AsyncOperator
from tidegate.runtime.task.operators.operator import Operator
from tidegate.runtime.task.operators.process_operator import ProcessOperator
from tidegate.state.accessors.access_meter import AccessMeter

HOT_KEYS = 5
"""Keys reported of each operator, at most."""
_STATES = 200
"""Readings of state accesses reported, at most: those that took longest."""
COUNT_TIMERS_EVERY = 10
"""Timers are counted in one epoch out of so many: counting reads them."""


def with_details(
    measured: TaskMetrics,
    operators: Collection[Operator],
    *,
    background: BackgroundWork,
    uploads_answered: int,
    access_meters: Mapping[str, AccessMeter],
    pending_timers: Mapping[str, int],
    state: AttemptState,
) -> TaskMetrics:
    """Add what operators, their states and background work measured in an attempt; nothing if it does not measure."""
    if not measured.started_ms:
        return measured
    return msgspec.structs.replace(
        measured,
        uploads_started=sum(handle.started for handle in background.uploads),
        uploads_failed=sum(handle.failures for handle in background.uploads),
        uploads_queued=len(background.uploads) - uploads_answered,
        pending_timers=dict(pending_timers),
        hot_keys=_hot_keys(operators),
        states=_states(access_meters),
        store=dict(state.store_metrics),
        memory=dict(state.memory),
        state_sizes=dict(state.state_sizes),
        calls=tuple(figures for each in operators if isinstance(each, AsyncOperator) and (figures := each.figures())),
    )


def _hot_keys(operators: Iterable[Operator]) -> tuple[HotKey, ...]:
    return tuple(
        HotKey(operator.name, key, rows)
        for operator in operators
        if isinstance(operator, ProcessOperator) and operator.sketch is not None
        for key, rows in operator.sketch.top(HOT_KEYS)
    )


def _states(meters: Mapping[str, AccessMeter]) -> tuple[StateAccess, ...]:
    found = [
        StateAccess(
            operator=operator,
            state=reading.state,
            name=reading.name,
            count=reading.count,
            total=reading.total,
            median=reading.median,
            p99=reading.p99,
            most=reading.most,
        )
        for operator, meter in meters.items()
        for reading in meter.readings()
    ]
    # An acknowledgement reaches the driver in a control row, so its size is bounded however many states a job has.
    return tuple(sorted(found, key=lambda each: -each.total)[:_STATES])
