"""The five questions of someone on call, answered from a report. Pure.

The command line, REST, notebooks and the web UI show these answers, and none of them decides again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tidegate.checkpoint.coordination.statistics import CheckpointStats, CheckpointStatsSnapshot
from tidegate.core.durations import show_ms
from tidegate.runtime.monitoring.rescale_history import RescaleState
from tidegate.runtime.monitoring.run_report import DRIVER_LOST, BacklogSample, FailureLine, RunEnd, RunReport, TaskLine

RECENT_MS = 600_000
"""For so long a problem that has passed is still worth a look."""
OVERDUE_INTERVALS = 3
"""Work that no checkpoint contains after so many intervals is too old, as in the alert `TidegateCheckpointTooOld`."""
GRACE_MS = 10_000
IDLE_MS = 30_000
"""A job that has read no row for so long is idle."""
LONG_EPOCH_MS = 10_000
"""An epoch that runs for so long has rows: one that only stores a checkpoint is shorter."""
RATE_WINDOW_MS = 60_000
"""Rates are those of the epochs that ended in this time."""
CONSEQUENCE_MS = 10_000
"""A checkpoint that fails so soon after an exception fails because of it."""
TREND = 6
"""So many samples in a row must grow before a job falls behind."""
BUSY = 0.5
SKEWED = 2.0


class Tone(StrEnum):
    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    NONE = "none"
    """There is nothing to judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Times are milliseconds since 1970; a reader shows them as ages, which grow without a new report."""

    question: str
    tone: Tone
    answer: str
    answer_at_ms: int | None = None
    """If set, the age of this time is the answer."""
    detail: str = ""
    at_ms: int | None = None
    """The time that the detail ends with."""
    page: str | None = None
    """The page of the web UI that has more about it."""
    item: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rows per second."""

    rows_in: float
    operators: Mapping[str, tuple[float, float]]
    """In and out, by the name under which tasks count them."""


def answers(report: RunReport, now_ms: int) -> tuple[Answer, ...]:
    """Whether the job is healthy and keeps up, its last checkpoint, its slowest task, its last problem: always these five."""
    return (
        _healthy(report, now_ms),
        _keeping_up(report, now_ms),
        _last_checkpoint(report, now_ms),
        _slowest_task(report),
        _last_problem(report, now_ms),
    )


def rates(report: RunReport, now_ms: int) -> Rates:
    """Rows per second now. Without rows they fall, and a minute after the last epoch they are 0."""
    until_ms = now_ms
    if report.status != "RUNNING":
        until_ms = report.epochs[-1].ended_ms if report.epochs else now_ms  # the rates that the job had
    elif report.running_since_ms is not None:
        until_ms = min(now_ms, report.running_since_ms)  # the rows of the epoch that runs are not counted yet
    epochs = [each for each in report.epochs if each.ended_ms > until_ms - RATE_WINDOW_MS]
    found: dict[str, tuple[float, float]] = dict.fromkeys(report.operators, (0.0, 0.0))
    if not epochs:
        return Rates(rows_in=0.0, operators=found)
    # The oldest of them counts whole, so its time does, too.
    began_ms = epochs[0].ended_ms - epochs[0].duration_ms
    seconds = max(1, until_ms - began_ms) / 1000
    for epoch in epochs:
        for name, (rows_in, rows_out) in epoch.operators.items():
            before = found.get(name, (0.0, 0.0))
            found[name] = (before[0] + rows_in / seconds, before[1] + rows_out / seconds)
    return Rates(rows_in=sum(each.rows_in for each in epochs) / seconds, operators=found)


def end_text(report: RunReport) -> str | None:
    """How the run ended, as people read it; None while it runs. Its status is Flink's, which calls every stop CANCELED."""
    if report.status in ("FINISHED", "CANCELED") and report.end is not None:
        return _ENDS[report.end]
    return _ENDED.get(report.status)


# -- is it healthy? ------------------------------------------------------------------------------------------------------------

_ENDS = {
    RunEnd.SAVEPOINT: "Stopped with savepoint",
    RunEnd.STOPPED: "Stopped",
    RunEnd.CANCELED: "Canceled",
    RunEnd.INPUT: "Finished",
}
_ENDED = {"FINISHED": "Finished", "CANCELED": "Stopped", "FAILED": "Failed", "LOST": "Driver gone"}
"""By status: for a record of an older version, which does not say how its run ended, and for an end that nobody asked for."""
_UNDER_WAY = {"INITIALIZING": "Starting", "CREATED": "Starting", "CANCELLING": "Stopping"}


def _healthy(report: RunReport, now_ms: int) -> Answer:
    question = "Healthy?"
    last = _newest(report.failures)
    ended = end_text(report)
    if ended is not None:
        match report.status:
            case "FAILED":
                kind = "" if last is None else last.kind
                return Answer(question=question, tone=Tone.BAD, answer=ended, detail=kind, at_ms=report.ended_ms)
            case "LOST":
                return Answer(
                    question=question, tone=Tone.BAD, answer=ended, detail="last report", at_ms=report.written_ms
                )
        detail = report.end_place or "ended"
        return Answer(question=question, tone=Tone.NONE, answer=ended, detail=detail, at_ms=report.ended_ms)
    match report.status:
        case "RESTARTING":
            return _restarting(question, report, last)
        case "RUNNING":
            return _problem(question, report, now_ms) or _well(question, report)
    text = _UNDER_WAY.get(report.status, report.status.capitalize())
    return Answer(question=question, tone=Tone.NONE, answer=text, detail="started", at_ms=report.started_ms)


def _well(question: str, report: RunReport) -> Answer:
    if _is_in_first_epoch(report):
        return Answer(
            question=question,
            tone=Tone.NONE,
            answer="Starting",
            detail="first epoch began",
            at_ms=report.running_since_ms,
        )
    return Answer(question=question, tone=Tone.OK, answer="Healthy", detail="started", at_ms=report.started_ms)


def _is_in_first_epoch(report: RunReport) -> bool:
    """In it, tasks open their operators and restore their state: until it ends, nothing is known to work."""
    return not report.epochs and report.running_since_ms is not None


def _restarting(question: str, report: RunReport, last: FailureLine | None) -> Answer:
    rescale = report.rescales[0] if report.rescales else None
    if rescale is not None and rescale.state is RescaleState.IN_PROGRESS:
        detail = f"to {rescale.new_parallelism} slots"
        return Answer(question=question, tone=Tone.WARN, answer="Rescaling", detail=detail)
    if last is None:
        return Answer(question=question, tone=Tone.BAD, answer="Restarting")
    return Answer(question=question, tone=Tone.BAD, answer="Restarting", detail=last.kind, at_ms=last.at_ms)


def _problem(question: str, report: RunReport, now_ms: int) -> Answer | None:
    """What is wrong with a job that runs, the worst first."""
    # From the worst to the mildest; the first that applies is the answer.
    for sink in report.sinks:
        if sink.error is not None:
            return Answer(
                question=question, tone=Tone.BAD, answer="Output fails", detail=f"sink {sink.sink}", page="output"
            )
    found = report.checkpoints
    failed = None if found is None else _failing(found)
    if found is not None and failed is not None:
        return Answer(question=question, tone=Tone.BAD, answer="Checkpoints fail", detail=_after(found, failed))
    if report.held_by is not None:
        detail = f"sink {report.held_by} must take output first"
        return Answer(question=question, tone=Tone.WARN, answer="Reads nothing", detail=detail, page="output")
    if _is_overdue(report, now_ms):
        return Answer(
            question=question,
            tone=Tone.WARN,
            answer="Checkpoint late",
            detail="uncheckpointed work from",
            at_ms=report.unprotected_since_ms,
        )
    last = _newest(report.failures)
    if last is not None and now_ms - last.at_ms < RECENT_MS:
        detail = f"{_plural(report.restarts, 'restart')}, last"
        if last.kind == DRIVER_LOST:
            detail = "after the previous driver died,"
        return Answer(question=question, tone=Tone.WARN, answer="Restarted", detail=detail, at_ms=last.at_ms)
    return None


def _failing(found: CheckpointStatsSnapshot) -> CheckpointStats | None:
    """The last checkpoint, if it failed. One that a restart or the end of the job broke off says nothing about checkpoints."""
    failed, completed = found.latest_failed, found.latest_completed
    if failed is None or (completed is not None and completed.trigger_timestamp >= failed.trigger_timestamp):
        return None
    return failed if failed.failure is None or failed.failure.counted else None


def _after(found: CheckpointStatsSnapshot, failed: CheckpointStats) -> str:
    completed = found.latest_completed
    return f"#{failed.id} failed; " + ("none completed" if completed is None else f"last good #{completed.id}")


def _is_overdue(report: RunReport, now_ms: int) -> bool:
    """Whether a checkpoint is late: only work that none contains needs one. An idle job takes none, however long."""
    config, since_ms = report.checkpoint_config, report.unprotected_since_ms
    if config is None or config.interval_ms is None or since_ms is None or report.checkpoints is None:
        return False
    return now_ms - since_ms > OVERDUE_INTERVALS * config.interval_ms + GRACE_MS


# -- does it keep up? ----------------------------------------------------------------------------------------------------------


def _keeping_up(report: RunReport, now_ms: int) -> Answer:
    question = "Keeping up?"
    if report.status != "RUNNING":
        return _not_running(question, report, now_ms)
    if report.held_by is not None:
        detail = _backlog(report, now_ms)
        return Answer(
            question=question, tone=Tone.BAD, answer=f"Held by {report.held_by}", detail=detail, page="output"
        )
    if not report.epochs:
        return Answer(question=question, tone=Tone.NONE, answer="No epoch yet")
    idle = _idle(question, report, now_ms)
    if idle is not None:
        return idle
    detail = _backlog(report, now_ms)
    if falls_behind(report.backlog):
        return Answer(question=question, tone=Tone.WARN, answer="Falling behind", detail=detail)
    return Answer(question=question, tone=Tone.OK, answer="Yes", detail=detail)


def _not_running(question: str, report: RunReport, now_ms: int) -> Answer:
    if not report.epochs:
        return Answer(question=question, tone=Tone.NONE, answer="No epoch")
    last = report.epochs[-1]
    detail = f"{_rate(rates(report, now_ms).rows_in)} until"
    return Answer(question=question, tone=Tone.NONE, answer="Not running", detail=detail, at_ms=last.ended_ms)


def _idle(question: str, report: RunReport, now_ms: int) -> Answer | None:
    """Rows that wait, or an epoch that takes long, mean that the job is not idle, however long ago the last rows came."""
    if _pending_rows(report):
        return None
    if _runs_long(report, now_ms):
        return None
    last = next((each for each in reversed(report.epochs) if each.rows_in > 0), None)
    if last is None:
        return Answer(question=question, tone=Tone.OK, answer="Idle", detail="no rows yet")
    if now_ms - last.ended_ms < IDLE_MS:
        return None
    return Answer(question=question, tone=Tone.OK, answer="Idle", detail="last rows", at_ms=last.ended_ms)


def _runs_long(report: RunReport, now_ms: int) -> bool:
    return report.running_since_ms is not None and now_ms - report.running_since_ms >= LONG_EPOCH_MS


def falls_behind(backlog: Sequence[BacklogSample]) -> bool:
    """Whether rows wait longer and longer in the sources: each of the last samples is above the one before."""
    last = backlog[-TREND:]
    if len(last) < TREND:
        return False
    return _grows([each.pending_rows for each in last]) or _grows([each.lag_ms for each in last])


def _grows(values: Sequence[int | None]) -> bool:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return False
    return all(earlier < later for earlier, later in pairwise(known))


def _backlog(report: RunReport, now_ms: int) -> str:
    parts = [_rate(rates(report, now_ms).rows_in)]
    lags = [each.event_time_lag_ms for each in report.sources if each.event_time_lag_ms is not None]
    if lags:
        parts.append(f"{_span(max(lags))} behind")
    pending = _pending_rows(report)
    if pending is not None:
        parts.append(f"{pending:,} pending")
    return " · ".join(parts)


def _pending_rows(report: RunReport) -> int | None:
    known = [each.pending_rows for each in report.sources if each.pending_rows is not None]
    return sum(known) if known else None


# -- the last checkpoint, the slowest task, the last problem -------------------------------------------------------------------


def _last_checkpoint(report: RunReport, now_ms: int) -> Answer:
    question = "Last checkpoint"
    found = report.checkpoints
    if found is None:
        return Answer(question=question, tone=Tone.NONE, answer="Off", detail="no checkpoint directory")
    completed, failed = found.latest_completed, _failing(found)
    at_ms = None if completed is None else completed.latest_ack_timestamp
    if failed is not None:
        return Answer(question=question, tone=Tone.BAD, answer="None", answer_at_ms=at_ms, detail=_after(found, failed))
    if completed is None:
        return Answer(question=question, tone=Tone.NONE, answer="None yet", detail=_before_first(found))
    is_running = report.status == "RUNNING"
    if is_running and _is_overdue(report, now_ms):
        config = report.checkpoint_config
        every = "" if config is None or config.interval_ms is None else f"every {show_ms(config.interval_ms)} expected"
        return Answer(question=question, tone=Tone.WARN, answer="", answer_at_ms=at_ms, detail=every)
    detail = f"#{completed.id} took {_span(completed.end_to_end_ms)}"
    has_more = _is_in_first_epoch(report) or _runs_long(report, now_ms)
    if is_running and report.unprotected_since_ms is None and not has_more:
        detail += ", contains every row"
    return Answer(
        question=question, tone=Tone.OK if is_running else Tone.NONE, answer="", answer_at_ms=at_ms, detail=detail
    )


def _before_first(found: CheckpointStatsSnapshot) -> str:
    if found.counts.in_progress:
        return f"{found.counts.in_progress} in progress"
    restored = found.latest_restored
    if restored is None:
        return ""
    return f"started from {'savepoint' if restored.is_savepoint else 'checkpoint'} #{restored.id}"


def _slowest_task(report: RunReport) -> Answer:
    question = "Slowest task"
    busiest: TaskLine | None = None
    for task in report.tasks:
        if busiest is None or (task.busy, _skew(report, task) or 0) > (busiest.busy, _skew(report, busiest) or 0):
            busiest = task
    if busiest is None:
        return Answer(question=question, tone=Tone.NONE, answer="No task")
    skew = _skew(report, busiest)
    detail = f"{busiest.busy:.0%} busy".replace("%", " %")
    if skew is not None:
        detail += f" · {skew:.3g}× the mean rows"
    is_skewed = skew is not None and skew >= SKEWED and busiest.busy >= BUSY
    return Answer(question=question, tone=Tone.WARN if is_skewed else Tone.NONE, answer=busiest.task, detail=detail)


def _skew(report: RunReport, task: TaskLine) -> float | None:
    """How many times the mean of its level a task read."""
    level = [each.rows_in for each in report.tasks if each.level == task.level]
    total = sum(level)
    return task.rows_in * len(level) / total if total else None


def _last_problem(report: RunReport, now_ms: int) -> Answer:
    question = "Last problem"
    failure = _newest(report.failures)

    failed = None if report.checkpoints is None else report.checkpoints.latest_failed
    if failed is not None and failed.failure is not None and not failed.failure.counted:
        failed = None  # A restart or the end of the job broke it off.

    failed_ms = None
    if failed is not None:
        failed_ms = failed.failure_timestamp if failed.failure_timestamp > 0 else failed.trigger_timestamp

    # An exception aborts the checkpoints in progress: the exception is the problem, and they are its consequence.
    if failure is not None and (failed_ms is None or failure.at_ms + CONSEQUENCE_MS >= failed_ms):
        return Answer(
            question=question,
            tone=_severity(failure.at_ms, now_ms, report.status == "RUNNING"),
            answer=failure.kind,
            detail="restarted," if failure.restarted else "not restarted,",
            at_ms=failure.at_ms,
            page="exceptions",
        )

    if failed is None or failed_ms is None or report.checkpoints is None:
        return Answer(question=question, tone=Tone.NONE, answer="None", detail="since the first start")

    completed = report.checkpoints.latest_completed
    return Answer(
        question=question,
        tone=_severity(failed_ms, now_ms, completed is not None and completed.id > failed.id),
        answer=f"Checkpoint #{failed.id}",
        detail="failed",
        at_ms=failed_ms,
        page="checkpoints",
        item=failed.id,
    )


def _severity(at_ms: int, now_ms: int, has_recovered: bool) -> Tone:
    """Bad until the job has recovered, and worth a look for a while after that."""
    if not has_recovered:
        return Tone.BAD
    return Tone.WARN if now_ms - at_ms < RECENT_MS else Tone.NONE


def _newest(failures: Sequence[FailureLine]) -> FailureLine | None:
    return failures[0] if failures else None


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _rate(per_second: float) -> str:
    """Three significant digits: `12.4 k rows/s`."""
    for factor, unit in ((1e6, "M "), (1e3, "k ")):
        if per_second >= factor:
            return f"{per_second / factor:.3g} {unit}rows/s"
    return f"{per_second:.3g} rows/s"


def _span(ms: int) -> str:
    """`840 ms`, `1.2 s`, `3 min 4 s`, `2 h 5 min`."""
    if ms < 0:
        return f"-{_span(-ms)}"
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.3g} s"
    seconds = ms // 1000
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
