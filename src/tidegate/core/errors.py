"""One tree of errors. Each has a stable code, says whether a retry may help, and tells the reader what to do."""

from __future__ import annotations

from typing import ClassVar


class TidegateError(Exception):
    """Root of all errors that tidegate raises on purpose."""

    code: ClassVar[str] = "TIDEGATE"
    retryable: ClassVar[bool] = False


class GraphError(TidegateError):
    """The graph the user declared cannot be run."""

    code = "GRAPH"


class DuplicateUid(GraphError):
    code = "DUPLICATE_UID"

    def __init__(self, uid: str, first: str, second: str) -> None:
        self.uid = uid
        super().__init__(
            f"The uid {uid!r} is given twice: to {first} and to {second}. "
            "A uid is the identity of state and positions, so each must be used once; rename one of them."
        )


class UnsupportedType(TidegateError):
    """A Python type that cannot be stored as state, used as a key or sent as a row."""

    code = "UNSUPPORTED_TYPE"


class SchemaError(TidegateError):
    """A declared schema cannot be read, or rows do not fit it."""

    code = "SCHEMA"


class StateError(TidegateError):
    """State could not be read or written."""

    code = "STATE"


class CorruptState(StateError):
    """A file of a state version is missing, short, or has the wrong checksum."""

    code = "CORRUPT_STATE"


class StateLost(StateError):
    """The newest version of some task's state is gone from its host: only a checkpoint brings it back."""

    code = "STATE_LOST"


class RestoreError(TidegateError):
    """A job cannot start from a checkpoint or savepoint: it does not fit the job, or its files are missing or damaged."""

    code = "RESTORE"


class PreconditionFailed(TidegateError):
    """The Spark session or the sources are not set up as tidegate needs."""

    code = "PRECONDITION"


class EpochFailed(TidegateError):
    """An epoch could not be completed. Nothing of it was made visible."""

    code = "EPOCH_FAILED"
    retryable = True


class EpochTimeout(EpochFailed):
    code = "EPOCH_TIMEOUT"


class ProtocolViolation(EpochFailed):
    """What reached a task or the driver is not what was sent: barriers, row counts, attempts or acknowledgements."""

    code = "PROTOCOL"


class UserCodeError(TidegateError):
    """A function of the user's raised. The text says at which row and line, and what to do."""

    code = "USER_CODE"

    def __init__(self, operator: str, message: str, details: str = "", *, fatal: bool = False) -> None:
        self.operator = operator
        self.fatal = fatal
        """Whether it would come back however often the job is restarted."""
        super().__init__(
            f"The function of operator {operator!r} raised {message}" + (f"\n{details}" if details else "")
        )


class WrongValue(StateError):
    """A value does not fit the declared type of its state."""

    code = "WRONG_VALUE"


class StateUnbound(StateError):
    """A declared state was used outside a running job: there is no key, and nothing to read or write."""

    code = "STATE_UNBOUND"
