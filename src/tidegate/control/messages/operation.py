"""Asynchronous operations: the response to a trigger, and what became of it."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

T = TypeVar("T")


class TriggerResponse(Struct, frozen=True, rename="kebab"):
    """The id to ask for the result with."""

    request_id: str


class FailureCause(Struct, frozen=True):
    """The code of an error and its message."""

    code: str = field(name="class")
    message: str = field(name="stack-trace")


class CheckpointInfo(Struct, frozen=True, rename="camel"):
    """The result of a triggered checkpoint: one of the two."""

    checkpoint_id: int | UnsetType = UNSET
    failure_cause: FailureCause | UnsetType = UNSET


class SavepointInfo(Struct, frozen=True, rename="kebab"):
    """The result of a savepoint, or of a stop with one: one of the two."""

    location: str | UnsetType = UNSET
    failure_cause: FailureCause | UnsetType = UNSET


class DisposalInfo(Struct, frozen=True, rename="kebab"):
    """The result of the disposal of a savepoint: empty if it is deleted."""

    failure_cause: FailureCause | UnsetType = UNSET


class QueueStatus(Struct, frozen=True):
    """`IN_PROGRESS` or `COMPLETED`, also if the operation failed."""

    id: str


class AsynchronousOperationResult(Struct, Generic[T], frozen=True):
    """`operation` is null while the operation is in progress."""

    status: QueueStatus
    operation: T | None


class EmptyResponseBody(Struct, frozen=True):
    """The operation has no result."""


class ErrorResponseBody(Struct, frozen=True):
    """What is wrong with a request."""

    errors: list[str]
