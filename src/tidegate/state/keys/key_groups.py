"""Key groups: the mapping of keys to shares of the state, computed identically in Python, numpy and Spark SQL.

`key group = pmod(hash(key), max parallelism)` and `slot = key group * parallelism // max parallelism`. The first is
fixed for the life of the state; the second changes with the parallelism and gives each slot one contiguous range.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from tidegate.core.ids import KeyGroup, Slot

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_PARALLELISM_LIMIT = 1 << 15
"""As in Flink. Key groups fit in two bytes, leaving the upper half of the values free."""

_DEFAULT_FLOOR = 1 << 7


def default_max_parallelism(parallelism: int) -> int:
    """Flink's default: one and a half times the parallelism rounded up to a power of two, within 128 and 32,768."""
    if not 1 <= parallelism <= MAX_PARALLELISM_LIMIT:
        raise ValueError(f"Parallelism {parallelism} is out of range: use 1 to {MAX_PARALLELISM_LIMIT}.")
    roomy = parallelism + parallelism // 2
    return min(max(1 << (roomy - 1).bit_length(), _DEFAULT_FLOOR), MAX_PARALLELISM_LIMIT)


def key_group(hash: int, max_parallelism: int) -> KeyGroup:
    """Return the key group of a key with this hash (see `murmur3.hash_key`)."""
    return KeyGroup(hash % max_parallelism)


def slot_of(key_group: int, parallelism: int, max_parallelism: int) -> Slot:
    """Return the slot that serves a key group."""
    return Slot(key_group * parallelism // max_parallelism)


def range_of_slot(slot: int, parallelism: int, max_parallelism: int) -> tuple[KeyGroup, KeyGroup]:
    """Return the first and last key group that a slot serves. Inverse of `slot_of`; never empty."""
    check_parallelism(parallelism, max_parallelism)
    if not 0 <= slot < parallelism:
        raise ValueError(f"There is no slot {slot} at parallelism {parallelism}; slots are 0 to {parallelism - 1}.")
    # Rounded up: the first key group whose slot is this one.
    first = -(-slot * max_parallelism // parallelism)
    last = ((slot + 1) * max_parallelism - 1) // parallelism
    return KeyGroup(first), KeyGroup(last)


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Raise ValueError unless 1 <= parallelism <= max parallelism <= 32,768."""
    if not 1 <= parallelism <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ValueError(
            f"Parallelism {parallelism} with max parallelism {max_parallelism} is invalid: parallelism is at least 1 "
            f"and at most max parallelism, which is at most {MAX_PARALLELISM_LIMIT}. Lower the parallelism, or raise "
            "max parallelism before the job has state."
        )


def key_groups(hashes: npt.NDArray[np.int32], max_parallelism: int) -> npt.NDArray[np.int32]:
    """Vectorized `key_group` (see `murmur3.hash_columns`)."""
    return hashes % hashes.dtype.type(max_parallelism)


def slots_of(key_groups: npt.NDArray[np.int32], parallelism: int, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Vectorized `slot_of`. Products are at most 32,767 * 32,768, so 32 bits are enough."""
    width = key_groups.dtype.type
    return key_groups * width(parallelism) // width(max_parallelism)


@lru_cache(maxsize=64)
def salts(partitions: int) -> tuple[int, ...]:
    """For each partition of a Spark `repartition(partitions, "salt")`, return the smallest int >= 0 that is sent to it.

    The column must be a Spark int: a bigint of the same value has a different hash. 1,000 partitions take 2 ms.
    """
    import numpy as np  # noqa: PLC0415 start-up time

    from tidegate.state.keys.murmur3 import hash_ints  # noqa: PLC0415 start-up time

    if partitions < 1:
        raise ValueError(f"The number of partitions is {partitions}; it must be at least 1.")
    found: npt.NDArray[np.int32] = np.full(partitions, -1, dtype=np.int32)
    # Nearly always enough: with sixteen candidates for each partition, few are missed.
    start, block = 0, 16 * partitions + 64
    while (found < 0).any():
        candidates = np.arange(start, start + block, dtype=np.int32)
        landed, first = np.unique(hash_ints(candidates) % np.int32(partitions), return_index=True)
        missing = found[landed] < 0
        found[landed[missing]] = candidates[first[missing]]
        start += block
    return tuple(found.tolist())


def key_group_sql(columns: Sequence[str], max_parallelism: int, struct: str | None = None) -> str:
    """Return the key group as a Spark SQL expression of type int. `struct` names the struct column that holds the columns."""
    if not columns:
        raise ValueError("A key needs at least one column.")
    within = "" if struct is None else f"{_quoted(struct)}."
    return f"pmod(hash({', '.join(within + _quoted(column) for column in columns)}), {max_parallelism})"


def slot_sql(columns: Sequence[str], parallelism: int, max_parallelism: int, struct: str | None = None) -> str:
    """Return the slot as a Spark SQL expression of type int. Without the cast, `div` yields a bigint, which has a
    different hash."""
    check_parallelism(parallelism, max_parallelism)
    return f"cast({key_group_sql(columns, max_parallelism, struct)} * {parallelism} div {max_parallelism} as int)"


def _quoted(name: str) -> str:
    # Doubled backticks are how Spark SQL quotes one.
    return "`" + name.replace("`", "``") + "`"
