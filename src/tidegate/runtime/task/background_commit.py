"""Commits that the tasks of a worker process carry out for the driver: one task starts a commit, and it
continues while later tasks run.

The driver decides (`checkpoint.output.release_plan`) and keeps the records; the order to commit epochs of one slot is sent
with the task's assignment, and the result with an acknowledgement. Rows go from the job's storage to the target
without passing through the driver.

1. A task receives an order: committables of one slot, all of one stage, in epoch order; or of all
   slots of a sink, by (epoch, slot).
2. A thread calls a committer dedicated to that order. It may outlive its task, and dies with its process.
3. The next task that receives the order reports the result, and the driver drops the output. If the process died, or the
   epoch was discarded, the order is repeated, here or on another host.

An order may therefore be carried out twice, at the same time, or by a process that resumes long after its driver was
replaced. That is harmless. Its output was in a completed checkpoint, so it had to become visible. The current owner of the
job commits the same output, under the same slots, before anything later, and starts that only when the target has
confirmed it. The markers of the slots are then past everything in the late order, which is skipped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.output.staging import StagedReader
from tidegate.connectors.outcome import CommitOutcome, outcome_of
from tidegate.connectors.sink import Committable, Committer, CommitterContext, calls_of, check_markers, closes
from tidegate.core.faults import reach
from tidegate.core.history import History
from tidegate.core.ids import Lineage, Term, Uid
from tidegate.graph.model import SinkNode
from tidegate.runtime.exchange.assignment import Archive, CommitOrder
from tidegate.runtime.exchange.messages import OutputMark, TaskCommitResult
from tidegate.runtime.task.background_upload import storage_of

log = logging.getLogger("tidegate")

_Key = tuple[str, Term, Uid, int]
"""Run, term of the driver, sink and lane. Worker processes serve many jobs, including jobs of the
same name in several storages.
"""
_MOST = 256
"""Lanes whose committers, including their connections, a process keeps."""

_committers: dict[_Key, Committer] = {}
_running: dict[_Key, BackgroundCommit] = {}
_guard = threading.Lock()


@dataclass(kw_only=True)
class BackgroundCommit:
    """One order that this process is working on, or has finished."""

    order: CommitOrder
    done: threading.Event = field(default_factory=threading.Event)
    outcomes: Counter[str] = field(default_factory=Counter)
    outcome: CommitOutcome = CommitOutcome.COMMITTED
    error: str | None = None
    taken: list[Committable] = field(default_factory=list)
    duration_ms: int = 0
    is_reported: bool = False
    """Whether some task has acknowledged the result. Its epoch may have been discarded."""

    def run(self, committer: Callable[[], Committer], history: History | None = None) -> None:
        committables = self.order.committables
        started = time.monotonic()
        try:
            target = committer()
            if self.order.compares and history is not None:
                # Here and not in the driver, which could not reach the target when the job started.
                check_markers(target, self.order.sink, history)
            for part in calls_of(target, committables, lambda each: each.epoch):
                outcomes = target.commit(part)
                reach("task-commit.1-committed", sink=self.order.sink)
                self.outcomes.update(each.name for each in (outcomes or [CommitOutcome.COMMITTED] * len(part)))
                self.taken.extend(part)
        except Exception as error:
            self.outcome = outcome_of(error)
            self.error = str(error) or type(error).__name__
            self.outcomes[self.outcome.name] += 1
        finally:
            self.duration_ms = round((time.monotonic() - started) * 1000)
            # Last: who sees it reads the other attributes without a lock.
            self.done.set()

    def is_over(self, order: CommitOrder) -> bool:
        """Whether the next order of the slot may start: this one has ended, and is not the same order already completed."""
        if not self.done.is_set():
            return False
        # Report a failure before the next attempt: otherwise a failure that takes longer than
        # a task would never be reported.
        return self.is_reported if self.error is not None else self.order.end != order.end

    def answer(self, seconds: float) -> TaskCommitResult | None:
        """Return the result; None while the order is in progress."""
        if not self.done.wait(seconds):
            return None
        self.is_reported = True
        # After a success `marks` covers it.
        taken = _marks(self.taken) if self.error is not None else ()
        return TaskCommitResult(
            sink=self.order.sink,
            marks=_marks(self.order.committables),
            outcomes=dict(self.outcomes),
            outcome=self.outcome.name,
            error=self.error,
            taken=taken,
            duration_ms=self.duration_ms,
        )


def begin(
    archive: Archive,
    job: str,
    lineage: Lineage,
    term: Term,
    sink: SinkNode,
    order: CommitOrder,
    history: History | None = None,
) -> BackgroundCommit:
    """Start an order, unless this process is already working for that slot or has the result."""
    run = f"{archive.url} {job} {lineage}"
    key = (run, term, order.sink, order.lane)
    with _guard:
        earlier = _running.get(key)
        if earlier is not None and not earlier.is_over(order):
            return earlier
        _forget_older(run, term)
        _running.pop(key, None)  # Move it to the end: the entries at the beginning are evicted first.
        commit = _running[key] = BackgroundCommit(order=order)
    work = partial(commit.run, partial(_committer, key, archive, job, sink, history), history)
    threading.Thread(target=work, name=f"tidegate-commit-{order.sink}-{order.lane}", daemon=True).start()
    return commit


def _committer(key: _Key, archive: Archive, job: str, sink: SinkNode, history: History | None) -> Committer:
    """Return the committer of a lane, created by the thread that first needs it: creating one may contact
    the target, which may be down.
    """
    committer = _committers.get(key)
    if committer is None:
        staged = StagedReader(storage_of(archive), JobLayout(job), key[2])
        context = CommitterContext(sink.input.schema, staged.read, staged.check, lambda: history)
        committer = _committers[key] = sink.target.create_committer(context)
    return committer


def _forget_older(run: str, term: Term) -> None:
    """Drop the orders of earlier drivers of the job and the least recently used ones, with their connections."""
    ended = [key for key, each in _running.items() if each.done.is_set()]
    old = [key for key in ended if key[0] == run and key[1] < term]
    for key in old or ended[: max(0, len(_running) - _MOST)]:
        del _running[key]
        committer: object = _committers.pop(key, None)
        if closes(committer):
            try:
                committer.close()
            except Exception as error:
                log.warning("connections of sink %s could not be closed: %s", key[2], error)


def _marks(committables: Sequence[Committable]) -> tuple[OutputMark, ...]:
    last = {(each.lineage, each.slot): each.epoch for each in committables}
    return tuple(OutputMark(lineage, slot, epoch.term, epoch.number) for (lineage, slot), epoch in last.items())
