"""Decides whether a job can start from a snapshot: a verdict for every state, before anything runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.checkpoint.metadata import CheckpointMetadata, Distribution, OperatorInfo, StateInfo
from tidegate.core.ids import Uid
from tidegate.savepoint.changes import NewType
from tidegate.savepoint.entries import SHAPES, Shape
from tidegate.savepoint.evolution import AsIs, Incompatible, Migrate, Renames, compare, compare_keys
from tidegate.savepoint.schema_codec import Schema, show_schema
from tidegate.state.ttl import stamp_of, unstamped


class VerdictKind(StrEnum):
    AS_IS = "as is"
    MIGRATED = "migrated"
    NEW = "new"
    DROPPED = "dropped"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True)
class StateVerdict:
    """What happens to one state. `state` is None if the verdict is about a whole operator, a source, or the job."""

    uid: Uid
    state: str | None
    outcome: VerdictKind
    reason: str = ""
    advice: str = ""
    convert: Callable[[bytes], bytes] | None = field(default=None, compare=False)
    """For a migrated state: converts the stored bytes of an entry to those that the job expects."""


@dataclass(frozen=True, slots=True)
class Compatibility:
    """All verdicts, ordered by uid. `allow_non_restored_state` is the option that they were decided with."""

    verdicts: tuple[StateVerdict, ...]
    allow_non_restored_state: bool = False

    @property
    def refusals(self) -> tuple[StateVerdict, ...]:
        """The verdicts that prevent the job from starting."""
        return tuple(
            verdict
            for verdict in self.verdicts
            if verdict.outcome is VerdictKind.INCOMPATIBLE
            or (verdict.outcome is VerdictKind.DROPPED and not self.allow_non_restored_state)
        )

    @property
    def compatible(self) -> bool:
        return not self.refusals


@dataclass(frozen=True, slots=True)
class JobNow:
    """The job as currently declared, with its uid map and renamed fields."""

    operators: tuple[OperatorInfo, ...]
    sources: tuple[Uid, ...] = ()
    max_parallelism: int | None = None
    """None: that of the snapshot."""
    uids: Mapping[str, str] = field(default_factory=dict)
    """Old uid → new uid."""
    renames: Mapping[tuple[str, str], Renames] = field(default_factory=dict)
    """(new uid, state) → renamed fields."""


def judge(snapshot: CheckpointMetadata, job: JobNow, allow_non_restored_state: bool = False) -> Compatibility:
    """Return a verdict for every state in the snapshot or in the job, and for the positions of sources."""
    verdicts = list(_whole_job(snapshot, job))
    before = {Uid(job.uids.get(operator.uid, operator.uid)): operator for operator in snapshot.operators}
    after = {operator.uid: operator for operator in job.operators}
    for uid in sorted(before.keys() | after.keys()):
        verdicts += _operator(uid, before.get(uid), after.get(uid), job)
    # A source that had not started when the snapshot was taken has nothing to lose.
    read = {Uid(job.uids.get(position.uid, position.uid)) for position in snapshot.positions if position.lines}
    for uid in sorted(read | set(job.sources)):
        verdicts.append(_source(uid, uid in read, uid in job.sources))
    return Compatibility(tuple(verdicts), allow_non_restored_state)


def _whole_job(snapshot: CheckpointMetadata, job: JobNow) -> Iterable[StateVerdict]:
    if job.max_parallelism is not None and job.max_parallelism != snapshot.max_parallelism:
        yield StateVerdict(
            uid=Uid("*"), state=None, outcome=VerdictKind.INCOMPATIBLE,
            reason=f"max parallelism was {snapshot.max_parallelism} and is {job.max_parallelism}",
            advice=f"Set it to {snapshot.max_parallelism}, or write another savepoint with `tidegate savepoint copy "
            f"--max-parallelism {job.max_parallelism}`.",
        )  # fmt: skip


def _operator(uid: Uid, old: OperatorInfo | None, new: OperatorInfo | None, job: JobNow) -> list[StateVerdict]:
    if old is None:
        assert new is not None
        return [
            StateVerdict(uid, state.name, VerdictKind.NEW, "the snapshot has no such operator") for state in new.states
        ]
    if new is None:
        return [_dropped(uid, state.name, "the job has no operator of this uid with state") for state in old.states]
    before, after = {s.name: s for s in old.states}, {s.name: s for s in new.states}
    if old.key != new.key:
        return [
            StateVerdict(
                uid=uid,
                state=name,
                outcome=VerdictKind.INCOMPATIBLE,
                reason=f"the key was ({show_schema(old.key)}) and is ({show_schema(new.key)})",
                advice="Keys never change: a key's type decides its bytes and its key group. Key by the same columns, or use a "
                "new uid and fill its state from the old one.",
            )
            for name in before.keys() & after.keys() or before
        ]
    verdicts = []
    for name in (*after, *(name for name in before if name not in after)):
        if name not in before:
            verdicts.append(StateVerdict(uid, name, VerdictKind.NEW, "the operator did not have it"))
        elif name not in after:
            verdicts.append(_undeclared(uid, before[name]))
        else:
            verdicts.append(_state(uid, before[name], after[name], job.renames.get((uid, name), {})))
    return verdicts


def _state(uid: Uid, old: StateInfo, new: StateInfo, renames: Renames) -> StateVerdict:
    def refused(reason: str, advice: str) -> StateVerdict:
        return StateVerdict(uid=uid, state=old.name, outcome=VerdictKind.INCOMPATIBLE, reason=reason, advice=advice)

    if (SHAPES.get(old.kind, old.kind), old.distribution) != (SHAPES.get(new.kind, new.kind), new.distribution):
        was, now = f"{old.kind} ({old.distribution})", f"{new.kind} ({new.distribution})"
        return refused(
            f"it was {was} and is {now}", "Declare the new kind under another name, and fill it from the old one."
        )
    keys = compare_keys(old.map_key, new.map_key)
    if isinstance(keys, Incompatible):  # also for a broadcast map, whose keys may be matched against rows
        return refused(keys.reason, keys.advice)
    match _whole_entry(old, new, renames):
        case AsIs(notes):
            return StateVerdict(uid, old.name, VerdictKind.AS_IS, "; ".join(notes))
        case Migrate(convert, notes):
            return StateVerdict(
                uid, old.name, VerdictKind.MIGRATED, "; ".join(notes), convert=_of_entries(old, convert)
            )
        case Incompatible(reason, advice):
            return refused(reason, advice)


def entry_conversion(old: StateInfo, new: StateInfo, renames: Renames) -> Callable[[bytes], bytes]:
    """Return the conversion of an entry's stored bytes to those that the job expects, for a migrated state."""
    answer = _whole_entry(old, new, renames)
    assert isinstance(answer, Migrate)
    return _of_entries(old, answer.convert)


def _of_entries(old: StateInfo, convert: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    # Only entries of keyed state have stamps. An element of a list may start with any byte.
    return _keeping_stamps(convert) if old.distribution is Distribution.KEYED else convert


def _whole_entry(old: StateInfo, new: StateInfo, renames: Renames) -> AsIs | Migrate | Incompatible:
    """Compare what one entry of the store holds: a segment of a keyed list, or a pair of a broadcast map."""
    if old.distribution is not Distribution.KEYED:
        if old.map_key is None or new.map_key is None:
            return compare(old.value, new.value, renames)
        return compare(_pair(old.map_key, old.value), _pair(new.map_key, new.value), renames)
    if SHAPES.get(old.kind) is Shape.LIST:
        before, after = ({"type": "list", "element": dict(state.value)} for state in (old, new))
        return compare(before, after, renames)
    return compare(old.value, new.value, renames)


def _pair(map_key: Schema, value: Schema) -> Schema:
    return {"type": "tuple", "elements": [map_key, value]}


def _keeping_stamps(convert: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def converted(raw: bytes) -> bytes:
        stamp = stamp_of(raw)
        return convert(raw) if stamp is None else stamp.before(convert(unstamped(raw)))

    return converted


def _undeclared(uid: Uid, state: StateInfo) -> StateVerdict:
    """The verdict on a state that its operator no longer declares. Keyed entries stay in the operator's files and are
    available when it is declared again; list elements belong to a function, which provides them for every snapshot."""
    if state.distribution is Distribution.KEYED:
        return StateVerdict(
            uid, state.name, VerdictKind.AS_IS, "the operator does not declare it any more; what it holds is kept"
        )
    return _dropped(uid, state.name, "the operator does not declare it any more")


def _source(uid: Uid, had: bool, has: bool) -> StateVerdict:
    if had and has:
        return StateVerdict(uid, None, VerdictKind.AS_IS, "position of the source")
    if has:
        return StateVerdict(uid, None, VerdictKind.NEW, "a new source starts from its beginning")
    return _dropped(uid, None, "the job has no source of this uid")


def _dropped(uid: Uid, state: str | None, reason: str) -> StateVerdict:
    return StateVerdict(
        uid=uid, state=state, outcome=VerdictKind.DROPPED, reason=reason,
        advice="Give it back its old uid or name, map the uid, or allow it to be dropped (-n, --allowNonRestoredState).",
    )  # fmt: skip


def conversions(snapshot: CheckpointMetadata, job: JobNow) -> Mapping[tuple[str, str], NewType]:
    """Return the `Changes.types` that convert every state of a snapshot to the types that the job declares.

    Contains only states that must be migrated. Call `judge` first: incompatible states are left out here.
    """
    declared = {(operator.uid, state.name): state for operator in job.operators for state in operator.states}
    found: dict[tuple[str, str], NewType] = {}
    for operator in snapshot.operators:
        uid = Uid(job.uids.get(operator.uid, operator.uid))
        for state in operator.states:
            now = declared.get((uid, state.name))
            if now is None:
                continue
            answer = compare(state.value, now.value, job.renames.get((uid, state.name), {}))
            if isinstance(answer, Migrate):
                found[operator.uid, state.name] = NewType(dict(now.value), answer.convert_plain)
    return found
