"""Changes that can be made when copying a snapshot, and the resulting metadata. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorInfo, StateInfo
from tidegate.core.errors import CheckpointError
from tidegate.core.ids import Uid
from tidegate.core.type_schema import TypeSchema
from tidegate.savepoint.snapshot import StateNotFound
from tidegate.state.keys.key_groups import MAX_PARALLELISM_LIMIT


class ChangeRefused(CheckpointError):
    """A snapshot cannot be changed as asked. Nothing was written."""

    code = "CHANGE_REFUSED"


@dataclass(frozen=True, slots=True)
class NewType:
    """A new value type, as a stored schema, and the conversion of plain values from the old one."""

    value: TypeSchema
    convert: Callable[[Any], Any] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Changes:
    """`drops` names whole operators (state None) or single states."""

    max_parallelism: int | None = None
    renames: Mapping[str, str] = field(default_factory=dict)
    drops: frozenset[tuple[str, str | None]] = frozenset()
    types: Mapping[tuple[str, str], NewType] = field(default_factory=dict)
    """(old uid, state) → new type of its values."""

    @property
    def rewrites_state(self) -> bool:
        """Whether entries must be rewritten, which only the canonical format supports."""
        return self.max_parallelism is not None or bool(self.drops) or bool(self.types)

    def dropped(self, uid: str, state: str) -> bool:
        return (uid, None) in self.drops or (uid, state) in self.drops

    def renamed(self, uid: str) -> Uid:
        return Uid(self.renames.get(uid, uid))


def applied(metadata: CheckpointMetadata, changes: Changes) -> CheckpointMetadata:
    """Return the metadata with the new names, without dropped states, and with the new max parallelism; tasks are unchanged.

    Ids of dropped states are kept and never reused. Output keeps the name of its sink, since it was staged under it.
    Raises ChangeRefused or StateNotFound.
    """
    _check(metadata, changes)
    operators = []
    for operator in metadata.operators:
        states = tuple(
            _retyped(operator.uid, state, changes)
            for state in operator.states
            if not changes.dropped(operator.uid, state.name)
        )
        # As when a snapshot is taken: operators without state are not described.
        if states:
            operators.append(replace(operator, uid=changes.renamed(operator.uid), states=states))
    return replace(
        metadata,
        max_parallelism=changes.max_parallelism or metadata.max_parallelism,
        operators=tuple(operators),
        state_numbers=tuple(replace(n, uid=changes.renamed(n.uid)) for n in metadata.state_numbers),
        positions=tuple(replace(p, uid=changes.renamed(p.uid)) for p in metadata.positions),
        # Positions of file sources are files that carry the uid in their name.
        query=tuple(replace(file, name=_renamed_note(file.name, changes)) for file in metadata.query),
        splits=tuple(replace(s, source=changes.renamed(s.source)) for s in metadata.splits),
    )


def _renamed_note(name: str, changes: Changes) -> str:
    """Rename a source's file, which is called `sources/{uid}/{name}`."""
    folder, slash, rest = name.partition("/")
    uid, _, own = rest.partition("/")
    return f"{folder}/{changes.renamed(uid)}/{own}" if folder == "sources" and slash else name


def _retyped(uid: str, state: StateInfo, changes: Changes) -> StateInfo:
    new = changes.types.get((uid, state.name))
    return state if new is None else replace(state, value=new.value)


def _check(metadata: CheckpointMetadata, changes: Changes) -> None:
    known: dict[str, OperatorInfo] = {str(operator.uid): operator for operator in metadata.operators}
    uids = known.keys() | {str(p.uid) for p in metadata.positions} | {str(n.uid) for n in metadata.state_numbers}
    for old, new in changes.renames.items():
        if old not in uids:
            raise StateNotFound(f"There is no uid {old!r} to rename. The snapshot has {_listed(uids)}.")
        # Two uids may swap names: each is an old one as well as a new one.
        if new in uids and new not in changes.renames:
            raise ChangeRefused(f"{old!r} cannot be renamed to {new!r}: the snapshot has that uid already.")
    if len(set(changes.renames.values())) != len(changes.renames):
        raise ChangeRefused("Two uids would get the same new name. Give each its own name.")
    for uid, state in (*changes.drops, *changes.types):
        if uid not in known:
            raise StateNotFound(f"There is no state of {uid!r} to change. The snapshot has state of {_listed(known)}.")
        names = {s.name for s in known[uid].states}
        if state is not None and state not in names:
            raise StateNotFound(f"{uid!r} has no state {state!r} to change. It has {_listed(names)}.")
    limit = changes.max_parallelism
    if limit is not None and not 1 <= limit <= MAX_PARALLELISM_LIMIT:
        raise ChangeRefused(f"Max parallelism {limit} is invalid; use 1 to {MAX_PARALLELISM_LIMIT}.")


def _listed(names: object) -> str:
    return ", ".join(repr(name) for name in sorted(names)) or "none"  # type: ignore[call-overload]
