"""Which checkpoint to take next, and whether now: Flink's rules, as a pure decision on a queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from tidegate.checkpoint.coordination.failure import CheckpointFailureReason
from tidegate.core.clock import MonotonicMs

# Flink's `CheckpointRequestDecider.DEFAULT_MAX_QUEUED_REQUESTS`.
MAX_QUEUED = 1000


class RequestKind(Enum):
    PERIODIC = auto()
    MANUAL = auto()
    """Requested by the user; otherwise a checkpoint like any other."""
    SAVEPOINT = auto()
    TERMINAL_SAVEPOINT = auto()
    """The savepoint that ends the job (stop)."""

    @property
    def is_savepoint(self) -> bool:
        return self in (RequestKind.SAVEPOINT, RequestKind.TERMINAL_SAVEPOINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequest:
    """A request for a checkpoint.

    `token` identifies the requester; `target` is the directory of a savepoint, `format` its format. `full` says whether
    to upload all files, even those that earlier checkpoints have; None leaves it to the configuration.
    """

    kind: RequestKind
    at_ms: MonotonicMs
    token: str = ""
    forced: bool = False
    target: str | None = None
    format: str | None = None
    full: bool | None = None
    final: bool = False
    """The job ends with this checkpoint."""

    @property
    def is_forced(self) -> bool:
        return self.forced or self.kind.is_savepoint

    @property
    def is_final(self) -> bool:
        return self.final or self.kind is RequestKind.TERMINAL_SAVEPOINT

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        """Sort key: savepoints first, then forced, manual, periodic; within these by age."""
        return not self.kind.is_savepoint, not self.is_forced, self.kind is RequestKind.PERIODIC, self.at_ms


@dataclass(frozen=True, slots=True)
class Load:
    """The work in progress."""

    pending: int
    """Checkpoints in progress, without savepoints."""
    cleaning: int
    """Dropped checkpoints whose files are not yet deleted."""
    pause_ends_ms: MonotonicMs | None = None
    """When min-pause after the last completion is over; None: none has completed."""


@dataclass(frozen=True, slots=True)
class RunNow:
    request: CheckpointRequest


@dataclass(frozen=True, slots=True)
class Wait:
    """Run nothing now. `until_ms` is when time alone changes that; None: an event must occur first."""

    until_ms: MonotonicMs | None = None


@dataclass(slots=True)
class RequestQueue:
    """At most 1000 requests. A second periodic request is equivalent to the first, so only one is kept."""

    limit: int = MAX_QUEUED
    _waiting: list[CheckpointRequest] = field(default_factory=list)

    def add(self, request: CheckpointRequest) -> CheckpointRequest | None:
        """Queue a request. Return the request that was dropped with `TOO_MANY_CHECKPOINT_REQUESTS`, which may be this one."""
        if request.kind is RequestKind.PERIODIC and self.has_periodic:
            return None
        # Full: the request that matters least is dropped, and that is the last one of the order. A periodic one makes
        # room for whatever a user asked for.
        if len(self._waiting) >= self.limit and self._waiting[-1].kind is not RequestKind.PERIODIC:
            return request
        self._waiting.append(request)
        self._waiting.sort(key=lambda r: r.rank)
        return self._waiting.pop() if len(self._waiting) > self.limit else None

    @property
    def has_periodic(self) -> bool:
        return any(r.kind is RequestKind.PERIODIC for r in self._waiting)

    def take(self, load: Load, max_concurrent: int, now_ms: MonotonicMs, only_final: bool = False) -> RunNow | Wait:
        """Remove and return the request to run now. `only_final`: all but the one that the job ends with wait."""
        first = next((r for r in self._waiting if r.is_final or not only_final), None)
        choice = choose(first, load, max_concurrent, now_ms)
        if isinstance(choice, RunNow):
            self._waiting.remove(choice.request)
        return choice

    def remove(self, unwanted: Callable[[CheckpointRequest], bool]) -> tuple[CheckpointRequest, ...]:
        """Remove and return all that match."""
        out = tuple(r for r in self._waiting if unwanted(r))
        self._waiting = [r for r in self._waiting if not unwanted(r)]
        return out

    def __len__(self) -> int:
        return len(self._waiting)


def choose(first: CheckpointRequest | None, load: Load, max_concurrent: int, now_ms: MonotonicMs) -> RunNow | Wait:
    """Apply the rules to the first request of the queue; the others are not considered.

    - Nothing starts while more than max-concurrent dropped checkpoints are still being deleted.
    - Max-concurrent holds back all but forced ones. Savepoints are forced, and not counted: unlike in Flink, a
      savepoint in progress does not hold back checkpoints.
    - Min-pause holds back only periodic ones.
    """
    # Also for savepoints, as in Flink: a storage that cannot delete would be filled without a limit.
    if first is None or load.cleaning > max_concurrent:
        return Wait()
    if load.pending >= max_concurrent:
        return RunNow(first) if first.is_forced else Wait()
    can_wait = first.kind is RequestKind.PERIODIC and not first.is_forced
    if can_wait and load.pause_ends_ms is not None and load.pause_ends_ms > now_ms:
        return Wait(load.pause_ends_ms)
    return RunNow(first)


TOO_MANY = CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS
