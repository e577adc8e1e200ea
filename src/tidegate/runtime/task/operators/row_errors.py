"""Functions that may fail on a row: the row's state changes and output are rolled back, and the job continues."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tidegate.core.errors import TidegateError, WrongValue
from tidegate.core.ids import EpochId
from tidegate.graph.on_error import POSITION_COLUMNS, ErrorAction, OnError
from tidegate.operators.port import RowCall
from tidegate.runtime.exchange.user_code import trace_of
from tidegate.schema.key_values import InvalidKey
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.operator_states import OperatorStates

_log = logging.getLogger("tidegate")
_OF_THE_ROW = (WrongValue, InvalidKey)
"""Errors of ours that a row can cause. All others, above all a broken disk, end the attempt."""

Out = TypeVar("Out")


class RowErrors:
    """Counts the rows of one operator in one attempt that failed, and writes dead letters to its side outputs."""

    def __init__(self, name: str, choice: OnError, sides: dict[str, list[Any]], epoch: EpochId | None) -> None:
        self._name = name
        self._choice = choice
        self._sides = sides
        self._epoch = epoch
        self.failed = 0
        """Rows and timers whose function raised."""

    def may_skip(self, error: BaseException) -> bool:
        """Whether the job may continue without the row: the error is one that a row can cause."""
        return isinstance(error, Exception) and (not isinstance(error, TidegateError) or isinstance(error, _OF_THE_ROW))

    def note(self, row: Any, error: Exception, key: str | None = None) -> None:
        """Count a row, or a timer (None), on which the function raised; write a dead letter if requested. `key` is JSON;
        None: the operator has no key."""
        self.failed += 1
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        # One line for each task and epoch: a source of broken rows would fill the log.
        if self.failed == 1:
            _log.warning("operator %r: a row was skipped (%s), the first in this task and epoch", self._name, text)
        if self._choice.action is ErrorAction.DEAD_LETTER:
            epoch = None if self._epoch is None else str(self._epoch)
            values = None if row is None else row._asdict()
            row_json = None if values is None else _json(values)
            letter = (self._name, key, row_json, text, trace_of(error), epoch, _position(values))
            self._sides[self._choice.tag].append(letter)


class Guard:
    """The error handler of one keyed operator in one attempt. Its states must be guarded (see `state.accessors.rollback`)."""

    def __init__(
        self, keyed: KeyedStates, operator: OperatorStates | None, sides: dict[str, list[Any]], errors: RowErrors
    ) -> None:
        self._keyed = keyed
        self._operator = operator
        self._sides = sides
        self._errors = errors

    @property
    def failed(self) -> int:
        return self._errors.failed

    def around(
        self,
        function: RowCall,
        *,
        timer: bool = False,
        afterwards: Callable[[Any, Any], None] | None = None,
    ) -> RowCall:
        """Wrap `function`, which is called with a row (or the time of a timer) and a context, and return its output as a
        list. `afterwards` is called with the same arguments once the effects of a failed call are rolled back.

        1. Record the current position of state and side outputs.
        2. Call the function and read everything it yields: an error may come after the first rows. Check
           that what it wrote can be stored.
        3. If it raised: roll everything back; count the row; write a dead letter if requested.
        """

        def guarded(row: Any, context: Any) -> Iterable[Any] | None:
            out, error = self.attempt(lambda: _all(function(row, context)))
            if error is None:
                return out
            self.note(None if timer else row, error)
            if afterwards is not None:
                afterwards(row, context)
            return None

        return guarded

    def attempt(self, call: Callable[[], Out]) -> tuple[Out, None] | tuple[None, Exception]:
        """Call, and return the result; or undo everything the call did to states and side outputs, and return the error.

        Raises errors that no row can cause.
        """
        self._keyed.mark()
        if self._operator is not None:
            self._operator.mark()
        lengths = [(rows, len(rows)) for rows in self._sides.values()]
        try:
            out = call()
            # Here, not when the version is sealed: by then nobody knows which row wrote the value.
            self._keyed.verify()
            return out, None
        except Exception as error:
            if not self._errors.may_skip(error):
                raise
            self._keyed.roll_back()
            if self._operator is not None:
                self._operator.roll_back()
            for rows, length in lengths:
                del rows[length:]
            return None, error

    def note(self, row: Any, error: Exception) -> None:
        """Count a row, or a timer (None), on which the function raised; write a dead letter if requested."""
        self._errors.note(row, error, _json(self._keyed.scope.key))


def _all(result: Iterable[Any] | None) -> list[Any] | None:
    return None if result is None else list(result)


def _position(row: dict[str, Any] | None) -> str | None:
    """Describe where a row came from, if its columns show it."""
    for columns in POSITION_COLUMNS:
        if row is not None and all(column in row for column in columns):
            return _json({column: row[column] for column in columns})
    return None


def _json(value: Any) -> str:
    import msgspec  # noqa: PLC0415 start-up time

    return msgspec.json.encode(value, enc_hook=str).decode()
