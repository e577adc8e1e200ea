"""A rescale in place, as steps: an attempt ends at a checkpoint, and the next one begins under a new term with other slots.

1. While epochs run, a checkpoint stores what has changed since the last one. A crash leaves a checkpoint like any other.
2. After the running epoch, a checkpoint of it is taken, unless the latest one contains everything. The attempt runs no epoch
   after that. A crash leaves that checkpoint.
3. The attempt ends.
4. The job is claimed under a new term, with the other parallelism. A crash leaves a claim, based on that checkpoint.
5. The tasks restore it. A crash leaves what a crash of any restore leaves.

`Rescaler` and `Supervisor` carry out what the steps yield on their threads, beside Spark; `chaos.simulation` does it in a
simulated world, and can let a driver die before and after each of them.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId

log = logging.getLogger("tidegate")
T = TypeVar("T")


class HeldEpochs(NamedTuple):
    """What is known when no epoch runs."""

    moved: EpochId | None
    """The last epoch of the attempt that changed something. None: none has."""
    base: CheckpointRef | None
    """The latest checkpoint."""

    @property
    def are_contained(self) -> bool:
        """Whether the latest checkpoint contains all that the attempt has changed. Empty epochs that changed nothing need none:
        going back to the latest one repeats none of their work."""
        return self.base is not None and (self.moved is None or self.moved <= self.base.epoch)


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Take a checkpoint while epochs run, and wait until it is complete. Raises why it failed."""


@dataclass(frozen=True, slots=True)
class HoldEpochs:
    """Wait for the end of the running epoch, and begin no other one before the steps have ended. Result: `HeldEpochs`.

    Raises if the attempt has ended, or the job stops.
    """


@dataclass(frozen=True, slots=True)
class TakeLastCheckpoint:
    """Take a checkpoint while epochs are held: only epochs without rows run, as far as its uploads need them.

    Result: why it failed, or None. The job then continues as it was, so it is no error of the attempt.
    """


@dataclass(frozen=True, slots=True)
class EndAttempt:
    """Run no further epoch of this attempt."""


@dataclass(frozen=True, slots=True)
class ClaimAgain:
    """Own the job under a new term with so many slots. Result: False if the job is asked to stop instead."""

    parallelism: int


@dataclass(frozen=True, slots=True)
class RestoreTasks:
    """Have tasks of the new term restore what it returns to. Epochs may begin afterwards."""


RescaleEffect: TypeAlias = TakeCheckpoint | HoldEpochs | TakeLastCheckpoint | EndAttempt | ClaimAgain | RestoreTasks
RescaleSteps: TypeAlias = Generator[RescaleEffect, Any, T]


class RescaleInPlace:
    """The steps of one rescale."""

    def __init__(self, old_parallelism: int, new_parallelism: int) -> None:
        self._old = old_parallelism
        self._new = new_parallelism
        self.failure: Exception | None = None
        """Why the job does not continue with the new parallelism."""

    def end_attempt(self) -> RescaleSteps[BaseException | None]:
        """Steps 1 and 2. Return why the job continues as it was; None: no epoch runs until it has been claimed again."""
        reach("rescale.1-asked", parallelism=self._new)
        # It keeps the last checkpoint small, for which epochs wait.
        yield TakeCheckpoint()
        held: HeldEpochs = yield HoldEpochs()
        if not held.are_contained:
            failure: BaseException | None = yield TakeLastCheckpoint()
            if failure is not None:
                return failure
        reach("rescale.2-saved", parallelism=self._new)
        yield EndAttempt()
        return None

    def continue_in_new_term(self) -> RescaleSteps[bool]:
        """Steps 3 to 5. If the job cannot continue with the new parallelism, continue with the old one; if it cannot do that
        either, raise why: that is a failure like any other. Return False if the job is asked to stop.
        """
        reach("rescale.3-ended", parallelism=self._new)
        try:
            return (yield from self._begin_term(self._new))
        except Exception as error:
            log.warning("the job cannot continue with parallelism %d: %s", self._new, error)
            self.failure = error
        # Perhaps the claim was won, and its slots are those of the new parallelism: they are given up with its term.
        return (yield from self._begin_term(self._old))

    def _begin_term(self, parallelism: int) -> RescaleSteps[bool]:
        if not (yield ClaimAgain(parallelism)):
            return False
        reach("rescale.4-claimed", parallelism=parallelism)
        yield RestoreTasks()
        reach("rescale.5-restored", parallelism=parallelism)
        return True
