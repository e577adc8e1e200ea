"""Threads that commit output, one for each sink, so that an unresponsive target blocks only its own sink.

`OutputRelease` decides what is committed and when, and keeps the record of it. These threads only wait for targets:

1. They receive a `CommitBatch`: everything that is due for one sink, in order. A sink receives its next one after the
   result of the last, so it never has two commits in progress.
2. The sink's thread calls the committer. If the driver dies here, or has lost the job without knowing it yet, some of the output
   is committed, and the next owner finds the markers. All of it was in a completed checkpoint: it had to become visible, and
   nothing later becomes visible before it.
3. The result returns to `OutputRelease`.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tidegate.checkpoint.effects import Commit, CommitFailed, perform
from tidegate.checkpoint.output.committables import commit
from tidegate.checkpoint.output.release_plan import CommitBatch
from tidegate.connectors.outcome import CommitOutcome, outcome_of
from tidegate.connectors.sink import Committable, Committer, Settled, calls_of, check_markers, sweeps
from tidegate.core.errors import ConnectorError
from tidegate.core.ids import EpochId, Uid
from tidegate.core.log_setup import in_this_context
from tidegate.storage import Storage

log = logging.getLogger("tidegate")


class OutputStopped(ConnectorError):
    """A target does not take output and will not, or nobody can know whether it has. The job stops with its rows kept."""

    code = "OUTPUT_STOPPED"

    def __init__(
        self, sink: Uid, which: str, epoch: EpochId, outcome: CommitOutcome, error: object, kept: str = ""
    ) -> None:
        self.sink = sink
        self.epoch = epoch
        self.outcome = outcome
        kept = kept or "The rows stay in the newest checkpoint and are offered again by the next start."
        super().__init__(f"Output of sink {sink!r} ({which}): {outcome.value}. {error} {kept}")


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a commit. `error` is None if the target has accepted all of it, a `CommitFailed` if it is to be
    retried, and anything else if the job cannot continue.
    """

    batch: CommitBatch
    outcomes: tuple[CommitOutcome, ...]
    error: BaseException | None
    taken: tuple[Committable, ...] = ()
    """What the target definitely accepted, if it did not accept everything: the first ones."""
    duration_ms: int = 0


class SinkThreads:
    """The threads of all sinks. They outlive a term of the job that is claimed again: a committer only ever has one thread."""

    def __init__(self, committers: Mapping[Uid, Committer], storage: Storage, unasked: Iterable[Uid] = ()) -> None:
        self.unasked = set(unasked)
        """Sinks whose targets could not be asked for their markers when the job started, and have taken nothing since."""
        self._sinks = {uid: _SinkThread(uid, committer, storage) for uid, committer in committers.items()}

    @property
    def uids(self) -> Collection[Uid]:
        return self._sinks.keys()

    def commit(self, batch: CommitBatch, on_result: Callable[[CommitResult], None]) -> None:
        """Returns immediately. The thread of the sink calls `on_result` with the result."""
        sink = self._sinks.get(batch.sink)
        if sink is None:
            why = f"The checkpoint holds output for sink {batch.sink!r}, which this job no longer defines."
            on_result(CommitResult(batch, (), CommitFailed(why)))
            return
        sink.begin(lambda: on_result(sink.commit(batch)))

    def sweep(self, upto: Settled) -> None:
        """Let a sink remove what discarded attempts left in its target. Returns immediately."""
        sink = self._sinks[upto.sink]
        if sink.sweeps:
            sink.begin_sweep(upto)

    def is_own_thread(self) -> bool:
        """Whether the caller runs on the thread of a sink, for example in a user callback."""
        return any(sink.thread is threading.current_thread() for sink in self._sinks.values())

    def stop(self, timeout_s: float) -> None:
        """Start nothing more, and wait for work in progress."""
        latest = time.monotonic() + timeout_s
        for sink in self._sinks.values():
            # All first, then wait: the time is for all of them together.
            sink.stop()
        for sink in self._sinks.values():
            sink.join(max(0.0, latest - time.monotonic()))


class _SinkThread:
    """One sink's committer, and the only thread that uses it."""

    def __init__(self, uid: Uid, committer: Committer, storage: Storage) -> None:
        self._uid = uid
        self._committer = committer
        self._storage = storage
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._sweep_upto: Settled | None = None
        self._sweep_lock = threading.Lock()
        self._stopped = False
        self.thread: threading.Thread | None = None

    @property
    def sweeps(self) -> bool:
        return sweeps(self._committer)

    def begin(self, work: Callable[[], None]) -> None:
        if self.thread is None:
            # With the first work: a sink without output needs no thread.
            run, name = in_this_context(self._run), f"tidegate-sink-{self._uid}"
            self.thread = threading.Thread(target=run, name=name, daemon=True)
            self.thread.start()
        self._inbox.put(work)

    def begin_sweep(self, upto: Settled) -> None:
        """Schedule a sweep. One that has not started is replaced: the later one covers it."""
        with self._sweep_lock:
            waits = self._sweep_upto is not None
            self._sweep_upto = upto
        if not waits:
            self.begin(self._sweep)

    def _take_sweep(self) -> Settled | None:
        with self._sweep_lock:
            upto = self._sweep_upto
            self._sweep_upto = None
        return upto

    def stop(self) -> None:
        self._stopped = True
        self._inbox.put(None)

    def join(self, timeout_s: float) -> None:
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(timeout_s)

    def _run(self) -> None:
        while (work := self._inbox.get()) is not None and not self._stopped:
            work()

    def commit(self, batch: CommitBatch) -> CommitResult:
        outcomes: list[CommitOutcome] = []
        taken: list[Committable] = []

        def call(effect: Commit) -> None:
            # Right before the commit: what another owner commits in between is not seen.
            with classified():
                if effect.compare_with is not None:
                    check_markers(self._committer, self._uid, effect.compare_with)
            for part in calls_of(self._committer, effect.committables, lambda c: c.epoch):
                with classified():
                    results = self._committer.commit(list(part))
                # A committer that returns nothing has committed all of it.
                outcomes.extend(results or [CommitOutcome.COMMITTED] * len(part))
                taken.extend(part)

        @contextmanager
        def classified() -> Iterator[None]:
            try:
                yield
            except Exception as error:
                outcome = outcome_of(error)
                outcomes.append(outcome)
                if outcome.stops_the_job:
                    first = batch.committables[0].epoch
                    raise OutputStopped(
                        sink=batch.sink, which=_span(batch), epoch=first, outcome=outcome, error=error
                    ) from error
                raise CommitFailed(str(error) or type(error).__name__) from error

        error: BaseException | None = None
        started = time.monotonic()
        try:
            perform(commit(batch), self._storage, call)
        except BaseException as problem:
            error = problem
        took_ms = round((time.monotonic() - started) * 1000)
        return CommitResult(batch, tuple(outcomes), error, taken=tuple(taken), duration_ms=took_ms)

    def _sweep(self) -> None:
        upto = self._take_sweep()
        assert upto is not None
        assert sweeps(self._committer)
        try:
            self._committer.sweep(upto)
        except Exception as error:
            log.warning("orphans of discarded attempts at sink %s are left for the next sweep: %s", self._uid, error)


def _span(batch: CommitBatch) -> str:
    first, last = batch.committables[0].epoch, batch.last
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"
