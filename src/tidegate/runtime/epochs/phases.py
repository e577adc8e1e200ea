"""Where the time of an epoch went. Pure: made of what tasks and Spark report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.runtime.exchange.messages import TaskAck


def epoch_phases(
    acks: Iterable[TaskAck], *, before_ms: int, plan_ms: int, began_ms: int, run_ms: int
) -> dict[str, int]:
    """Return the milliseconds of each phase.

    `repeat` is the time before the last try: tries that were discarded, and placing tasks. `plan` builds the DataFrame. `run` is
    the Spark job, which began at `began_ms` and has these parts: `source`, until the first task of level 1 begins; `level N`,
    until the first task of the next level begins or, for the last one, its last task ends; `collect`, until the driver has the
    acknowledgements. Without measurements of tasks, these parts are missing.

    Hosts have clocks of their own. A moment that cannot be, before the one that precedes it, counts as the same moment.
    """
    phases = {"repeat": before_ms, "plan": plan_ms, "run": run_ms}
    begins: dict[int, int] = {}
    last_ends: dict[int, int] = {}
    for ack in acks:
        found = ack.metrics
        if ack.level > 0 and found.started_ms:
            ended_ms = found.started_ms + found.busy_ms + found.idle_ms + found.held_ms
            begins[ack.level] = min(found.started_ms, begins.get(ack.level, found.started_ms))
            last_ends[ack.level] = max(ended_ms, last_ends.get(ack.level, ended_ms))
    if not begins:
        return phases
    # Each phase ends where the next one begins, so that together they are the whole run.
    levels = sorted(begins)
    names = ["source", *(f"level {level}" for level in levels), "collect"]
    ends = [*(begins[level] for level in levels), last_ends[levels[-1]], began_ms + run_ms]
    reached_ms = began_ms
    for name, end_ms in zip(names, ends):
        end_ms = min(max(end_ms, reached_ms), began_ms + run_ms)
        phases[name], reached_ms = end_ms - reached_ms, end_ms
    return phases


def between_epochs_ms(durations: Mapping[str, int]) -> int | None:
    """What Structured Streaming took for a batch besides the epoch: finding offsets, planning, writing its logs. `durations` are
    those of the query's progress. None: it has none.
    """
    whole, epoch = durations.get("triggerExecution"), durations.get("addBatch")
    if whole is None or epoch is None:
        return None
    return max(0, whole - epoch)
