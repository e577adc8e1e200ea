"""Parallelism and its upper bound, with Flink's limits and defaults."""

from __future__ import annotations

from tidegate.core.errors import GraphError

MAX_PARALLELISM = 32_768
MIN_DEFAULT = 128


def default_max_parallelism(parallelism: int) -> int:
    """Flink's default: one and a half times the parallelism rounded up to a power of two, within 128 and 32768."""
    room = parallelism + parallelism // 2
    power_of_two = 1 << (room - 1).bit_length()
    return min(max(power_of_two, MIN_DEFAULT), MAX_PARALLELISM)


def check_parallelism(parallelism: int | None, max_parallelism: int | None) -> None:
    """Require 1 <= parallelism <= max parallelism <= 32768, for those that are set."""
    if max_parallelism is not None and not 1 <= max_parallelism <= MAX_PARALLELISM:
        raise GraphError(f"max_parallelism is {max_parallelism}; it must be between 1 and {MAX_PARALLELISM}.")
    limit = max_parallelism or MAX_PARALLELISM
    if parallelism is not None and not 1 <= parallelism <= limit:
        raise GraphError(
            f"parallelism is {parallelism}; it must be between 1 and {limit}"
            + (", the max_parallelism: there is at least one key group for each slot." if max_parallelism else ".")
        )
