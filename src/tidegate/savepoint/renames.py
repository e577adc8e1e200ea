"""Carries state over to the names that a job has now, without touching a stored byte. Pure.

Key bytes hold the number of a state, not its name. So a renamed state is the old number under the new name: a snapshot in
the names of the job has the same files, and every backend, canonical tables and a rescale read them as before.

A declaration may stay in the code. A snapshot records the earlier names that its job declared (`StateInfo.renamed_from`), so
a start from it can tell a rename to make from one that was made, also if two states swapped their names, or if the old name
belongs to another state by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorInfo, StateInfo, StateNumber
from tidegate.core.ids import Uid
from tidegate.graph.model import Graph
from tidegate.savepoint.changes import Changes, applied

EarlierNames = Mapping[str, tuple[str, ...]]
"""Every name that is declared now → the names that it had before, the latest first."""


@dataclass(frozen=True, slots=True)
class DeclaredNames:
    """The names that a job declares, and the earlier ones of those that it renamed."""

    states: Mapping[str, EarlierNames] = field(default_factory=dict)
    """Uid → the names of its states."""
    uids: EarlierNames = field(default_factory=dict)
    """Only renamed operators and sources."""

    @staticmethod
    def of(graph: Graph) -> DeclaredNames:
        states = {
            str(node.uid): {spec.name: spec.renamed_from for spec in node.states}
            for node in graph.stateful
            if node.uid is not None
        }
        return DeclaredNames(states, {str(uid): names for uid, names in graph.renamed_uids.items()})


def carried_over(snapshot: CheckpointMetadata, job: DeclaredNames) -> CheckpointMetadata:
    """Return the snapshot in the names of the job. Contents that the job does not claim keep their name.

    A snapshot that the job itself took is returned as it is. A rename that would displace other contents is left out; `judge`
    refuses it.
    """
    # Uids first: states are looked up under the uid that the operator has now.
    uids = _uids_to_rename(snapshot, job.uids)
    if uids:
        snapshot = applied(snapshot, Changes(renames=uids))
    operators: list[OperatorInfo] = []
    numbers = {(number.uid, number.name): number.id for number in snapshot.state_numbers}
    for operator in snapshot.operators:
        earlier = job.states.get(operator.uid, {})
        renames = states_to_rename(operator.states, earlier)
        operators.append(
            replace(operator, states=tuple(_renamed(state, renames, earlier) for state in operator.states))
        )
        if renames:
            numbers = _renumbered(numbers, operator, renames)
    listed = tuple(StateNumber(uid, name, id) for (uid, name), id in numbers.items())
    return replace(snapshot, operators=tuple(operators), state_numbers=listed)


def states_to_rename(stored: Iterable[StateInfo], earlier: EarlierNames) -> dict[str, str]:
    """Return old name → new name for the states of one operator that are not renamed yet."""
    by_name = {state.name: state for state in stored}
    renames: dict[str, str] = {}
    for name in earlier:
        old = unclaimed_name(name, by_name, earlier)
        # Two new names may claim one old name. The one that is declared first gets it.
        if old is not None and old not in renames:
            renames[old] = name
    # The contents that a rename displaces must move as well. Without that rename, those that it relied on cannot move either.
    while displacing := [old for old, new in renames.items() if new in by_name and new not in renames]:
        for old in displacing:
            del renames[old]
    return renames


def unclaimed_name(name: str, stored: Mapping[str, StateInfo], earlier: EarlierNames) -> str | None:
    """Return the latest earlier name of a state under which the snapshot holds contents that the state did not take yet."""
    state = stored.get(name)
    taken = () if state is None else state.renamed_from
    return next((old for old in earlier.get(name, ()) if old in stored and old not in taken), None)


def _renamed(state: StateInfo, renames: Mapping[str, str], earlier: EarlierNames) -> StateInfo:
    new = renames.get(state.name)
    if new is None:
        return state
    return replace(state, name=new, renamed_from=earlier[new], declared=True)


def _renumbered(
    numbers: Mapping[tuple[Uid, str], int], operator: OperatorInfo, renames: Mapping[str, str]
) -> dict[tuple[Uid, str], int]:
    """Return the numbers under the new names. No number is ever given up: one that belonged to a name without contents
    belongs to a name that became free."""
    uid = operator.uid
    changed = {(uid, name) for name in (*renames, *renames.values())}
    kept = {state: id for state, id in numbers.items() if state not in changed}
    moved = {(uid, renames[state.name]): state.id for state in operator.states if state.name in renames}
    freed = sorted(renames.keys() - set(renames.values()))
    displaced = [numbers[uid, new] for new in sorted(set(renames.values()) - renames.keys()) if (uid, new) in numbers]
    return kept | moved | {(uid, name): id for name, id in zip(freed, displaced)}


def _uids_to_rename(snapshot: CheckpointMetadata, earlier: EarlierNames) -> dict[str, str]:
    known = {str(o.uid) for o in snapshot.operators} | {str(p.uid) for p in snapshot.positions}
    known |= {str(number.uid) for number in snapshot.state_numbers}
    renames: dict[str, str] = {}
    for new, names in earlier.items():
        old = next((name for name in names if name in known), None)
        # A uid that the snapshot has belongs to contents of its own, or has what the old one held.
        if old is not None and new not in known and old not in renames:
            renames[old] = new
    return renames
