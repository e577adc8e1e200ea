"""Adapts a snapshot to the job that starts from it, or reports why that is impossible. Pure.

State is migrated when it is restored, not when it is read: a task that restores a state of another type reads its
entries, converts them, and writes them to its first version. From then on only the new type exists, in local versions
and in the first checkpoint; the snapshot itself is never changed, so the old code can still start from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from tidegate.checkpoint.metadata import CheckpointMetadata, StateInfo
from tidegate.checkpoint.task.version_restore import Migration
from tidegate.config.errors import OptionError
from tidegate.core.errors import RestoreError
from tidegate.core.ids import Uid
from tidegate.core.nearest import nearest
from tidegate.savepoint.changes import Changes, applied
from tidegate.savepoint.compatibility import Compatibility, JobNow, StateVerdict, VerdictKind, entry_conversion, judge
from tidegate.savepoint.evolution import MigrationFailed
from tidegate.savepoint.recovery_words import RecoveryWords


class StateChanged(RestoreError):
    """The declared type of a state or its key is incompatible with the snapshot. Nothing was written."""

    code = "STATE_CHANGED"

    def __init__(self, compatibility: Compatibility, refused: Iterable[StateVerdict]) -> None:
        self.verdicts = compatibility.verdicts
        super().__init__(f"The snapshot does not fit the job. {' '.join(map(_sentence, refused))} {_ALL}")


class UidsCannotBeMapped(RestoreError):
    """A map of uids names operators that the snapshot does not have, or gives two of them one name."""

    code = "UIDS_CANNOT_BE_MAPPED"


_ALL = (
    "`tidegate compat JOB.PY --from PATH` shows the verdict on every state. To convert state by a rule of your own, write a "
    "savepoint with tg.SavepointWriter."
)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The verdicts, none of which prevents the start, and the conversions required."""

    compatibility: Compatibility
    migrations: tuple[Migration, ...] = ()
    dropped: frozenset[int] = frozenset()
    """Ids of states that the user drops: their entries are not restored."""

    @property
    def rewritten(self) -> frozenset[int]:
        return frozenset(each.old.id for each in self.migrations)


def fit(snapshot: CheckpointMetadata, job: JobNow, allow_non_restored_state: bool) -> Fitted:
    """Judge every state. Raises `StateChanged` for state that can never be restored, whether or not state may be dropped.

    Operators and sources missing from the job are rejected by the restore plan.
    """
    answer = judge(snapshot, job, allow_non_restored_state)
    kept = {operator.uid for operator in job.operators}
    # Operators that are gone altogether are left to the restore plan, whose error names them.
    refused = [v for v in answer.refusals if v.outcome is VerdictKind.INCOMPATIBLE or (v.state and v.uid in kept)]
    if refused:
        raise StateChanged(answer, refused)
    before = {(operator.uid, state.name): state for operator in snapshot.operators for state in operator.states}
    after = {(operator.uid, state.name): state for operator in job.operators for state in operator.states}
    names = [(v.uid, v.state) for v in answer.verdicts if v.outcome is VerdictKind.MIGRATED and v.state is not None]
    return Fitted(
        answer,
        tuple(Migration(before[name], after[name], dict(job.field_renames(*name))) for name in names),
        frozenset(before[name].id for name in answer.dropped),
    )


def check_names(snapshot: CheckpointMetadata, job: JobNow) -> None:
    """Raise `OptionError` if the user renames or drops a state, or renames a field, that does not exist.

    What an earlier start renamed or dropped is no mistake: flags may stay in a script. A snapshot knows the names of all states
    that it ever had. Of fields it knows none, so a rename counts as made if the snapshot has the new name.
    """
    known = {(str(number.uid), number.name) for number in snapshot.state_numbers}
    before = {(str(operator.uid), state.name): state for operator in snapshot.operators for state in operator.states}
    after = {(str(operator.uid), state.name): state for operator in job.operators for state in operator.states}
    known |= before.keys() | after.keys()
    problems = []
    for uid, name in sorted(job.drops):
        if (uid, name.partition(":")[0]) not in known:
            said = job.words.drop(uid, name)
            problems.append(_no_state(said, uid, name.partition(":")[0], known, job.words))
    for (uid, state), fields in job.renames.items():
        for old, new in fields.items():
            said = job.words.rename(uid, state, old, new)
            if (uid, state) not in known:
                problems.append(_no_state(said, uid, state, known, job.words))
            elif (uid, state) in before and (uid, state) in after:
                had, has = _fields(before[uid, state]), _fields(after[uid, state])
                was = old.rpartition(".")[2]
                if was not in had and new not in had:
                    problems.append(f"{said}: the snapshot has no field {was!r} in this state. {_meant(was, had)}")
                elif was in had and new not in has:
                    problems.append(f"{said}: this state of the job has no field {new!r}. {_meant(new, has)}")
    if problems:
        raise OptionError(tuple(problems))


def _no_state(said: str, uid: str, state: str, known: Iterable[tuple[str, str]], words: RecoveryWords) -> str:
    names = {words.state(owner, name) for owner, name in known}
    near = nearest(state, sorted(name for owner, name in known if owner == uid))
    meant = _meant(words.state(uid, state), names) if near is None else f"Did you mean {words.state(uid, near)}?"
    return f"{said}: {uid!r} has no state {state!r}. {meant}"


def _meant(name: str, known: Collection[str]) -> str:
    near = nearest(name, sorted(known))
    return f"There are {', '.join(sorted(known)) or 'none'}." if near is None else f"Did you mean {near}?"


def _fields(state: StateInfo) -> set[str]:
    """Return the names of all fields inside the type of a state."""
    names: set[str] = set()
    waiting: list[object] = [state.value, state.map_key]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            names |= {each["name"] for each in part.get("fields", ())}
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
    return names


def converter(migration: Migration) -> Callable[[bytes], bytes]:
    """Return the conversion of one stored entry, or element, to the current type of its state. It raises
    `MigrationFailed` for a value without an equivalent."""
    convert = entry_conversion(migration.old, migration.new, migration.renames)

    def converted(raw: bytes) -> bytes:
        try:
            return convert(raw)
        except MigrationFailed as error:
            raise MigrationFailed(f"State {migration.old.name!r} cannot be migrated: {error}") from error

    return converted


def translated(snapshot: CheckpointMetadata, uids: Mapping[str, str]) -> CheckpointMetadata:
    """Return the snapshot with operators and sources under their new uids.

    Can be applied to a snapshot that already has the new uids, so the map can stay in a configuration across restarts.
    That is why no uid can be both old and new. Raises `UidsCannotBeMapped`.
    """
    if not uids:
        return snapshot
    known = {o.uid for o in snapshot.operators} | {p.uid for p in snapshot.positions}
    known |= {number.uid for number in snapshot.state_numbers}
    if twice := sorted(set(uids) & set(uids.values())):
        raise UidsCannotBeMapped(
            f"{_listed(twice)} is both an old and a new uid, so a restart could not tell whether the map was applied. "
            "Write a savepoint with other uids instead: `tidegate savepoint copy --rename OLD=NEW`."
        )
    missing = sorted(old for old, new in uids.items() if old not in known and new not in known)
    if missing:
        raise UidsCannotBeMapped(
            f"The snapshot has no {_listed(missing)} to map to another uid. It has {_listed(sorted(map(str, known)))}."
        )
    wanted = {old: new for old, new in uids.items() if old in known}
    # The snapshot has the old uid and the new one: it would have two operators of one uid.
    taken = sorted(new for new in wanted.values() if Uid(new) in known)
    if taken or len(set(uids.values())) < len(uids):
        raise UidsCannotBeMapped(
            f"Two operators would have the uid {_listed(taken or sorted(uids.values()))}. Map each to one of its own."
        )
    return applied(snapshot, Changes(renames=wanted))


def shown(verdict: StateVerdict) -> str:
    """Format a verdict as one log line."""
    what = str(verdict.uid) if verdict.state is None else f"{verdict.uid}/{verdict.state}"
    return f"{what}: {verdict.outcome}{f' ({verdict.reason})' if verdict.reason else ''}"


def _sentence(verdict: StateVerdict) -> str:
    what = f"{verdict.uid!r}" if verdict.state is None else f"State {verdict.state!r} of {verdict.uid!r}"
    return f"{what} is {verdict.outcome}: {verdict.reason}. {verdict.advice}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(str(name)) for name in names) or "none"
