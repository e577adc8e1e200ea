"""The distinct keys of a batch, and which of them each row has: how functions over whole batches reach keyed state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.nearest import no_column
from tidegate.schema.columns import normalized_keys, to_python
from tidegate.schema.output_columns import from_python
from tidegate.schema.schema import Field
from tidegate.state.keys.key_scope import KeyScope

# Codes of several columns are combined into one number of 64 bits.
_MOST_CODES = 1 << 62
_SEVERAL_FORMS = ("float", "double")
"""Types with several values that are one key: the two zeros, and all kinds of NaN."""


class KeyIndex:
    """The distinct keys of a batch in the order of their first rows.

    `keys.index[i]` is the position of row i's key among them. Pass the object to `state.values(keys)` and
    `state.update_all(keys, array)`, whose arrays have one element for each distinct key.
    """

    def __init__(
        self,
        *,
        fields: Sequence[Field],
        columns: Sequence[pa.Array],
        keys: list[Any],
        groups: list[int],
        index: npt.NDArray[np.int64],
        scope: KeyScope,
        rows: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self._fields = fields
        self._columns = columns
        self._scope = scope
        self._rows = np.arange(len(index)) if rows is None else rows
        """The position in the batch of each row in `index`."""
        self.keys = keys
        """The keys as Python values; tuples, where the key has several columns."""
        self.groups = groups
        """Their key groups."""
        self.index = index
        """The position of each row's key, as a numpy array."""

    @classmethod
    def of_columns(
        cls, fields: Sequence[Field], columns: Sequence[pa.Array], groups: npt.NDArray[Any], scope: KeyScope
    ) -> KeyIndex:
        """Find the distinct keys of rows, given their key columns and key groups."""
        # On Arrow's values: Python objects are made of distinct keys only.
        index, first = _distinct(columns)
        chosen = [column.take(pa.array(first)) for column in columns]
        types = [field.type for field in fields]
        keys = normalized_keys([to_python(column, type) for column, type in zip(chosen, types)], types)
        # Arrow tells the two zeros apart. Keys that become equal when they are normalized are joined.
        if any(type.kind in _SEVERAL_FORMS for type in types):
            places: dict[Any, int] = {}
            joined = np.array([places.setdefault(key, len(places)) for key in keys], np.int64)
            if len(places) < len(keys):
                kept = np.unique(joined, return_index=True)[1]
                index, first, keys = joined[index], first[kept], list(places)
                chosen = [column.take(pa.array(kept)) for column in chosen]
        return cls(fields=fields, columns=chosen, keys=keys, groups=groups[first].tolist(), index=index, scope=scope)

    @classmethod
    def of_keys(cls, fields: Sequence[Field], keys: Sequence[Any], groups: Sequence[int], scope: KeyScope) -> KeyIndex:
        """Find the distinct keys among normalized ones, such as those of timers."""
        places: dict[Any, int] = {}
        index = np.fromiter((places.setdefault(key, len(places)) for key in keys), np.int64, len(keys))
        distinct, first = list(places), np.unique(index, return_index=True)[1]
        values = [distinct] if len(fields) == 1 else list(zip(*distinct))
        columns = [from_python(column, field.type, field.name) for column, field in zip(values, fields)]
        of_keys = np.asarray(groups)[first].tolist()
        return cls(fields=fields, columns=columns, keys=distinct, groups=of_keys, index=index, scope=scope)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def distinct(self) -> pa.Array:
        """The distinct keys as an Arrow array: the key column, or structs of several."""
        return self._columns[0] if len(self._columns) == 1 else pa.StructArray.from_arrays(self._columns, self.names)

    @property
    def names(self) -> list[str]:
        """The names of the key columns."""
        return [field.name for field in self._fields]

    def column(self, name: str) -> pa.Array:
        """Return the key column `name` of the distinct keys."""
        if name not in self.names:
            raise KeyError(no_column(name, self.names))
        return self._columns[self.names.index(name)]

    def counts(self) -> npt.NDArray[np.int64]:
        """How many rows each key has."""
        return np.bincount(self.index, minlength=len(self)).astype(np.int64, copy=False)

    def take(self, chosen: Any) -> KeyIndex:
        """Return some of the keys, for `state.update_all` and timers. Its `index` covers only the rows of those keys.

        Args:
            chosen: Positions, or a mask with one element per key.
        """
        wanted = np.asarray(chosen)
        places = np.arange(len(self))[wanted if wanted.size else wanted.astype(np.int64)]
        if len(np.unique(places)) < len(places):
            raise ValueError("A key was chosen twice. Choose each position once: keys.take(numpy.unique(positions)).")
        new = np.full(len(self), -1, np.int64)
        new[places] = np.arange(len(places))
        index = new[self.index]
        return KeyIndex(
            fields=self._fields,
            columns=[column.take(pa.array(places)) for column in self._columns],
            keys=[self.keys[place] for place in places],
            groups=[self.groups[place] for place in places],
            index=index[index >= 0],
            scope=self._scope,
            rows=self._rows[index >= 0],
        )

    def each(self) -> Iterator[tuple[Any, npt.NDArray[np.int64]]]:
        """Yield each key, as a Python value or a tuple, with the positions of its rows in the batch (in `on_timers`: of its
        timers). Inside the loop, every state belongs to that key, so lists and maps work as in a row function:
        `for key, rows in keys.each(): self.seen.add(…)`.
        """
        order = np.argsort(self.index, kind="stable")
        ends = np.cumsum(self.counts()).tolist()
        scope, first = self._scope, 0
        before = scope.key, scope.key_group
        try:
            for key, group, end in zip(self.keys, self.groups, ends):
                scope.key = key
                scope.key_group = group
                yield key, self._rows[order[first:end]]
                first = end
        finally:
            # Also if the caller stops early: states must belong to the key from before.
            scope.key, scope.key_group = before


def _distinct(columns: Sequence[pa.Array]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Number the distinct combinations of values in the order of their first rows. Return each row's number, and the first
    row of each number.
    """
    codes, count = _codes(columns[0])
    for column in columns[1:]:
        more, distinct = _codes(column)
        # Before the product overflows, the codes so far are numbered without gaps.
        if count * distinct > _MOST_CODES:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64, copy=False)
            count = int(codes.max(initial=-1)) + 1
        codes, count = codes * distinct + more, count * distinct
    if len(columns) > 1:
        _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return rank[codes], first[order]
    first = np.empty(count, np.int64)
    # Backwards, so that the first row of each code is written last and stays.
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return codes, first


def _codes(column: pa.Array) -> tuple[npt.NDArray[np.int64], int]:
    """Number the values of a column in the order of their first rows; null is one of them."""
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)
