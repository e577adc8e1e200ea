"""Assigns the state of a snapshot's tasks to the tasks of a job, which may have another parallelism or other levels.

Pure. Keyed state is assigned by key group: a new task takes its overlap with every old task. State is assigned by uid,
not by level, so an operator that moved to another level keeps its states. Operator state is distributed in three ways:

- SPLIT: all elements, in the order of old slots, are distributed in runs of nearly equal length; the next state starts
  at the slot where the remainder of the previous one ended, so no task always gets the longer run.
- UNION: every new task gets every element.
- BROADCAST: new task `i` gets the copy of old task `i mod old parallelism`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.checkpoint.metadata.model import CheckpointMetadata, Distribution, StateInfo, TaskState
from tidegate.core.errors import RestoreError
from tidegate.core.ids import Slot, TaskId, Uid
from tidegate.state.keys.key_groups import check_parallelism, range_of_slot

Range = tuple[int, int]
"""First and last key group, inclusive."""


class MaxParallelismChanged(RestoreError):
    code = "MAX_PARALLELISM_CHANGED"

    def __init__(self, stored: int, wanted: int) -> None:
        self.stored = stored
        self.wanted = wanted
        super().__init__(
            f"The snapshot has max parallelism {stored} and the job {wanted}. It is fixed for the life of the state, "
            f"since it decides the key group of every key. Set max parallelism to {stored}, or write a savepoint "
            f"for the other offline with `tidegate savepoint copy --max-parallelism {wanted}`."
        )


class UnclaimedState(RestoreError):
    code = "UNCLAIMED_STATE"

    def __init__(self, uids: tuple[Uid, ...]) -> None:
        self.uids = uids
        names = ", ".join(repr(str(uid)) for uid in uids)
        super().__init__(
            f"The snapshot has state of {names}, and the job has no operator of that uid. Give the operator its old uid again, "
            f'or say that it was renamed: tg.Uid("NEW", renamed_from="{uids[0]}"), or --map-uid {uids[0]}=NEW; or drop that '
            "state with -n (execution.state-recovery.ignore-unclaimed-state)."
        )


class KeyGroupsBroken(RestoreError):
    """The ranges of a level do not cover every key group exactly once. No sound snapshot has that."""

    code = "KEY_GROUPS_BROKEN"

    def __init__(self, level: int, at: int, what: str) -> None:
        self.level = level
        self.at = at
        super().__init__(
            f"Key group {at} of level {level} is held by {what} of the snapshot. The snapshot is not usable; start "
            "from another checkpoint or savepoint."
        )


@dataclass(frozen=True, slots=True)
class KeyedShare:
    """The part of an old task's keyed state that a new task takes."""

    source: TaskId
    key_groups: Range
    states: tuple[int, ...]
    """Ids of the states to take."""
    complete: bool
    """All keyed state of these key groups is needed, so the source's files can be taken over and cut by range."""


@dataclass(frozen=True, slots=True)
class ListRun:
    """Elements `first` to `first + count - 1` of the list `state` as the old task `source` holds it."""

    state: int
    source: TaskId
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class BroadcastCopy:
    """The broadcast state `state` as the old task `source` holds it."""

    state: int
    source: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRestore:
    """Everything that one new task consists of. With `as_is`, the files of its only source are its version, unchanged."""

    task: TaskId
    key_groups: Range
    keyed: tuple[KeyedShare, ...] = ()
    split: tuple[ListRun, ...] = ()
    union: tuple[ListRun, ...] = ()
    broadcast: tuple[BroadcastCopy, ...] = ()
    as_is: TaskId | None = None
    parallelism: int = 1

    @property
    def own_union(self) -> tuple[ListRun, ...]:
        """The share of `union` that only this task holds until its function writes the list."""
        return tuple(run for run in self.union if run.source.slot % self.parallelism == self.task.slot)

    @property
    def main_source(self) -> TaskId | None:
        """The old task that contributes most."""
        if self.as_is is not None:
            return self.as_is
        if self.keyed:
            return max(self.keyed, key=lambda share: share.key_groups[1] - share.key_groups[0]).source
        return self.task if self.task in self.sources else next(iter(self.sources), None)

    @property
    def sources(self) -> tuple[TaskId, ...]:
        """The old tasks whose files are needed."""
        parts = (self.keyed, self.split, self.union, self.broadcast)
        return tuple(sorted({item.source for part in parts for item in part}))


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The job to be started: where each operator runs now."""

    max_parallelism: int
    parallelism: int
    levels: Mapping[Uid, int]
    allow_non_restored_state: bool = False
    rewritten: frozenset[int] = frozenset()
    """Ids of states whose values must be converted: their files cannot be used unchanged."""
    dropped: frozenset[int] = frozenset()
    """Ids of states whose entries are left behind."""


@dataclass(slots=True)
class _Level:
    """One old level: its tasks ordered by slot and their states."""

    tasks: list[TaskState] = field(default_factory=list)
    states: list[tuple[Uid, StateInfo]] = field(default_factory=list)

    def keyed(self) -> set[int]:
        return {state.id for _, state in self.states if state.distribution is Distribution.KEYED}


def plan_restore(snapshot: CheckpointMetadata, target: RestoreTarget) -> tuple[TaskRestore, ...]:
    """Return one entry for every slot of every level of the target, in order. A level without old state gets empty entries."""
    if snapshot.max_parallelism != target.max_parallelism:
        raise MaxParallelismChanged(snapshot.max_parallelism, target.max_parallelism)
    check_parallelism(target.parallelism, target.max_parallelism)
    old = _old_levels(snapshot)
    # Of every kind of state: an operator that is gone loses its lists as well.
    unclaimed = {
        uid
        for level in old.values()
        for uid, state in level.states
        if uid not in target.levels and state.id not in target.dropped
    }
    if unclaimed and not target.allow_non_restored_state:
        raise UnclaimedState(tuple(sorted(unclaimed)))
    planned: list[TaskRestore] = []
    for level in sorted(set(target.levels.values())):
        planned += _plan_level(level, old, target)
    return tuple(planned)


def assign_key_groups(
    old: Iterable[tuple[TaskId, Range]], parallelism: int, max_parallelism: int
) -> list[tuple[tuple[TaskId, Range], ...]]:
    """For every new slot, return the old tasks it overlaps and the key groups to keep of each, ascending.

    Raises `KeyGroupsBroken` unless the old ranges cover every key group exactly once.
    """
    ordered = sorted(old, key=lambda item: item[1])
    _check_cover(ordered, max_parallelism)
    shares: list[tuple[tuple[TaskId, Range], ...]] = []
    at = 0
    for slot in range(parallelism):
        first, last = range_of_slot(slot, parallelism, max_parallelism)
        # Ranges of old and new slots are both ascending, so old ones that end before this slot are never needed again.
        while ordered[at][1][1] < first:
            at += 1
        mine: list[tuple[TaskId, Range]] = []
        i = at
        while i < len(ordered) and ordered[i][1][0] <= last:
            task, (low, high) = ordered[i]
            mine.append((task, (max(low, first), min(high, last))))
            i += 1
        shares.append(tuple(mine))
    return shares


def split_evenly(
    counts: Iterable[tuple[TaskId, int]], state: int, parallelism: int, start: int = 0
) -> tuple[list[tuple[ListRun, ...]], int]:
    """Distribute the elements of one list to new slots, as Flink's round-robin repartitioner does.

    Runs keep the order of elements. `start` is the slot that gets the first run. Also returns the slot to start the
    next state with: the first that got no element of the remainder.
    """
    pieces = [(task, count) for task, count in counts if count > 0]
    # The first `remainder` slots from `start` on get one element more.
    base, remainder = divmod(sum(count for _, count in pieces), parallelism)
    runs: list[tuple[ListRun, ...]] = [()] * parallelism
    piece, offset = 0, 0
    for i in range(parallelism):
        wanted = base + (1 if i < remainder else 0)
        mine: list[ListRun] = []
        while wanted > 0:
            task, count = pieces[piece]
            taken = min(wanted, count - offset)
            mine.append(ListRun(state, task, offset, taken))
            wanted, offset = wanted - taken, offset + taken
            if offset == count:
                piece, offset = piece + 1, 0
        runs[(start + i) % parallelism] = tuple(mine)
    return runs, (start + remainder) % parallelism


def _plan_level(level: int, old: Mapping[int, _Level], target: RestoreTarget) -> list[TaskRestore]:
    slots, limit = target.parallelism, target.max_parallelism
    keyed: list[list[KeyedShare]] = [[] for _ in range(slots)]
    split: list[list[ListRun]] = [[] for _ in range(slots)]
    broadcast: list[list[BroadcastCopy]] = [[] for _ in range(slots)]
    union: list[ListRun] = []
    origins: set[int] = set()
    start = 0
    for number, source in sorted(old.items()):
        wanted = [(uid, state) for uid, state in source.states if target.levels.get(uid) == level]
        # What the user dropped is not read at all: it is gone from the first checkpoint on.
        wanted = [(uid, state) for uid, state in wanted if state.id not in target.dropped]
        if not wanted:
            continue
        origins.add(number)
        _share_keyed(keyed, source, wanted, slots, limit)
        for state in sorted((s for _, s in wanted), key=lambda s: s.name):
            counts = [(t.task, n.count) for t in source.tasks for n in t.elements if n.state == state.id]
            # The parallelism is the same, so elements stay where they are. Only this makes a restore without any move
            # possible.
            if state.distribution is Distribution.SPLIT and len(source.tasks) == slots:
                for task, count in counts:
                    split[task.slot] += [ListRun(state.id, task, 0, count)] if count else []
            elif state.distribution is Distribution.SPLIT:
                runs, start = split_evenly(counts, state.id, slots, start)
                for slot, mine in enumerate(runs):
                    split[slot] += mine
            elif state.distribution is Distribution.UNION:
                union += [ListRun(state.id, task, 0, count) for task, count in counts if count]
            elif state.distribution is Distribution.BROADCAST:
                for slot in range(slots):
                    broadcast[slot].append(BroadcastCopy(state.id, source.tasks[slot % len(source.tasks)].task))
    # Files of two old levels cannot become one version without reading them.
    same = old[next(iter(origins))] if len(origins) == 1 else None
    everyone = tuple(union)  # One tuple for all tasks: at 10,000 of them, copies would not fit in memory.
    return [
        TaskRestore(
            task=TaskId(level, Slot(slot)),
            key_groups=range_of_slot(slot, slots, limit),
            keyed=tuple(keyed[slot]),
            split=tuple(split[slot]),
            union=everyone,
            broadcast=tuple(broadcast[slot]),
            as_is=_as_is(same, level, slot, target),
            parallelism=slots,
        )
        for slot in range(slots)
    ]


def _share_keyed(
    keyed: list[list[KeyedShare]], source: _Level, wanted: list[tuple[Uid, StateInfo]], slots: int, limit: int
) -> None:
    ids = {state.id for _, state in wanted if state.distribution is Distribution.KEYED}
    if not ids:
        return
    complete = ids == source.keyed()
    held = [(task.task, task.key_groups) for task in source.tasks]
    for slot, shares in enumerate(assign_key_groups(held, slots, limit)):
        for task, kept in shares:
            keyed[slot].append(KeyedShare(task, kept, tuple(sorted(ids)), complete))


def _as_is(source: _Level | None, level: int, slot: int, target: RestoreTarget) -> TaskId | None:
    """Return the old task whose files this new task can use unchanged, with nothing removed, added or moved."""
    if source is None or len(source.tasks) != target.parallelism:
        return None
    # An operator has left this level or is gone: its entries must not stay in the files.
    if any(target.levels.get(uid) != level for uid, _ in source.states):
        return None
    # After a restore, a union list is held in shares and read as a whole. No old version has it in that form.
    if any(state.distribution is Distribution.UNION or state.id in target.rewritten for _, state in source.states):
        return None
    if any(state.id in target.dropped for _, state in source.states):
        return None
    task = source.tasks[slot]
    return task.task if task.key_groups == range_of_slot(slot, target.parallelism, target.max_parallelism) else None


def _old_levels(snapshot: CheckpointMetadata) -> dict[int, _Level]:
    levels: dict[int, _Level] = {}
    for task in snapshot.tasks:
        levels.setdefault(task.task.level, _Level()).tasks.append(task)
    for operator in snapshot.operators:
        if operator.states:
            level = levels.setdefault(operator.level, _Level())
            level.states += [(operator.uid, state) for state in operator.states]
    # A sound snapshot has all of these tasks. What is missing here would silently start empty.
    for number, level in levels.items():
        if level.states and not level.tasks:
            raise KeyGroupsBroken(number, 0, "no task")
        if [task.task.slot for task in level.tasks] != list(range(len(level.tasks))):
            raise RestoreError(
                f"The tasks of level {number} in the snapshot are not numbered 0 to {len(level.tasks) - 1}. The "
                "snapshot is not usable; start from another checkpoint or savepoint."
            )
    return levels


def _check_cover(ordered: list[tuple[TaskId, Range]], max_parallelism: int) -> None:
    expected = 0
    for task, (first, last) in ordered:
        if first != expected or last < first:
            raise KeyGroupsBroken(task.level, min(first, expected), "no task" if first > expected else "two tasks")
        expected = last + 1
    if expected != max_parallelism:
        level = ordered[0][0].level if ordered else 0
        raise KeyGroupsBroken(
            level, min(expected, max_parallelism), "no task" if expected < max_parallelism else "a task"
        )
