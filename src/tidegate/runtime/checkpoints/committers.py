"""The committers of a job, and output that is committed with its epoch."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.output.sink_commits import SinkCommits
from tidegate.checkpoint.output.staging import StagedReader
from tidegate.connectors.outcome import RetryLater, outcome_of
from tidegate.connectors.sink import (
    Committable,
    Committer,
    CommitterContext,
    Settled,
    checks_target,
    closes,
    lists_markers,
    prepare,
    sweeps,
)
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.errors import TidegateError
from tidegate.core.history import History
from tidegate.core.ids import EpochId, Lineage, Uid
from tidegate.graph.model import Graph
from tidegate.runtime.checkpoints.sink_threads import OutputStopped
from tidegate.storage import Storage

log = logging.getLogger("tidegate")


@contextmanager
def _named(sink: Uid) -> Iterator[None]:
    """Begin the message of an error with the sink: targets do not know it, and a job may have several of one kind."""
    try:
        yield
    except TidegateError as error:
        # The same error, since its type and attributes say what to do about it.
        text = str(error)
        if not text.startswith("Sink "):
            error.args = (f"Sink {sink!r}: {text}",)
        raise


class Committers:
    """The committers of a job, for output that is committed with its epoch."""

    def __init__(self, graph: Graph, storage: Storage | None) -> None:
        self.history: History | None = None
        """The line of history that the job continues, once it is claimed. Committers outlive a claim, and read it each time."""
        self.committers: dict[Uid, Committer] = {}
        for sink in graph.sinks:
            staged = StagedReader(storage, JobLayout(graph.job), sink.uid)
            context = CommitterContext(sink.input.schema, staged.read, staged.check, lambda: self.history)
            with _named(sink.uid):
                self.committers[sink.uid] = sink.target.create_committer(context)
        for sink in graph.sinks:
            with _named(sink.uid):
                prepare(sink.target, sink.input.schema)
        self.unasked: set[Uid] = set()
        """Sinks whose targets could not be asked for their markers."""
        self.done = SinkCommits()
        """Commits of output that is committed with its epoch."""

    def commit(self, committables: tuple[Committable, ...], for_good: bool) -> None:
        """`for_good`: no checkpoint carries any output of the job, so nothing will ever be committed again."""
        for uid, committer in self.committers.items():
            if own := [each for each in committables if each.sink == uid]:
                started = SYSTEM_CLOCK.now()
                self._commit(uid, committer, own)

                now = SYSTEM_CLOCK.now()
                self.done.committed(uid, now.since(started), len(own), now.wall_ms)
                self.done.committed_up_to([uid], max(each.epoch for each in own))

                # Otherwise a checkpoint may still carry output of attempts that look discarded from here.
                if for_good and sweeps(committer):
                    last = max(own, key=lambda each: each.epoch)
                    try:
                        committer.sweep(Settled(last.lineage, uid, last.epoch))
                    except Exception as error:
                        log.warning(
                            "orphans of discarded attempts at sink %s are left for the next sweep: %s", uid, error
                        )

    @staticmethod
    def _commit(uid: Uid, committer: Committer, committables: list[Committable]) -> None:
        """A target that refuses the rows would refuse them after every restart, so the job stops; other errors restart it."""
        try:
            committer.commit(committables)
        except Exception as error:
            outcome, epoch = outcome_of(error), max(each.epoch for each in committables)
            if not outcome.stops_the_job:
                raise
            kept = "The epoch does not count: the next start reads its rows again."
            raise OutputStopped(
                sink=uid, which=f"of epoch {epoch}", epoch=epoch, outcome=outcome, error=error, kept=kept
            ) from error

    def check_targets(self, *, is_first: bool, can_wait: bool = True) -> None:
        """Ask every target whether it takes output. `is_first`: the job has completed no checkpoint yet, so what a target refuses
        was never right, and whoever starts the job should see it. Later, output waits until somebody has mended it. `can_wait`:
        False for a run that ends with its only epoch, which cannot wait for a target either.
        """
        for uid, committer in self.committers.items():
            if not checks_target(committer):
                continue
            try:
                committer.check_target()
            except Exception as error:
                # An error that may pass does not stop a first start either, if its output can wait for the target.
                if is_first and outcome_of(error).stops_the_job:
                    with _named(uid):
                        raise
                if not can_wait:
                    said = " ".join(str(error).split()).rstrip(".?")
                    raise RetryLater(
                        f"Sink {uid!r}: its target does not answer: {said}. No row was read. Correct its address, or run the "
                        "job again when it answers."
                    ) from error
                log.warning(
                    "the target of sink %s does not accept output now; output waits until it does: %s", uid, error
                )

    def markers(self, lineage: Lineage) -> dict[Uid, Collection[EpochId]]:
        """Return the markers of this lineage in all targets that can be asked. A target that is not reachable now is asked
        before it gets its first output."""
        found: dict[Uid, Collection[EpochId]] = {}
        for uid, committer in self.committers.items():
            if lists_markers(committer):
                try:
                    found[uid] = committer.markers(lineage, uid)
                except Exception as error:
                    self.unasked.add(uid)
                    log.warning("the target of sink %s could not be asked for its markers: %s", uid, error)
        return found

    def close(self) -> None:
        """Close connections. A committer that has none needs no `close`."""
        for committer in self.committers.values():
            if closes(committer):
                committer.close()
