"""What the steps of a term yield, besides the effects of storage: messages to the threads at the edge.

A term of ownership is a few objects whose methods are steps: generators that change what the term knows, and yield what they need
done. Nothing in them waits, sleeps or starts a thread. `CheckpointLoop` runs them, one message after the other, on its thread;
`chaos.simulation` runs the same steps on a simulated world, and can let a driver die between any two of them.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from tidegate.checkpoint.coordination.coordinator import WakeAt
from tidegate.checkpoint.effects import Effect, Steps, expand
from tidegate.checkpoint.output.release_plan import CommitBatch
from tidegate.connectors.sink import Settled

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StartCommit:
    """Have the sink commit this, and continue at once. The result returns as a message: `OutputRelease.on_result`."""

    batch: CommitBatch


@dataclass(frozen=True, slots=True)
class StartSweep:
    """Have the sink remove what discarded attempts left in its target, and continue at once. Nobody waits for the result."""

    upto: Settled


@dataclass(frozen=True, slots=True)
class Uncounted:
    """A request to storage that counts for no checkpoint."""

    effect: Effect


TermEffect: TypeAlias = Effect | WakeAt | StartCommit | StartSweep | Uncounted
TermSteps: TypeAlias = Generator[TermEffect, Any, T]


def uncounted(steps: Steps[T]) -> TermSteps[T]:
    """Yield the same effects as requests that count for no checkpoint."""

    def ask(effect: Effect) -> TermSteps[Any]:
        return (yield Uncounted(effect))

    return expand(steps, ask)
