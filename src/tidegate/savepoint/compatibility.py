"""Decides whether a job can start from a snapshot: a verdict for every state, before anything runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar

from tidegate.checkpoint.metadata import CheckpointMetadata, Distribution, OperatorInfo, StateInfo
from tidegate.core.ids import Uid
from tidegate.graph.stateful_processing import TIMERS_OF_KEY
from tidegate.graph.states import CLASS_NAMES, StateKind
from tidegate.savepoint.changes import NewType
from tidegate.savepoint.entries import SHAPES, Shape
from tidegate.savepoint.evolution import DROPPED, AsIs, Incompatible, Migrate, Renames, compare, compare_keys
from tidegate.savepoint.recovery_words import FLAGS, HARNESS, RecoveryWords
from tidegate.savepoint.renames import unclaimed_name
from tidegate.savepoint.schema_codec import Schema, show_schema
from tidegate.state.accessors.ttl import stamp_of, unstamped


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
    """All verdicts, ordered by uid. `allow_non_restored_state` and `drops` are the options that they were decided with."""

    verdicts: tuple[StateVerdict, ...]
    allow_non_restored_state: bool = False
    drops: Collection[tuple[str, str]] = frozenset()

    @property
    def refusals(self) -> tuple[StateVerdict, ...]:
        """The verdicts that prevent the job from starting."""
        dropped = set(self.dropped)
        return tuple(
            verdict
            for verdict in self.verdicts
            if verdict.outcome is VerdictKind.INCOMPATIBLE
            or (
                verdict.outcome is VerdictKind.DROPPED
                and not self.allow_non_restored_state
                and (verdict.uid, verdict.state) not in dropped
            )
        )

    @property
    def dropped(self) -> tuple[tuple[Uid, str], ...]:
        """Uid and name of the states that are dropped because the user named them."""
        return tuple(
            (verdict.uid, verdict.state)
            for verdict in self.verdicts
            if verdict.outcome is VerdictKind.DROPPED and verdict.state is not None
            if (verdict.uid, verdict.state) in self.drops
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
    drops: Collection[tuple[str, str]] = frozenset()
    """(new uid, state) → states that the user drops, unless the job declares them. (new uid, `state:field`): a field of one."""
    words: ClassVar[RecoveryWords] = FLAGS
    """What advice tells the user to write."""

    def field_renames(self, uid: str, state: str) -> Renames:
        """Return what the user says about the fields of a state: those that are renamed, and those that are dropped."""
        named = [name.partition(":") for owner, name in self.drops if owner == uid]
        dropped = {field: DROPPED for name, colon, field in named if colon and name == state}
        return dropped | dict(self.renames.get((uid, state), {}))


@dataclass(frozen=True, slots=True)
class JobInHarness(JobNow):
    """Advice for tests names arguments of the harness."""

    words: ClassVar[RecoveryWords] = HARNESS


def judge(snapshot: CheckpointMetadata, job: JobNow, allow_non_restored_state: bool = False) -> Compatibility:
    """Return a verdict for every state in the snapshot or in the job, and for the positions of sources.

    The snapshot is in the names of the job: see `carried_over`.
    """
    verdicts = list(_whole_job(snapshot, job))
    before = {Uid(job.uids.get(operator.uid, operator.uid)): operator for operator in snapshot.operators}
    after = {operator.uid: operator for operator in job.operators}
    for uid in sorted(before.keys() | after.keys()):
        # Operators that appeared with this version are named in advice about those that disappeared.
        verdicts += _operator(uid, before.get(uid), after.get(uid), job, sorted(after.keys() - before.keys()))
    # A source that had not started when the snapshot was taken has nothing to lose.
    read = {Uid(job.uids.get(position.uid, position.uid)) for position in snapshot.positions if position.lines}
    for uid in sorted(read | set(job.sources)):
        verdicts.append(_source(uid, uid in read, uid in job.sources))
    return Compatibility(tuple(verdicts), allow_non_restored_state, job.drops)


def _whole_job(snapshot: CheckpointMetadata, job: JobNow) -> Iterable[StateVerdict]:
    if job.max_parallelism is not None and job.max_parallelism != snapshot.max_parallelism:
        yield StateVerdict(
            uid=Uid("*"),
            state=None,
            outcome=VerdictKind.INCOMPATIBLE,
            reason=f"max parallelism was {snapshot.max_parallelism} and is {job.max_parallelism}",
            advice=f"Set it to {snapshot.max_parallelism}, or write another savepoint with `tidegate savepoint copy "
            f"--max-parallelism {job.max_parallelism}`.",
        )


def _operator(
    uid: Uid, old: OperatorInfo | None, new: OperatorInfo | None, job: JobNow, new_uids: Sequence[Uid]
) -> list[StateVerdict]:
    if old is None:
        assert new is not None
        return [
            StateVerdict(uid, state.name, VerdictKind.NEW, "the snapshot has no such operator") for state in new.states
        ]
    if new is None:
        return [_of_no_operator(uid, state.name, job, new_uids) for state in old.states]
    before, after = {s.name: s for s in old.states}, {s.name: s for s in new.states}
    # Before its states: with another key, none of them can be found.
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
    earlier = {state.name: state.renamed_from for state in new.states}
    appeared = [state for state in new.states if state.name not in before and _may_be_renamed(state)]
    verdicts = []
    for name, now in after.items():
        claimed = unclaimed_name(name, before, earlier)
        if claimed is not None and name in before:
            verdicts.append(_displacing(uid, claimed, name))
        elif name not in before:
            verdicts.append(StateVerdict(uid, name, VerdictKind.NEW, "the operator did not have it"))
        else:
            verdicts.append(_state(uid, before[name], now, job))
    for name, was in before.items():
        if name not in after:
            verdicts.append(_undeclared(uid, was, appeared, job))
    return verdicts


def _state(uid: Uid, old: StateInfo, new: StateInfo, job: JobNow) -> StateVerdict:
    def refused(reason: str, advice: str) -> StateVerdict:
        return StateVerdict(uid=uid, state=old.name, outcome=VerdictKind.INCOMPATIBLE, reason=reason, advice=advice)

    if (SHAPES.get(old.kind, old.kind), old.distribution) != (SHAPES.get(new.kind, new.kind), new.distribution):
        was, now = f"{old.kind} ({old.distribution})", f"{new.kind} ({new.distribution})"
        return refused(
            f"it was {was} and is {now}", "Declare the new kind under another name, and fill it from the old one."
        )
    if old.namespace != new.namespace:
        was, now = ("one per key" if state.namespace is None else "one per key and window" for state in (old, new))
        return refused(
            f"it was {was} and is {now}", "Declare the new one under another name, and fill it from the old one."
        )
    keys = compare_keys(old.map_key, new.map_key)
    if isinstance(keys, Incompatible):  # also for a broadcast map, whose keys may be matched against rows
        return refused(keys.reason, keys.advice)
    match _whole_entry(old, new, job.field_renames(uid, old.name)):
        case AsIs(notes):
            return StateVerdict(uid, old.name, VerdictKind.AS_IS, "; ".join(notes))
        case Migrate(convert, notes):
            return StateVerdict(
                uid, old.name, VerdictKind.MIGRATED, "; ".join(notes), convert=_of_entries(old, convert)
            )
        case Incompatible(reason, advice, perhaps_renamed):
            if perhaps_renamed is not None:
                advice = _advice_on_field(uid, old.name, *perhaps_renamed, job.words)
            return refused(reason, advice)


def _advice_on_field(uid: Uid, state: str, field: str, name: str, words: RecoveryWords) -> str:
    return (
        f"If {field} is now called {name}, declare that with {words.rename(uid, state, field, name)}. If it is not needed any "
        f"more, drop it with {words.drop(uid, f'{state}:{field}')}."
    )


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
    # Each segment holds a list of elements. (Lists of other distributions hold one element in an entry.)
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


_NOT_DECLARED = "the operator does not declare it any more"


def _undeclared(uid: Uid, state: StateInfo, appeared: Sequence[StateInfo], job: JobNow) -> StateVerdict:
    """The verdict on a state that its operator no longer declares.

    If the operator has a new state, that may be the old one under another name, and would start empty: only the user knows.
    Otherwise keyed entries stay in the operator's files and are available when it is declared again; list elements belong to a
    function, which provides them for every snapshot.
    """
    if (uid, state.name) in job.drops:
        return StateVerdict(uid, state.name, VerdictKind.DROPPED, f"{_NOT_DECLARED}, and it is to be dropped")
    # A state that was undeclared when the snapshot was taken did not disappear now: the question was answered then.
    if appeared and state.declared and _may_be_renamed(state):
        return _perhaps_renamed(uid, state, appeared, job.words)
    # Keyed entries are found by number, and stay until somebody asks for them.
    if state.distribution is Distribution.KEYED:
        return StateVerdict(uid, state.name, VerdictKind.AS_IS, f"{_NOT_DECLARED}; what it holds is kept")
    return _dropped(uid, state.name, _NOT_DECLARED)


def _may_be_renamed(state: StateInfo) -> bool:
    """Whether a user gave the state its name. Timers have one of ours."""
    return state.kind != StateKind.TIMERS and state.name != TIMERS_OF_KEY.name


def _perhaps_renamed(uid: Uid, state: StateInfo, appeared: Sequence[StateInfo], words: RecoveryWords) -> StateVerdict:
    # The likeliest first: a state of the same kind.
    likely = sorted(appeared, key=lambda new: SHAPES.get(new.kind) != SHAPES.get(state.kind))
    names = ", ".join(repr(new.name) for new in likely)
    return StateVerdict(
        uid=uid,
        state=state.name,
        outcome=VerdictKind.INCOMPATIBLE,
        reason=f"{_NOT_DECLARED}, and its new state {names} would start empty{_in_vain(likely[0])}",
        advice=f"If {state.name!r} is now called {likely[0].name!r}, write {_declaration(likely[0], state.name)}. If it is not "
        f"needed any more, drop it with {words.drop(uid, state.name)}.",
    )


def _in_vain(state: StateInfo) -> str:
    """What to add about a declaration that has found nothing."""
    if not state.renamed_from:
        return ""
    return f" (its renamed_from={', '.join(map(repr, state.renamed_from))} is no state of the snapshot)"


def _declaration(state: StateInfo, old: str) -> str:
    """Return the line of code that renames a state: `sum = tg.ValueState(int, …, renamed_from="total")`."""
    kind = StateKind(state.kind)
    is_broadcast = state.distribution is Distribution.BROADCAST
    types = [state.value] if state.map_key is None else [state.map_key, state.value]
    shown = ", ".join(map(show_schema, types))
    # A class is shown with its fields, and the functions of a state cannot be shown.
    is_whole = "(" not in shown and kind not in (StateKind.REDUCING, StateKind.AGGREGATING)
    arguments = shown if is_whole and state.distribution in (Distribution.KEYED, Distribution.BROADCAST) else "…"
    name = "BroadcastState" if is_broadcast else CLASS_NAMES[kind]
    # What else the declaration says, such as a default, stays as it is.
    others = "" if arguments == "…" else ", …"
    return f'{state.name} = tg.{name}({arguments}{others}, renamed_from="{old}")'


def _displacing(uid: Uid, old: str, new: str) -> StateVerdict:
    return StateVerdict(
        uid=uid,
        state=new,
        outcome=VerdictKind.INCOMPATIBLE,
        reason=f"it is declared with renamed_from={old!r}, and the snapshot has contents of both {old!r} and {new!r}",
        advice=f"If {new!r} was renamed before this snapshot, remove renamed_from. Otherwise give the state that was {old!r} a "
        "name that the snapshot does not have.",
    )


def _of_no_operator(uid: Uid, state: str, job: JobNow, new_uids: Sequence[Uid]) -> StateVerdict:
    reason = "the job has no operator of this uid with state"
    if (uid, state) in job.drops:
        return StateVerdict(uid, state, VerdictKind.DROPPED, f"{reason}, and it is to be dropped")
    verdict = _dropped(uid, state, reason)
    if not new_uids:
        return verdict
    new = str(new_uids[0])
    return replace(
        verdict,
        advice=f'If the operator is now called {new!r}, write tg.Uid("{new}", renamed_from="{uid}") for its uid, or start with '
        f"--map-uid {uid}={new}. If its state is not needed any more, start with -n (--allow-non-restored-state).",
    )


def _source(uid: Uid, had: bool, has: bool) -> StateVerdict:
    if had and has:
        return StateVerdict(uid, None, VerdictKind.AS_IS, "position of the source")
    if has:
        return StateVerdict(uid, None, VerdictKind.NEW, "a new source starts from its beginning")
    return _dropped(uid, None, "the job has no source of this uid")


def _dropped(uid: Uid, state: str | None, reason: str) -> StateVerdict:
    return StateVerdict(
        uid=uid,
        state=state,
        outcome=VerdictKind.DROPPED,
        reason=reason,
        advice="Give it back its old uid or name, map the uid, or allow it to be dropped (-n, --allow-non-restored-state).",
    )


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
            answer = compare(state.value, now.value, job.field_renames(uid, state.name))
            if isinstance(answer, Migrate):
                found[operator.uid, state.name] = NewType(dict(now.value), answer.convert_plain)
    return found
