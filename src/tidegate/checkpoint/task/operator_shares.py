"""Operator state that a new task restores from old ones: collected source by source, written at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tidegate.checkpoint.task.assignment import ListRun, TaskRestore
from tidegate.core.errors import CorruptState
from tidegate.core.ids import TaskId
from tidegate.state.accessors.operator_states import GIVEN, OWN, Lookup, element_entries, read_elements


class OperatorShares:
    """The lists and broadcast maps that one new task gets. Sources must be taken in the order of their slots."""

    def __init__(self, plan: TaskRestore, converts: Mapping[int, Callable[[bytes], bytes]] | None = None) -> None:
        self._plan = plan
        self._converts = converts or {}
        self._own: dict[int, list[bytes]] = {run.state: [] for run in (*plan.split, *plan.own_union)}
        self._given: dict[int, list[bytes]] = {run.state: [] for run in plan.union}
        self._copies: dict[int, list[bytes]] = {}

    def take(self, reader: Lookup, source: TaskId) -> None:
        """Read the planned share from the store of an old task."""
        plan = self._plan
        cache: dict[int, list[bytes]] = {}
        for runs, into in ((plan.split, self._own), (plan.own_union, self._own), (plan.union, self._given)):
            for run in runs:
                if run.source == source:
                    # Several runs may be of one list, which is decoded once.
                    if run.state not in cache:
                        cache[run.state] = self._read(reader, run.state) or []
                    into[run.state] += _cut(cache[run.state], run)
        for copy in plan.broadcast:
            if copy.source == source:
                elements = self._read(reader, copy.state)
                # None: the old task never wrote this map, which is not the same as an empty one.
                if elements is not None:
                    self._copies[copy.state] = elements

    def _read(self, reader: Lookup, state: int) -> list[bytes] | None:
        elements, convert = read_elements(reader, state), self._converts.get(state)
        return elements if elements is None or convert is None else [convert(element) for element in elements]

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries to write to the new store."""
        for state, elements in (self._own | self._copies).items():
            yield from element_entries(elements, state, OWN)
        for state, elements in self._given.items():
            yield from element_entries(elements, state, GIVEN)

    def held(self) -> dict[int, int]:
        """Return the lengths of the new task's lists, by state id. A union list that it only reads counts as empty."""
        return {state: len(self._own.get(state, ())) for state in (*self._own, *self._given)}


def _cut(elements: list[bytes], run: ListRun) -> list[bytes]:
    cut = elements[run.first : run.first + run.count]
    if len(cut) != run.count:
        raise CorruptState(
            f"The snapshot counts {run.first + run.count} or more elements of operator state {run.state} in {run.source}, "
            f"and there are {len(elements)}. Start from another checkpoint or savepoint."
        )
    return cut
