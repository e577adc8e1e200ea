"""A rescale of a simulated driver, as far as the product has a thread of its own for it: until the attempt has ended.

What happens in which order are the product's steps. This carries out what they yield, while epochs and messages go on.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from chaos.simulation.epochs import SimEpochs
from chaos.simulation.tasks import Host
from tidegate.checkpoint.effects import Sleep, Steps, expand
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.core.errors import EpochFailed
from tidegate.runtime.checkpoints.owned_term import OwnedTerm
from tidegate.runtime.checkpoints.rescale import (
    EndAttempt,
    HeldEpochs,
    HoldEpochs,
    RescaleEffect,
    RescaleInPlace,
    TakeCheckpoint,
    TakeLastCheckpoint,
)

_POLL_MS = 20


class Stopping(Exception):
    """The job stops, or its attempt has ended: that comes first."""


class SimRescale:
    """One rescale of one term."""

    def __init__(
        self,
        host: Host,
        owned: OwnedTerm,
        epochs: SimEpochs,
        parallelism: int,
        *,
        ask: Callable[[], Future[CheckpointRef]],
        stops: Callable[[], bool],
    ) -> None:
        """`ask` has the term take a checkpoint. `stops`: whether the job is asked to stop."""
        self.steps = RescaleInPlace(host.width, parallelism)
        self.parallelism = parallelism
        """What the job is to have."""
        self.outcome: str | None = None
        """How the end of the attempt went. None: it is under way."""
        self._world = host.world
        self._owned = owned
        self._epochs = epochs
        self._ask = ask
        self._stops = stops
        self._holds = False
        self._has_ended = False
        self._gives_way = False

    @property
    def lets_run(self) -> bool:
        """Whether another epoch may begin."""
        return not (self._holds or self._has_ended)

    def give_way(self) -> None:
        """The attempt ends in another way. Its epochs are another one's."""
        self._gives_way = True
        self._has_ended = False

    def end_attempt(self) -> Steps[None]:
        """The thread of the rescale."""
        outcome = "rescales that gave way"
        try:
            failure = yield from expand(self.steps.end_attempt(), self._carry_out)
            outcome = "saved" if failure is None else "rescales that failed"
        except EpochFailed:
            outcome = "rescales that failed"
        except Stopping:
            pass
        self._holds = False
        self.outcome = outcome

    def _carry_out(self, effect: RescaleEffect) -> Steps[HeldEpochs | BaseException | None]:
        self._world.about_to(f"before {type(effect).__name__}")
        match effect:
            case TakeCheckpoint():
                answer = self._ask()
                yield from self._wait(answer.done)
                answer.result()
            case HoldEpochs():
                self._holds = True
                yield from self._wait(lambda: self._epochs.running is None or self._stops())
                if self._stops():
                    raise Stopping
                return HeldEpochs(self._epochs.moved, self._owned.store.entry.base)
            case TakeLastCheckpoint():
                answer = self._ask()
                yield from self._wait(answer.done)
                return answer.exception()
            case EndAttempt():
                self._has_ended = True
            case _:
                raise TypeError(f"{effect} is carried out by the driver")
        return None

    def _wait(self, is_over: Callable[[], bool]) -> Steps[None]:
        while not self._gives_way and not is_over():
            yield Sleep(_POLL_MS)
        if self._gives_way:
            raise Stopping
