"""Values of many keys as arrays, and back: what functions over whole batches read from and write to a `ValueState`."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.errors import WrongValue
from tidegate.core.types import show_type

_NUMPY: dict[Any, Any] = {int: np.int64, float: np.float64, bool: np.bool_}
_ARROW: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.date: pa.date32(),
}
# Kinds of numpy's types that convert without a loss that nobody asked for.
_KINDS = {int: "iu", float: "fiu", bool: "b"}


def as_array(values: list[Any], type: Any, default: Any) -> npt.NDArray[Any] | pa.Array:
    """Ints, floats and bools with a default as a numpy array; those without, and strings, bytes and dates, as an Arrow array with
    null where there is neither value nor default; everything else as a numpy array of Python objects.
    """
    try:
        if type in _NUMPY and default is not None:
            return np.fromiter(values, _NUMPY[type], len(values))
        if type in _ARROW:
            return pa.array(values, _ARROW[type])
    except (OverflowError, pa.ArrowInvalid):
        raise WrongValue(
            "A stored int is larger than 2**63 - 1, so the values cannot be returned as an array. Read them key by key: "
            "for key, rows in keys.each()."
        ) from None
    found = np.empty(len(values), object)
    # Not `np.array`, which would make a matrix of equally long lists.
    found[:] = values
    return found


def as_values(given: Any, type: Any, count: int) -> list[Any]:
    """The elements of an array as Python values. Raises WrongValue unless there are `count`, of the state's type."""
    values = _listed(given, type)
    if len(values) != count:
        raise WrongValue(
            f"update_all got {len(values)} values for {count} keys. Pass one value for each distinct key, in the order of "
            "keys.distinct."
        )
    return values


def _listed(given: Any, type: Any) -> list[Any]:
    if isinstance(given, np.ndarray):
        if given.ndim != 1:
            raise WrongValue(f"update_all takes an array of one dimension; this one has {given.ndim}.")
        if type in _KINDS and given.dtype.kind != "O":
            if given.dtype.kind not in _KINDS[type]:
                raise WrongValue(
                    f"update_all got an array of {given.dtype} for a state of {show_type(type)}. Convert it, for example with "
                    f"array.astype({show_type(type)})."
                )
            given = given.astype(np.float64, copy=False) if type is float else given
        return list(given.tolist())
    if hasattr(given, "to_pylist"):  # Arrow
        return list(given.to_pylist())
    if hasattr(given, "to_list"):  # pandas, polars
        return list(given.to_list())
    try:
        return list(given)
    except TypeError:
        raise WrongValue(f"update_all takes an array with one value for each key; got {given!r:.200}.") from None
