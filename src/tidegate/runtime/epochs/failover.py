"""What to do if an epoch is not complete. Pure: takes the cause and the counters, returns the next action."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tidegate.core.errors import UserCodeError
from tidegate.core.ids import HostId, Slot, TaskId
from tidegate.runtime.epochs.check import Broken, Damaged, Missed, Unrestorable
from tidegate.runtime.exchange.messages import TaskAck
from tidegate.runtime.exchange.user_code import SinkWriteFailed, UserErrorReport


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The Spark job of the epoch failed, or was interrupted at its deadline: lost executors, aborted stages."""

    reason: str


Cause = Missed | Broken | Damaged | Interrupted | Unrestorable


@dataclass(frozen=True, slots=True)
class Counters:
    """How often epochs were discarded, by the action taken. Only a rewind is a restart in Flink's sense."""

    repeats: int = 0
    """All but replacements."""
    replacements: int = 0
    rewinds: int = 0
    interrupted: int = 0
    """Repeats because the Spark job failed."""
    user_errors: int = 0
    """Repeats because a function raised."""
    misplaced_tasks: int = 0
    """Tasks that ran on a host without their state."""


class RepeatCause(StrEnum):
    """Why an epoch is run again."""

    MISPLACED = "misplaced"
    """Tasks ran on the wrong host, so that placing them again is the remedy."""
    INTERRUPTED = "interrupted"
    INCOMPLETE = "incomplete"
    USER_ERROR = "user_error"


@dataclass(frozen=True, slots=True)
class Repeat:
    """Run the epoch again from the same versions, with partitions placed again."""

    reason: str
    cause: RepeatCause
    misplaced_tasks: int = 0


@dataclass(frozen=True, slots=True)
class Rewind:
    """Versions are gone: only a checkpoint can restore them."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    reason: str


def decide(cause: Cause, homes: Mapping[TaskId, HostId], tries: int, max_tries: int) -> Repeat | Rewind | Fail:
    """`homes` are the hosts of the versions the epoch started from; `tries` is how often this epoch was tried."""
    match cause:
        case Missed(acks):
            # A miss on the very host that sealed the version: it is gone, and searching for it again would find nothing.
            gone = [ack for ack in acks if homes.get(_task(ack)) == ack.host]
            if gone:
                return Rewind(f"{_shown(gone)}: the state version is missing from its host")
            action = Repeat(f"{_shown(acks)}: ran on a host without its state", RepeatCause.MISPLACED, len(acks))
        case Damaged(acks):
            return Rewind("; ".join(ack.fault.text for ack in acks if ack.fault is not None))
        case Unrestorable(acks):
            return Fail("; ".join(sorted({ack.fault.text for ack in acks if ack.fault is not None})))
        case Broken(reason):
            action = Repeat(reason, RepeatCause.INCOMPLETE)
        case Interrupted(reason):
            action = Repeat(reason, RepeatCause.INTERRUPTED)
    if tries >= max_tries:
        advice = (
            "Spark does not wait until the hosts of the state are free: set spark.locality.wait to 10s or more, or "
            "give the job cores that no other job uses"
            if action.cause is RepeatCause.MISPLACED
            else "Check the logs of the executors"
        )
        return Fail(f"tried {tries} times; the last time: {action.reason}. Nothing of it became visible. {advice}.")
    return action


def after_user_error(
    now: Sequence[UserErrorReport], before: Sequence[UserErrorReport] | None
) -> Repeat | UserCodeError | SinkWriteFailed:
    """Decide what to do about functions that raised in an epoch; `before` is what raised in the previous try. Return the
    error to raise, or one more try if that may help: a programming mistake would only recur.
    """
    again = {report.same_row for report in before or ()}
    for report in now:
        if report.programming:
            return report.to_error()
    # The first time: perhaps a service that the function calls was away.
    if before is None:
        return Repeat(f"operator {now[0].operator!r} raised {now[0].error}", RepeatCause.USER_ERROR)
    for report in now:
        # The same error at the same row is not chance.
        if report.same_row in again:
            return report.to_error(repeated=True)
    return now[0].to_error()


def count(counters: Counters, action: Repeat | Rewind | Fail) -> Counters:
    match action:
        case Repeat(cause=RepeatCause.MISPLACED, misplaced_tasks=tasks):
            away = counters.misplaced_tasks + tasks
            return replace(counters, replacements=counters.replacements + 1, misplaced_tasks=away)
        case Repeat(cause=cause):
            return replace(
                counters,
                repeats=counters.repeats + 1,
                interrupted=counters.interrupted + (cause is RepeatCause.INTERRUPTED),
                user_errors=counters.user_errors + (cause is RepeatCause.USER_ERROR),
            )
        case Rewind():
            return replace(counters, rewinds=counters.rewinds + 1)
        case Fail():
            return counters


def first_line(error: BaseException) -> str:
    """Return what happened, in one line. An error of the JVM starts with the failed call and wraps its cause."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if causes and lines[0].startswith("An error occurred while calling"):
        return causes[-1][:500]
    return lines[0][:500]


_JAVA_STACK = re.compile(r"^(?:\s*(?:at \S+\(.*\)|\.\.\. \d+ more)|Driver stacktrace:)\n?", re.MULTILINE)


def without_java(text: str) -> str:
    """Return the text of an error of Spark without the stack of the JVM, which says where Spark noticed it."""
    shown = _JAVA_STACK.sub("", text.partition("JVM stacktrace:")[0])
    return re.sub(r"\n{2,}", "\n", shown).strip()


def _task(ack: TaskAck) -> TaskId:
    return TaskId(ack.level, Slot(ack.sender))


def _shown(acks: tuple[TaskAck, ...] | list[TaskAck]) -> str:
    return ", ".join(str(_task(ack)) for ack in acks)
