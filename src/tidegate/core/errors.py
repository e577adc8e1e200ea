"""The families of errors. Each error has a stable code, says whether a retry may help, and tells the reader what to do.

Every public error belongs to exactly one family, a direct subclass of `TidegateError`. An error is defined next to the code
that raises it; here are the families and the few errors that several layers raise. `tidegate.errors` exports all of them.
"""

from __future__ import annotations

from typing import ClassVar

_HELP = "Help: tidegate explain "


class TidegateError(Exception):
    """Root of all errors that tidegate raises on purpose."""

    code: ClassVar[str] = "TIDEGATE"
    """Stable name of the error, shown in logs, over REST and by the command line."""
    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later, with nothing changed by hand."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        # A note is shown below the message in tracebacks; the message itself stays as it is, for logs and for programs.
        self.add_note(help_line(self.code))


def help_line(code: str) -> str:
    """Return where to read more about an error: the last line wherever one is shown to a person."""
    return f"{_HELP}{code}"


def help_of_kind(kind: str) -> tuple[str, ...]:
    """Return the help line for the kind of a failure, which is a code in lower case. `engine`, such as an error of Spark, and
    `driver-lost` have no code."""
    return () if kind in ("engine", "driver-lost") else (help_line(kind.upper().replace("-", "_")),)


def shown_code(error: TidegateError) -> str:
    """Return the code that a person sees: that of the error which the message quotes, such as a server's, or its own."""
    _, separator, quoted = str(error).rpartition(_HELP)
    return quoted.strip() if separator else error.code


def with_help(error: TidegateError) -> str:
    """Return the message, ending with where to read more. A message that quotes that of another error has it already."""
    message = str(error)
    return message if _HELP in message else f"{message}\n{help_line(error.code)}"


# -- families ----------------------------------------------------------------------------------------------------------


class ConfigurationError(TidegateError):
    """An option, the Spark session, or a system the job depends on is not set up as the job needs it."""

    code = "CONFIGURATION"


class GraphError(TidegateError):
    """The job as declared cannot run: its graph, types or schemas."""

    code = "GRAPH"


ALL_FUNCTIONS = "(all)"
"""In place of an operator, where the functions of a task cannot be loaded."""


class UserCodeError(TidegateError):
    """A user function raised. The message names the operator, the row and the line, and says what to do."""

    code = "USER_CODE"

    def __init__(self, operator: str, message: str, details: str = "", *, fatal: bool = False) -> None:
        self.operator = operator
        self.fatal = fatal
        """Whether the function would raise again after every restart."""
        # Where no function could be loaded, none of them has raised anything.
        if operator == ALL_FUNCTIONS:
            start = message[:1].upper() + message[1:]
        else:
            start = f"The function of operator {operator!r} raised {message}"
        super().__init__(start + (f"\n{details}" if details else ""))


class EpochFailed(TidegateError):
    """An epoch could not be completed. None of its output was committed."""

    code = "EPOCH_FAILED"
    retryable = True

    def __init__(self, message: str = "", *, session_ended: bool = False) -> None:
        """`session_ended`: the Spark session, without which there are no epochs, has ended."""
        super().__init__(message)
        self.session_ended = session_ended


class StateError(TidegateError):
    """State could not be read or written."""

    code = "STATE"


class StorageError(TidegateError):
    """A storage operation failed. `path` is the name of the object, relative to `store`."""

    code = "STORAGE"

    def __init__(self, store: str, path: str, message: str) -> None:
        self.store = store
        self.path = path
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors travel from Spark tasks to the driver; the default would call __init__ with the message alone.
        return type(self), (self.store, self.path, str(self))


class CheckpointError(TidegateError):
    """A checkpoint, a savepoint or the job's log cannot be written, read, changed or deleted."""

    code = "CHECKPOINT"


class RestoreError(TidegateError):
    """A job cannot start from a checkpoint or savepoint: it does not fit the job, or its files are missing or damaged."""

    code = "RESTORE"


class ConnectorError(TidegateError):
    """A source or target did not do what was asked, or output could not be committed."""

    code = "CONNECTOR"


class ControlError(TidegateError):
    """A command or request cannot be carried out: by the command line, a running job's server or a test cluster."""

    code = "CONTROL"


# -- errors that several layers raise ----------------------------------------------------------------------------------


class PreconditionFailed(ConfigurationError):
    """The Spark session, a source or a target is not set up as tidegate needs it."""

    code = "PRECONDITION"


class UnsupportedType(GraphError):
    """A Python type that cannot be stored as state, used as a key or sent as a row."""

    code = "UNSUPPORTED_TYPE"


class SchemaError(GraphError):
    """A declared schema cannot be read, or rows do not fit it."""

    code = "SCHEMA"


class ProtocolViolation(EpochFailed):
    """What reached a task or the driver is not what was sent: barriers, row counts, attempts or acknowledgements."""

    code = "PROTOCOL"


class CorruptState(StateError):
    """A file of a state version is missing, short, or has the wrong checksum."""

    code = "CORRUPT_STATE"


class WrongValue(StateError):
    """A value does not fit the declared type of its state."""

    code = "WRONG_VALUE"
    key: object = None
    """The key whose value does not fit, if it is known: values are encoded long after the row that wrote them."""
    writes: tuple[tuple[str, int, str, str], ...] = ()
    """Where the function writes this state: file, line, method, text. One of these lines has written the value."""


class StateUnbound(StateError):
    """A declared state was used outside a running job: there is no key, and nothing to read or write."""

    code = "STATE_UNBOUND"
