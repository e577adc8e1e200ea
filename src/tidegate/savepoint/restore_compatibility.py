"""Adapts a snapshot to the job that starts from it, or reports why that is impossible. Pure.

State is migrated when it is restored, not when it is read: a task that restores a state of another type reads its
entries, converts them, and writes them to its first version. From then on only the new type exists, in local versions
and in the first checkpoint; the snapshot itself is never changed, so the old code can still start from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.checkpoint.version_restore import Migration
from tidegate.core.errors import RestoreError
from tidegate.core.ids import Uid
from tidegate.savepoint.changes import Changes, applied
from tidegate.savepoint.compatibility import Compatibility, JobNow, StateVerdict, VerdictKind, entry_conversion, judge
from tidegate.savepoint.evolution import MigrationFailed


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
    "Verdicts for every state: `tidegate compat JOB.PY --from PATH`. To convert state by a rule of your own, write a "
    "savepoint with tg.SavepointWriter and start from it. To drop a state, stop declaring it and start with --drop-state "
    "UID/STATE (execution.state-recovery.drop-state)."
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
