"""One state of a Spark query that becomes a state of the job, or does not, and why. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.errors import ControlError
from tidegate.core.ids import Uid
from tidegate.graph.model import Process
from tidegate.graph.states import StateSpec
from tidegate.runtime.sources.stopped_query import StateFields
from tidegate.savepoint.entries import StateEntry, StateLayout
from tidegate.state.accessors.processor_states import stored_value

SparkRows = Iterable[Any]
"""Rows of the `statestore` data source: tuples with a field for each column."""
Entries = Callable[[StateLayout, SparkRows], Iterator[StateEntry]]
"""Makes entries of the job's state out of rows of Spark's."""
FieldsOf = Callable[[Mapping[str, str]], StateFields]
"""The fields of a Spark state that is read with these options."""


class ImportRefused(ControlError):
    """The import would start the job with less than the query had, or with something else."""

    code = "IMPORT_REFUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedState:
    operator: int
    """Spark's number of the operator."""
    spark_name: str
    """What Spark calls the state, for a reader."""
    uid: Uid
    spec: StateSpec
    options: Mapping[str, str]
    """How the `statestore` data source reads it."""
    columns: tuple[str, ...]
    entries: Entries = field(compare=False, repr=False)
    unsure: str = ""
    """What only the user can know about it, as a sentence. Empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftState:
    """State that is not carried over."""

    operator: int
    spark_name: str
    why: str


Verdict = CarriedState | LeftState


class KeyMatch:
    """The key of the job's operator, found in the key of Spark's: by name if all names are there, otherwise by position."""

    def __init__(self, node: Process, columns: Sequence[tuple[str, str]]) -> None:
        """Raises ValueError, with a reason for the user, if the columns do not match."""
        key = [(name, node.input.schema.fields[node.input.schema.index(name)].type) for name in node.input.key]
        names = [name for name, _ in columns]
        by_name = {name for name, _ in key} <= set(names)
        places = [names.index(name) for name, _ in key] if by_name else list(range(len(key)))

        # By position, a column of the same name elsewhere would get the state of another key.
        if not by_name and any(name in names and names.index(name) != place for place, (name, _) in enumerate(key)):
            raise ValueError(
                f"its key is ({_shown(columns)}) in Spark, and key_by of {str(node.uid)!r} has some of these names in other "
                "places; use the same names, or the same order"
            )
        if len(columns) != len(key) or any(columns[place][1] != type.ddl() for place, (_, type) in zip(places, key)):
            here = _shown([(name, type.ddl()) for name, type in key])
            raise ValueError(
                f"its key is ({_shown(columns)}) in Spark, but {str(node.uid)!r} is keyed by ({here}); key_by needs columns of "
                "the same types"
            )
        self._picked = [(place, type) for place, (_, type) in zip(places, key)]

    def of(self, key: Sequence[Any]) -> Any:
        """Return the key of the job's state for one of Spark's."""
        values = tuple([stored_value(key[place], type) for place, type in self._picked])
        return values[0] if len(values) == 1 else values


def _shown(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {type}" for name, type in columns)
