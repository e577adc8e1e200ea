"""The steps of one term of ownership, put together: what its checkpoints, its output and its uploads have in common.

Nothing here waits or has a thread. `CheckpointLoop` runs the messages on a thread, `chaos.simulation` in a simulated world; both
carry out one after the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.coordination.timing import Cadence, Timing
from tidegate.checkpoint.effects import Steps
from tidegate.checkpoint.job_log.entry import Entry
from tidegate.checkpoint.output.committer_choice import CommitterChoice
from tidegate.checkpoint.output.release_plan import Backoff
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.runtime.checkpoints.answers import Answers
from tidegate.runtime.checkpoints.checkpointer import Checkpointer
from tidegate.runtime.checkpoints.output import OutputRelease, Sinks
from tidegate.runtime.checkpoints.owned_term import OwnedTerm
from tidegate.runtime.checkpoints.storage_calls import CheckpointCalls
from tidegate.runtime.checkpoints.term_effects import TermSteps
from tidegate.runtime.checkpoints.uploads import PendingUploads
from tidegate.runtime.epochs.job_description import JobDescription


class RunningTerm:
    """From the moment that a job is owned until it is claimed again, lost or ended."""

    def __init__(
        self,
        owned: OwnedTerm,
        job: JobDescription,
        sinks: Sinks,
        statistics: CheckpointStatsTracker,
        *,
        backoff: Backoff | None = None,
        choice: CommitterChoice | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`owned` has been recovered. `chance` draws a number between 0 and 1, wherever something is left to chance."""
        self.owned = owned
        self.answers = Answers()
        self.calls = CheckpointCalls(owned.history.storage, statistics)
        self.output = OutputRelease(
            ownership=owned,
            sinks=sinks,
            task_sinks=job.task_sinks,
            statistics=statistics,
            backoff=backoff,
            choice=choice,
            chance=chance,
        )
        self.timing = Timing(_cadence(owned.history.config))
        self.uploads = PendingUploads(owned, job, self.output, self.timing)
        self.checkpointer = Checkpointer(
            ownership=owned,
            job=job,
            uploads=self.uploads,
            timing=self.timing,
            output=self.output,
            answers=self.answers,
            calls=self.calls,
            chance=chance,
        )

    def begin(self) -> TermSteps[None]:
        """Start taking checkpoints, and commit what the last term has left."""
        yield from self.checkpointer.start()
        yield from self.output.release()

    def claimed_again(self) -> Steps[Entry]:
        """End this term, and claim the job under a new one: after a failure that left the outcome of a write unknown, or to
        rescale. No other message follows. Raises `ClaimLost` if another driver owns the job. If it fails, it may be called again.
        """
        self.checkpointer.abort()
        return (yield from self.owned.claimed_again())

    def wake(self) -> TermSteps[None]:
        """Time has passed: record what is committed, retry sinks that have waited, expire and trigger what is due."""
        yield from self.output.record()
        yield from self.output.release()
        yield from self.checkpointer.tick()


def _cadence(config: CheckpointConfig) -> Cadence:
    return Cadence(
        interval_ms=config.interval_ms,
        timeout_ms=config.timeout_ms,
        min_pause_ms=config.min_pause_ms,
        max_concurrent=config.max_concurrent,
        tolerable_failures=config.tolerable_failures,
    )
