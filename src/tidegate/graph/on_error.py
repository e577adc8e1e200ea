"""What happens to a row whose function raised an error."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidegate.core.errors import GraphError
from tidegate.schema.schema import Schema

DEAD_LETTER_COLUMNS = (
    "operator string, key string, row string, error string, traceback string, epoch string, position string"
)
"""The schema of a dead letter. `row` is JSON, null for a timer; `epoch` is the epoch's id, `term.number`; `position` is
JSON of the columns that say where the row came from, null if there are none."""
POSITION_COLUMNS = (("topic", "partition", "offset"), ("partition", "offset"), ("file", "line"), ("file",))
"""Columns that identify a position, most precise first: those of the Kafka source, and of files if the user selected them."""


class ErrorAction(StrEnum):
    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True)
class OnError:
    """Fail the job (as Flink does), or continue without the row, with its state changes and output undone.

    Dead letters go to the side output `tag`, which is added to the operator.
    """

    action: ErrorAction = ErrorAction.FAIL
    tag: str = "dead-letter"

    @staticmethod
    def of(choice: OnError | str) -> OnError:
        """Convert the user's choice: "fail", "skip", "dead-letter", or the result of `dead_letter(tag)`."""
        if isinstance(choice, OnError):
            return choice
        try:
            return OnError(ErrorAction(choice))
        except ValueError:
            raise GraphError(
                f"on_error={choice!r} is not known. Use 'fail', 'skip', 'dead-letter', or dead_letter('tag')."
            ) from None

    @property
    def side_outputs(self) -> tuple[tuple[str, Schema], ...]:
        return ((self.tag, Schema.parse(DEAD_LETTER_COLUMNS)),) if self.action is ErrorAction.DEAD_LETTER else ()


FAIL = OnError()


def dead_letter(tag: str = "dead-letter") -> OnError:
    """Send failed rows to a side output, with the error: `on_error=dead_letter("bad-orders")`.

    Args:
        tag: The tag of the side output. Its rows have the operator, the key, the row as JSON, the error and its traceback.

    Examples:
        >>> schema = "user string, total double"
        >>> totals = orders.key_by("user").process("totals", Totals(), schema=schema, on_error=tg.dead_letter("bad-orders"))
        >>> totals.side_output("bad-orders").sink("dlq", tg.FileSink("dlq/"))
    """
    return OnError(ErrorAction.DEAD_LETTER, tag)
