"""What options say together: combinations that are refused, and those that do not do what they seem to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from tidegate.config.choices import CheckpointingMode, ClaimMode, RestartType
from tidegate.config.declared import (
    autoscaler,
    checkpointing,
    measuring,
    recovery,
    reporting,
    restart,
    state,
    unaligned,
)
from tidegate.config.errors import OptionNote
from tidegate.config.option import Option
from tidegate.core.durations import show_ms

T = TypeVar("T")


class GetOption(Protocol):
    """Looks an option's value up."""

    def __call__(self, option: Option[T], /) -> T: ...


def conflicts(get: GetOption) -> Iterator[str]:
    """Flink's refusals, each with the way out."""
    # In Flink, checkpoints without a directory stay in the memory of the JobManager. Here nothing would outlive the driver.
    interval, backlog = get(checkpointing.INTERVAL), get(checkpointing.INTERVAL_DURING_BACKLOG)
    if interval is not None and not get(checkpointing.DIR):
        yield (
            f"{checkpointing.INTERVAL.key} switches checkpoints on, and {checkpointing.DIR.key} does not say where "
            "they go: set it to storage that outlives the driver and that all executors reach."
        )
    if interval is not None and backlog and backlog < interval:
        yield f"{checkpointing.INTERVAL_DURING_BACKLOG.key} must be 0 or at least {checkpointing.INTERVAL.key}."
    if get(unaligned.UNALIGNED):
        if get(checkpointing.MODE) is not CheckpointingMode.EXACTLY_ONCE:
            yield f"{unaligned.UNALIGNED.key} needs {checkpointing.MODE.key} EXACTLY_ONCE."
        if get(checkpointing.MAX_CONCURRENT) > 1:
            yield f"{unaligned.UNALIGNED.key} needs {checkpointing.MAX_CONCURRENT.key} 1."
    if get(unaligned.DURING_RECOVERY) and not get(unaligned.RECOVER_ON_DOWNSTREAM):
        yield f"{unaligned.DURING_RECOVERY.key} needs {unaligned.RECOVER_ON_DOWNSTREAM.key}."
    if get(state.CHANGELOG):
        if get(checkpointing.MAX_CONCURRENT) > 1:
            yield f"{state.CHANGELOG.key} needs {checkpointing.MAX_CONCURRENT.key} 1."
        if get(recovery.PATH) and get(recovery.CLAIM_MODE) is ClaimMode.NO_CLAIM:
            yield f"{state.CHANGELOG.key} cannot restore with NO_CLAIM; set {recovery.CLAIM_MODE.key} to CLAIM."
    yield from _without_endpoint(get)
    yield from _utilizations(get)
    if get(restart.EXP_INITIAL) > get(restart.EXP_MAX):
        yield f"{restart.EXP_INITIAL.key} must be at most {restart.EXP_MAX.key}."


def _utilizations(get: GetOption) -> Iterator[str]:
    """As in Flink, only if the autoscaler is on."""
    if not get(autoscaler.ENABLED):
        return
    target, least, most = get(autoscaler.TARGET), get(autoscaler.MIN_UTILIZATION), get(autoscaler.MAX_UTILIZATION)
    if most is not None and most < target:
        yield f"{autoscaler.MAX_UTILIZATION.key} must be at least {autoscaler.TARGET.key}, which is {target:g}."
    if least is not None and least > target:
        yield f"{autoscaler.MIN_UTILIZATION.key} must be at most {autoscaler.TARGET.key}, which is {target:g}."
    if get(autoscaler.MIN_PARALLELISM) > get(autoscaler.MAX_PARALLELISM):
        yield f"{autoscaler.MIN_PARALLELISM.key} must be at most {autoscaler.MAX_PARALLELISM.key}."


def _without_endpoint(get: GetOption) -> Iterator[str]:
    for signal, exporter in reporting.EXPORTERS.items():
        if reporting.OTEL in (get(exporter.reporters) or ()) and get(exporter.endpoint) is None:
            yield f"{exporter.reporters.key} names the reporter otel; {exporter.endpoint.key} must say where {signal} go."


def remarks(get: GetOption) -> Iterator[OptionNote]:
    """What is raised, lowered or unused because of another option."""
    interval, pause = get(checkpointing.INTERVAL), get(checkpointing.MIN_PAUSE)
    if interval is not None and pause > interval:
        yield OptionNote(
            checkpointing.INTERVAL.key, f"Raised to {show_ms(pause)}, which is {checkpointing.MIN_PAUSE.key}."
        )
    if pause and get(checkpointing.MAX_CONCURRENT) > 1:
        yield OptionNote(
            checkpointing.MAX_CONCURRENT.key,
            f"Lowered to 1: a pause after each checkpoint ({checkpointing.MIN_PAUSE.key}) leaves no room for another.",
        )
    if get(unaligned.ALIGNED_TIMEOUT) and not get(unaligned.UNALIGNED):
        yield OptionNote(unaligned.ALIGNED_TIMEOUT.key, f"Unused without {unaligned.UNALIGNED.key}.")
    if get(autoscaler.SCALING_ENABLED) and not get(autoscaler.ENABLED):
        yield OptionNote(autoscaler.SCALING_ENABLED.key, f"Unused without {autoscaler.ENABLED.key}.")
    if get(autoscaler.ENABLED) and not get(measuring.TASKS):
        yield OptionNote(
            autoscaler.ENABLED.key, f"Without {measuring.TASKS.key} no task says how busy it is; nothing is decided."
        )
    if interval is None and get(restart.TYPE) not in (None, RestartType.NONE):
        yield OptionNote(restart.TYPE.key, "Checkpointing is off, so the job is not restarted.")
