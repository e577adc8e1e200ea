"""Approximate distinct counts in little memory: HyperLogLog over Spark's own hash.

The hash of a value (32 bits) gives one of 2,048 registers, by its low 11 bits, and a rank, the position of the first one
bit among the others. A register holds the greatest rank it has seen. Spark SQL and Python hash values identically, so the
results of both can be merged.

    sparse   codes `register * 32 + rank`, two bytes each, in order, one for each register that is not empty; below 1,024
    dense    2,048 ranks, a byte each
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from math import log
from typing import TYPE_CHECKING

from tidegate.schema.datatype import DataType

if TYPE_CHECKING:
    import pyarrow as pa

_REGISTERS = 2048
_RANK_BITS = 5
_STOP = 1 << 21
"""A bit behind the 21 bits that determine the rank: it ends at 22."""


def adding(type: DataType) -> Callable[[bytes, object], bytes]:
    """Adds a value of a column of that type. Nulls are not counted."""

    def add(held: bytes, value: object) -> bytes:
        from tidegate.state.keys.murmur3 import hash_values  # noqa: PLC0415 start-up time

        return held if value is None else _with(held, _code(hash_values((value,), (type,))))

    return add


def of(codes: Iterable[int]) -> bytes:
    """Build a sketch from the result of `codes_sql`."""
    best: dict[int, int] = {}
    for code in codes:
        register = code >> _RANK_BITS
        best[register] = max(code, best.get(register, 0))
    # From here on, codes of two bytes take as much as a byte for each register.
    if len(best) >= _REGISTERS // 2:
        return _dense(best.values())
    return _bytes(array("H", sorted(best.values())))


def merge(a: bytes, b: bytes) -> bytes:
    if len(a) == len(b) == _REGISTERS:
        return bytes(map(max, a, b))
    if len(b) == _REGISTERS:
        a, b = b, a
    if len(a) == _REGISTERS:
        ranks = bytearray(a)
        for code in _codes(b):
            ranks[code >> _RANK_BITS] = max(ranks[code >> _RANK_BITS], code & 31)
        return bytes(ranks)
    return of([*_codes(a), *_codes(b)])


def estimate(held: bytes) -> int:
    ranks = held if len(held) == _REGISTERS else [code & 31 for code in _codes(held)]
    empty = _REGISTERS - len(ranks) + sum(rank == 0 for rank in ranks)
    if empty == _REGISTERS:
        return 0
    inverse = sum(2.0**-rank for rank in ranks if rank) + empty
    # The constants of the HyperLogLog paper: bias for 2,048 registers, linear counting while registers are empty, and
    # the correction for a hash of 32 bits.
    raw = 0.7213 / (1 + 1.079 / _REGISTERS) * _REGISTERS**2 / inverse
    if raw <= 2.5 * _REGISTERS and empty:
        return round(_REGISTERS * log(_REGISTERS / empty))
    return round(raw if raw <= 2**32 / 30 else -(2**32) * log(1 - raw / 2**32))


def codes_sql(column: str) -> str:
    """Return the codes of the values of a group, as Spark SQL."""
    # Spark has no function for the lowest one bit, but it can count bits: x & -x keeps the lowest one, and below it
    # there are as many ones as its place.
    rest = f"(shiftrightunsigned(hash({column}), 11) | {_STOP})"
    rank = f"bit_count(({rest} & -{rest}) - 1) + 1"
    code = f"shiftleft(hash({column}) & {_REGISTERS - 1}, {_RANK_BITS}) + {rank}"
    return f"collect_set(if({column} is null, null, cast({code} as int)))"


def codes(column: pa.Array, type: DataType) -> pa.Array:
    """Return the code of every value of a column, null for null: what `codes_sql` collects."""
    import numpy as np  # noqa: PLC0415 start-up time
    import pyarrow as pa  # noqa: PLC0415 start-up time

    from tidegate.schema.columns import null_mask  # noqa: PLC0415 start-up time
    from tidegate.state.keys.murmur3 import hash_columns  # noqa: PLC0415 start-up time

    hashes = hash_columns([column], [type]).view(np.uint32).astype(np.int64)
    rest = hashes >> 11 | _STOP
    # Exact: a power of two has an exact logarithm, and the lowest bit is at most the 22nd.
    ranks = np.log2(rest & -rest).astype(np.int64) + 1
    found = (hashes & (_REGISTERS - 1)) << _RANK_BITS | ranks
    return pa.array(found.astype(np.int32), mask=null_mask(column) if column.null_count else None)


def _code(hash: int) -> int:
    rest = (hash & 0xFFFFFFFF) >> 11 | _STOP
    return (hash & (_REGISTERS - 1)) << _RANK_BITS | (rest & -rest).bit_length()


def _with(held: bytes, code: int) -> bytes:
    register = code >> _RANK_BITS
    if len(held) == _REGISTERS:
        return held if held[register] >= code & 31 else held[:register] + bytes((code & 31,)) + held[register + 1 :]
    codes = _codes(held)
    at = bisect_left(codes, register << _RANK_BITS)
    if at < len(codes) and codes[at] >> _RANK_BITS == register:
        if codes[at] >= code:
            return held
        codes[at] = code
    else:
        codes.insert(at, code)
    return _bytes(codes) if len(codes) < _REGISTERS // 2 else _dense(codes)


def _dense(codes: Iterable[int]) -> bytes:
    ranks = bytearray(_REGISTERS)
    for code in codes:
        ranks[code >> _RANK_BITS] = code & 31
    return bytes(ranks)


def _codes(held: bytes) -> array[int]:
    codes = array("H", held)
    if sys.byteorder == "big":
        codes.byteswap()
    return codes


def _bytes(codes: array[int]) -> bytes:
    if sys.byteorder == "big":
        codes = codes[:]
        codes.byteswap()
    return codes.tobytes()
