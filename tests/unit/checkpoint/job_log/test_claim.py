"""Claiming: who may, who must wait, and what happens when the slot is taken meanwhile."""

from __future__ import annotations

import pytest

from tests.unit.checkpoint.history_kit import LAYOUT, PlainStorage, claimed, ref, signatures
from tidegate.checkpoint.effects import Create, Effect, ListFolders, Put, Sleep, Steps
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.claim import claim, claim_again, show_life
from tidegate.checkpoint.job_log.entry import Entry, RunOutcome, Signature
from tidegate.checkpoint.job_log.foreign_output import foreign_output
from tidegate.checkpoint.job_log.log import ClaimLost, path_of
from tidegate.checkpoint.job_log.start import Start, StartRefused
from tidegate.core.ids import EpochId, Lineage, Term, Uid
from tidegate.storage.port import Nonce


def taking(storage: PlainStorage, owner: str = "new", force: bool = False, start: Start | None = None) -> Entry:
    sign = signatures(owner)
    steps = claim(LAYOUT, start or Start(), lambda: next(sign), lambda: Lineage(f"line-of-{owner}"), 5_000, force)
    entry = storage.run(steps)
    assert isinstance(entry, Entry)
    return entry


def test_the_first_claim_needs_no_waiting() -> None:
    storage = PlainStorage()
    entry = taking(storage)
    assert (entry.slot, entry.term, entry.lineage, storage.slept_ms) == (1, 1, "line-of-new", 0)


@pytest.mark.feature("H1")
def test_a_silent_owner_is_watched_once_and_then_replaced() -> None:
    storage = PlainStorage()
    taking(storage, "old")
    entry = taking(storage, "new")
    assert (entry.term, entry.owner, entry.lineage, storage.slept_ms) == (2, "new", "line-of-old", 5_000)


@pytest.mark.feature("H1")
@pytest.mark.parametrize(("dead", "slept_ms"), [("old-process", 0), ("another-process", 5_000), (None, 5_000)])
def test_an_owner_that_is_known_to_be_dead_is_not_watched(dead: str | None, slept_ms: int) -> None:
    storage, sign = PlainStorage(), signatures("old")
    old = storage.run(claim(LAYOUT, Start(), lambda: next(sign), lambda: Lineage("line"), 5_000, process="old-process"))
    if dead is None:
        storage.run(show_life(LAYOUT, old, 1))  # a beat that does not say whose it is
    known = {"old-process"} if dead is None else {dead}
    steps = claim(
        LAYOUT, Start(), lambda: next(sign), lambda: Lineage("line"), 5_000, has_died=lambda process: process in known
    )
    assert storage.run(steps).term == 2  # type: ignore[attr-defined]
    assert storage.slept_ms == slept_ms


def from_elsewhere(storage: PlainStorage) -> Start:
    """A start from the savepoint of another job, which is there."""
    savepoint = ref(3, owned=False, lineage=Lineage("line-of-another"))
    storage.run(_put(savepoint.metadata))
    return Start(source=savepoint)


def _put(name: str) -> Steps[None]:
    yield Put(name, b"metadata")


@pytest.mark.feature("E15", "H1")
def test_a_start_from_a_savepoint_that_got_nowhere_is_repeated_in_its_own_line() -> None:
    storage = PlainStorage()
    start = from_elsewhere(storage)
    first = taking(storage, "first", start=start)
    again = taking(storage, "again", start=start)
    assert again.term > first.term
    assert (again.lineage, again.base) == (first.lineage, start.source)
    entries.check(first, again, "the log")
    plain = taking(storage, "plain")
    assert (plain.lineage, plain.base, plain.owed, plain.retained) == (
        again.lineage, again.base, again.owed, again.retained,
    )  # fmt: skip


@pytest.mark.feature("E15")
def test_output_that_the_log_does_not_know_is_found_when_a_start_from_a_savepoint_is_repeated() -> None:
    storage = PlainStorage()
    start = from_elsewhere(storage)
    first = taking(storage, "first", start=start)
    unknown = EpochId(Term(7), 70)
    asked: list[Lineage] = []

    def markers(lineage: Lineage) -> dict[Uid, tuple[EpochId, ...]]:
        asked.append(lineage)
        return {Uid("out"): (unknown,)}

    assert storage.run(foreign_output(LAYOUT, markers, start.source)) == {Uid("out"): (unknown,)}
    assert asked == [first.lineage]


class Meanwhile(PlainStorage):
    """Lets something happen right before the n-th request of one kind."""

    def __init__(self, kind: type[Effect], happens: object) -> None:
        super().__init__()
        self.kind, self.happens, self.armed = kind, happens, False

    def do(self, effect: Effect) -> object:
        if self.armed and isinstance(effect, self.kind):
            self.armed = False
            self.happens(self)  # type: ignore[operator]
        return super().do(effect)


def test_an_owner_whose_heartbeat_moves_is_left_alone() -> None:
    storage = Meanwhile(Sleep, lambda s: s.run(show_life(LAYOUT, mine, 9)))  # type: ignore[has-type]
    mine = taking(storage, "old")
    storage.armed = True
    with pytest.raises(StartRefused, match="--force"):
        taking(storage, "new")
    storage.armed = True
    assert taking(storage, "new", force=True).term == 2


def test_beats_of_a_former_owner_are_not_taken_for_life() -> None:
    storage = Meanwhile(Sleep, lambda s: s.objects.update({LAYOUT.owner: b'{"term":1,"beat":77,"slot":1}'}))
    taking(storage, "first")
    taking(storage, "second", force=True)
    storage.armed = True
    assert taking(storage, "third").term == 3


def test_a_checkpoint_in_the_expected_slot_becomes_the_base() -> None:
    sign = signatures("old")

    def publishes(storage: PlainStorage) -> None:
        entry = entries.checkpoint(mine, next(sign), ref(1), 1)
        storage.objects[path_of(LAYOUT, entry)] = entries.to_bytes(entry)

    storage = Meanwhile(Create, publishes)
    mine = taking(storage, "old")
    storage.armed = True
    entry = taking(storage, "new", force=True)
    assert (entry.slot, entry.base) == (3, ref(1))


def test_force_is_aimed_at_the_owner_seen_first() -> None:
    """Two forced starts at once: one gets the job, the other sees a living owner and gives up."""

    def rival_wins(storage: PlainStorage) -> None:
        rival.append(taking(storage, "rival", force=True))
        storage.kind, storage.armed = Sleep, True  # type: ignore[attr-defined]
        storage.happens = lambda s: s.run(show_life(LAYOUT, rival[0], 1))  # type: ignore[attr-defined]

    rival: list[Entry] = []
    storage = Meanwhile(Create, rival_wins)
    taking(storage, "old")
    storage.armed = True
    with pytest.raises(StartRefused):
        taking(storage, "new", force=True)
    assert rival[0].term == 2


def test_a_replaced_owner_stops_at_its_next_heartbeat() -> None:
    storage = PlainStorage()
    old = taking(storage, "old")
    taking(storage, "new", force=True)
    with pytest.raises(ClaimLost) as lost:
        storage.run(show_life(LAYOUT, old, 5))
    assert lost.value.winner.owner == "new"


def test_a_run_that_ended_in_order_is_followed_at_once() -> None:
    storage = PlainStorage()
    end = entries.end(claimed(), next(signatures()), RunOutcome.SUSPENDED, keep=True)
    storage.objects = {LAYOUT.log(1): entries.to_bytes(claimed()), path_of(LAYOUT, end): entries.to_bytes(end)}
    assert taking(storage).term == 2
    assert storage.slept_ms == 0


def again(storage: PlainStorage, last: Entry, *ours: str) -> Entry:
    sign = signatures("again")
    entry = storage.run(claim_again(LAYOUT, last, {Nonce(nonce) for nonce in ours}, lambda: next(sign)))
    assert isinstance(entry, Entry)
    return entry


def published(last: Entry, nonce: str = "nonce-of-a-lost-answer") -> Entry:
    return entries.checkpoint(last, Signature(Nonce(nonce), "old", 1), ref(1), 1)


@pytest.mark.feature("H2")
def test_claiming_again_counts_a_checkpoint_whose_answer_was_lost() -> None:
    storage = PlainStorage()
    mine = taking(storage)
    entry = published(mine)
    storage.objects[path_of(LAYOUT, entry)] = entries.to_bytes(entry)
    found = again(storage, mine, entry.nonce)
    assert (found.slot, found.term, found.base, found.lineage) == (3, 2, ref(1), mine.lineage)
    assert storage.slept_ms == 0


def test_claiming_again_yields_to_its_own_late_write_and_tries_the_next_slot() -> None:
    entry: Entry
    storage = Meanwhile(Create, lambda s: s.objects.update({path_of(LAYOUT, entry): entries.to_bytes(entry)}))
    mine = taking(storage)
    entry = published(mine)
    storage.armed = True
    found = again(storage, mine, entry.nonce)
    assert (found.slot, found.term, found.base) == (3, 2, ref(1))


@pytest.mark.parametrize("ended", [True, False])
def test_claiming_again_after_a_lost_claim_is_refused(ended: bool) -> None:
    storage = PlainStorage()
    mine = taking(storage)
    other = taking(storage, "other", force=True)
    if ended:
        end = entries.end(other, next(signatures("end")), RunOutcome.SUSPENDED, True)
        storage.objects[path_of(LAYOUT, end)] = entries.to_bytes(end)
    with pytest.raises(ClaimLost):
        again(storage, mine, "nonce-of-a-lost-answer")


def test_claiming_again_loses_to_a_driver_that_claims_meanwhile() -> None:
    storage = Meanwhile(Create, lambda s: taking(s, "other", force=True))
    mine = taking(storage)
    storage.armed = True
    with pytest.raises(ClaimLost) as lost:
        again(storage, mine)
    assert lost.value.winner.owner == "other"


def damaged(*missing: int, heartbeat: bool = True, traces: tuple[str, ...] = ()) -> PlainStorage:
    """A job whose second run published two checkpoints, with entries of its log missing."""
    storage = PlainStorage()
    taking(storage, "first")
    entry, sign = taking(storage, "second", force=True), signatures("second")
    for id in (1, 2):
        entry = entries.checkpoint(entry, next(sign), ref(id, term=2), 2)
        storage.objects[path_of(LAYOUT, entry)] = entries.to_bytes(entry)
        storage.run(show_life(LAYOUT, entry, id))
    for slot in missing:
        del storage.objects[LAYOUT.log(slot, 0 if slot == 1 else 2)]
    if not heartbeat:
        del storage.objects[LAYOUT.owner]
    storage.objects.update({f"job/{name}": b"x" for name in traces})
    return storage


@pytest.mark.parametrize("missing", [(4,), (3, 4), (1, 4), (1, 2, 3, 4)])
def test_a_log_that_ends_before_the_slot_of_the_heartbeat_is_refused(missing: tuple[int, ...]) -> None:
    storage = damaged(*missing)
    before = dict(storage.objects)
    with pytest.raises(entries.LogCorrupt, match="heartbeat names slot 4"):
        taking(storage, "third", force=True)
    assert storage.objects == before


@pytest.mark.parametrize(
    ("missing", "trace", "says"),
    [
        ((4,), "chk-2/_committed", "checkpoint 2 was completed"),
        ((4,), "chk-2.2/_committed", "checkpoint 2 was completed"),
        ((2, 3, 4), "shared/2/L1-S0/7/chk-1-x", "term 2 left traces"),
        ((1, 2, 3, 4), "taskowned/2/8/out/1/rows", "term 2 left traces"),
        ((2,), "shared/2/L1-S0/7/chk-1-x", "term 2 left traces"),
    ],
)
def test_traces_of_missing_entries_are_found_without_a_heartbeat(
    missing: tuple[int, ...], trace: str, says: str
) -> None:
    storage = damaged(*missing, heartbeat=False, traces=(trace,))
    before = dict(storage.objects)
    with pytest.raises(entries.LogCorrupt, match=says):
        taking(storage, "third", force=True)
    assert storage.objects == before


def test_orphans_of_incomplete_checkpoints_are_no_such_trace() -> None:
    traces = ("chk-3/_metadata", "chk-9/notes", "chk-3.2/_metadata", "chk-2/_committed", "shared/2/L1-S0/7/chk-9-x")
    assert taking(damaged(traces=traces), "third", force=True).base == ref(2, term=2)


def test_a_checkpoint_that_completes_while_a_start_looks_is_no_such_trace() -> None:
    def publishes(storage: PlainStorage) -> None:
        newest = entries.from_bytes(storage.objects[LAYOUT.log(4, 2)], "log")
        entry = entries.checkpoint(newest, next(signatures("rival")), ref(3, term=2), 2)
        storage.objects[path_of(LAYOUT, entry)] = entries.to_bytes(entry)
        storage.objects["job/chk-3/_committed"] = b"x"

    storage = Meanwhile(ListFolders, publishes)
    storage.objects = damaged().objects
    storage.armed = True
    assert taking(storage, "third", force=True).base == ref(3, term=2)


def test_a_savepoint_that_was_deleted_since_it_was_read_is_not_started_from() -> None:
    """Another driver of the job has claimed it, replaced it by checkpoints of its own, and deleted it."""
    storage = PlainStorage()
    savepoint = ref(3, owned=False)
    with pytest.raises(StartRefused, match="no longer retained"):
        taking(storage, start=Start(source=savepoint))
    assert storage.objects == {}
    storage.objects[savepoint.metadata] = b"savepoint"
    assert taking(storage, start=Start(source=savepoint)).base == savepoint
