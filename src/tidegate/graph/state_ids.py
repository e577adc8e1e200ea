"""Numbers of states: two bytes of every key instead of two names.

A number belongs to one (uid, state name) for the whole life of a lineage, also while the state is not declared. It is
never given to another, so a state that is dropped and brought back finds its entries, and nothing else ever does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.core.errors import GraphError, StateError
from tidegate.core.ids import Uid

MAX_STATE_ID = 65_535


def assign(known: Mapping[tuple[Uid, str], int], declared: Iterable[tuple[Uid, str]]) -> Mapping[tuple[Uid, str], int]:
    """All numbers of a lineage: those known, declared or not, as they are, and new ones for what is declared anew.

    The result is to be stored with the next checkpoint and given as `known` ever after. New states are numbered in the
    order declared. Raises GraphError when the numbers are used up, StateError when two states share one.
    """
    numbers = dict(known)
    if len(set(numbers.values())) != len(numbers) or any(not 1 <= n <= MAX_STATE_ID for n in numbers.values()):
        raise StateError(
            "The numbers of states kept with the checkpoint contradict each other. The checkpoint's metadata is "
            "damaged; restore from another one."
        )
    last = max(numbers.values(), default=0)
    for state in declared:
        if state not in numbers:
            last += 1
            numbers[state] = last
    if last > MAX_STATE_ID:
        raise GraphError(
            f"A job can have {MAX_STATE_ID} states in its life, and this one needs {last}. The usual cause are uids "
            "or names of states that differ from run to run: give fixed ones, and start from a new canonical savepoint."
        )
    return numbers
