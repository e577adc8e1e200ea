"""Rows that a function creates itself, with PyFlink's name and behaviour: mutable, by position and by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


class Row:
    """A row with values by position, or with fields by name. A row of names makes rows: `Person = Row("name", "age")`.

    Emitted rows with names go to the columns of these names, the others to the columns in their order.

    Args:
        values: The values, in the order of the columns; or names, for a row that is called to make rows.
        fields: The values by name, instead of `values`.

    Examples:
        >>> from tidegate.flink import Row
        >>> Row("ann", 5)
        <Row('ann', 5)>
        >>> Row(user="ann", n=5)
        Row(user='ann', n=5)
        >>> Row("user", "n")("ann", 5).n
        5
    """

    __slots__ = ("_names", "_values")
    _names: tuple[str, ...] | None
    _values: list[Any]

    def __init__(self, *values: Any, **fields: Any) -> None:
        if values and fields:
            raise ValueError("Row takes values or fields with names, not both.")
        names = tuple(fields) or None
        # Past `__setattr__`, which refuses: PyFlink's rows have no attributes to set, either.
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_values", list(fields.values() if names else values))

    @classmethod
    def of(cls, values: Sequence[Any], names: Sequence[str] | None) -> Row:
        """Make a row.

        Args:
            values: The values, in the order of the columns.
            names: Their names, or None.
        """
        row = cls(*values)
        if names is not None:
            row.set_field_names(names)
        return row

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Give the values names: `field_names`, in the order of the values."""
        object.__setattr__(self, "_names", tuple(field_names))

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the fields of a row with names as a dict.

        Args:
            recursive: Convert rows within the row as well.
        """
        if self._names is None:
            raise TypeError("A Row without names cannot become a dict.")
        values = [_as_dicts(value) for value in self._values] if recursive else self._values
        return dict(zip(self._names, values))

    def as_output(self) -> tuple[Any, ...] | dict[str, Any]:
        """The row as operators emit it."""
        return tuple(self._values) if self._names is None else self.as_dict()

    def _place(self, name: int | slice | str) -> int | slice:
        if not isinstance(name, str):
            return name
        if self._names is None or name not in self._names:
            raise ValueError(f"The row has no field {name!r}.")
        return self._names.index(name)

    def __getitem__(self, name: int | slice | str) -> Any:
        return self._values[self._place(name)]

    def __setitem__(self, name: int | slice | str, value: Any) -> None:
        self._values[self._place(name)] = value

    def __getattr__(self, name: str) -> Any:
        # No field begins so. An unset slot would be taken for one, and the search for it would need `_names` again.
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except ValueError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Fields of a Row are set with row[{name!r}] = …, as in PyFlink.")

    def __call__(self, *values: Any) -> Row:
        if len(values) > len(self):
            raise ValueError(f"{self!r} has {len(self)} fields; got {len(values)} values.")
        return Row.of(values, self._values)

    def __contains__(self, name: object) -> bool:
        """Whether a row with names has this name; whether one without has this value."""
        return name in (self._values if self._names is None else self._names)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and (self._names, self._values) == (other._names, other._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values))

    def __reduce__(self) -> tuple[Any, ...]:
        return Row.of, (self._values, self._names)

    def __repr__(self) -> str:
        if self._names is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._names, self._values))})"


def _as_dicts(value: Any) -> Any:
    match value:
        case Row():
            return value.as_dict(True)
        case list():
            return [_as_dicts(each) for each in value]
        case dict():
            return {key: _as_dicts(each) for key, each in value.items()}
    return value
