"""State ids: two bytes in every key instead of two names.

An id belongs to one (uid, state name) for the whole life of a lineage, even while the state is not declared. It is
never reused, so a state that is dropped and declared again finds its entries, and no other state ever does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.core.errors import GraphError, StateError
from tidegate.core.ids import Uid

MAX_STATE_ID = 65_535


def assign(known: Mapping[tuple[Uid, str], int], declared: Iterable[tuple[Uid, str]]) -> Mapping[tuple[Uid, str], int]:
    """Return all ids of a lineage: the known ones unchanged, declared or not, and new ones for newly declared states.

    Store the result with the next checkpoint and pass it as `known` from then on. New states are numbered in
    declaration order. Raises GraphError if the ids are used up, StateError if two states share one.
    """
    numbers = dict(known)
    if len(set(numbers.values())) != len(numbers) or any(not 1 <= n <= MAX_STATE_ID for n in numbers.values()):
        raise StateError(
            "The numbers of states kept with the checkpoint contradict each other. The checkpoint's metadata is "
            "damaged; restore from another one."
        )
    # Never the number of a state that is gone: entries of it may still be in files of a retained checkpoint.
    last = max(numbers.values(), default=0)
    for state in declared:
        if state not in numbers:
            last += 1
            numbers[state] = last
    if last > MAX_STATE_ID:
        raise GraphError(
            f"A job can have {MAX_STATE_ID} states in its life, and this one needs {last}. The usual cause is uids "
            "or state names that differ from run to run: use fixed ones, and start from a new canonical savepoint."
        )
    return numbers
