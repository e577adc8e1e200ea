"""The committers of a job, and output that is committed with its epoch."""

from __future__ import annotations

import logging
from functools import partial

from tidegate.checkpoint.sink_commits import SinkCommits
from tidegate.checkpoint.staging import read_staged
from tidegate.connectors.outcome import outcome_of
from tidegate.connectors.sink import Committable, Committer, CommitterContext, Settled, Sweeping, prepare
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.ids import Uid
from tidegate.graph.model import Graph
from tidegate.runtime.driver.sink_threads import OutputStopped
from tidegate.storage import Storage

log = logging.getLogger("tidegate")


class Committers:
    """The committers of a job, for output that is committed with its epoch."""

    def __init__(self, graph: Graph, storage: Storage | None) -> None:
        self.committers: dict[Uid, Committer] = {
            sink.uid: sink.target.create_committer(CommitterContext(sink.input.schema, partial(read_staged, storage)))
            for sink in graph.sinks
        }
        for sink in graph.sinks:
            prepare(sink.target, sink.input.schema)
        self.done = SinkCommits()
        """Commits of output that is committed with its epoch."""

    def commit(self, requests: tuple[Committable, ...], for_good: bool) -> None:
        """`for_good`: no checkpoint carries any output of the job, so nothing will ever be committed again."""
        for uid, committer in self.committers.items():
            if found := [request for request in requests if request.sink == uid]:
                started = SYSTEM_CLOCK.now()
                self._commit(uid, committer, found)
                now = SYSTEM_CLOCK.now()
                self.done.committed(uid, now.since(started), len(found), now.wall_ms)
                self.done.published_up_to([uid], max(request.epoch for request in found))
                if for_good and isinstance(committer, Sweeping):
                    last = max(found, key=lambda request: request.epoch)
                    try:
                        committer.sweep(Settled(last.lineage, uid, last.epoch))
                    except Exception as error:
                        log.warning(
                            "orphans of discarded attempts at sink %s are left for the next sweep: %s", uid, error
                        )

    @staticmethod
    def _commit(uid: Uid, committer: Committer, requests: list[Committable]) -> None:
        """A target that refuses the rows would refuse them after every restart, so the job stops; other errors restart it."""
        try:
            committer.commit(requests)
        except Exception as error:
            outcome, epoch = outcome_of(error), max(request.epoch for request in requests)
            if not outcome.stops_the_job:
                raise
            kept = "The epoch does not count: the next start reads its rows again."
            raise OutputStopped(
                sink=uid, which=f"of epoch {epoch}", epoch=epoch, outcome=outcome, error=error, kept=kept
            ) from error

    def close(self) -> None:
        """Close connections. A committer that has none needs no `close`."""
        for committer in self.committers.values():
            if (close := getattr(committer, "close", None)) is not None:
                close()
