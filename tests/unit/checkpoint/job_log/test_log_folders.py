"""Folders of the log: readers and drivers that sleep while others append and delete (decision 0029)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.checkpoint.history_kit import LAYOUT, PlainStorage, claimed, owner, publish, ref, signatures
from tidegate.checkpoint.completed.cleaner import Cleaner
from tidegate.checkpoint.effects import Create, Delete, Effect, ListFolders, Steps, perform
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.entry import Entry, LogCorrupt
from tidegate.checkpoint.job_log.log import ClaimLost, append, history, newest, path_of, trim
from tidegate.checkpoint.job_log.pins import PinTooLate, place
from tidegate.storage.errors import OutcomeUnknown, StorageUnavailable
from tidegate.storage.local import LocalStorage
from tidegate.storage.port import Won

SIGN = signatures()


@pytest.fixture(autouse=True)
def small_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "SLOTS_PER_FOLDER", 3)


class Log(PlainStorage):
    """A log whose owner appends and trims whenever it is told, also between two requests of somebody else."""

    def __init__(self, length: int = 0) -> None:
        super().__init__()
        self.last: Entry | None = None
        self.ends: list[int] = [0]
        """The slots that have been the last one since `watch`."""
        self.schedule: list[int] = []
        """How many entries the owner appends before each of the next requests of a reader."""
        self.grow(length)

    def grow(self, entries_more: int) -> None:
        for _ in range(entries_more):
            before = self.last
            self.last = claimed() if before is None else entries.checkpoint(before, next(SIGN), next_ref(before), 2)
            self.objects[path_of(LAYOUT, self.last)] = entries.to_bytes(self.last)
            super().run(trim(LAYOUT, self.last))
            self.ends.append(self.last.slot)

    def watch(self) -> None:
        self.ends = self.ends[-1:]

    def run(self, steps: Steps[object]) -> object:
        """Run the steps of a reader, with the owner at work between them."""
        answer = None
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration as end:
                return end.value
            if self.schedule:
                self.grow(self.schedule.pop(0))
            answer = self.do(effect)


def next_ref(before: Entry) -> entries.CheckpointRef:
    return ref(before.last_id + 1)


def slots(storage: PlainStorage) -> list[int]:
    return sorted(int(name.rpartition("/")[2]) for name in storage.objects)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    length=st.integers(0, 20),
    hint=st.integers(0, 25),
    schedule=st.lists(st.sampled_from([0, 0, 0, 1, 2, 7, 12]), max_size=12),
)
def test_the_end_is_an_entry_that_was_the_last_one_during_the_search(
    length: int, hint: int, schedule: list[int]
) -> None:
    log = Log(length)
    log.watch()
    log.schedule = schedule
    found = log.run(newest(LAYOUT, hint))
    assert (0 if found is None else found.slot) in log.ends  # type: ignore[attr-defined]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(1, 20), meanwhile=st.integers(0, 15), later=st.integers(0, 15))
def test_an_entry_is_won_only_if_it_follows_the_last_one(length: int, meanwhile: int, later: int) -> None:
    """The property that the log exists for, with slots that were taken and deleted."""
    log = Log(length)
    assert log.last is not None
    mine = entries.checkpoint(log.last, next(SIGN), next_ref(log.last), 2)
    if meanwhile == 0:
        assert log.run(append(LAYOUT, mine)) == Won()
        return
    log.schedule = [meanwhile, later]
    winner = log.run(append(LAYOUT, mine))
    assert isinstance(winner, Entry)
    assert winner != mine


def test_old_folders_are_deleted_and_the_log_of_a_job_stays_small() -> None:
    log = Log(3_000)
    assert len(log.objects) <= 7
    assert slots(log)[0] == 1
    assert slots(log)[-1] == 3_000
    assert log.run(newest(LAYOUT)) == log.last


def test_each_entry_is_deleted_once_and_folders_are_listed_once_for_each() -> None:
    """Cost follows what is appended, not the age of the job."""
    storage = PlainStorage()
    store = owner(storage, "one")
    cleaner = Cleaner(store)
    storage.asked.clear()
    for id in range(1, 31):
        publish(storage, store, id)
        storage.run(cleaner.trim_log())
    deleted = [name for effect in storage.asked if isinstance(effect, Delete) for name in effect.paths]
    assert len(deleted) == len(set(deleted)) == 24
    assert sum(isinstance(effect, ListFolders) for effect in storage.asked) == 30 + 10


def test_a_driver_that_slept_while_its_slot_was_taken_and_deleted_has_lost_the_job() -> None:
    storage = PlainStorage()
    one = owner(storage, "one")
    publish(storage, one, 1)
    two = owner(storage, "two")
    cleaner = Cleaner(two)
    for id in range(2, 14):
        publish(storage, two, id)
        storage.run(cleaner.trim_log())
    deleted = LAYOUT.log(3, 2)
    assert deleted not in storage.objects  # the claim of `two`, which `one` would run into
    with pytest.raises(ClaimLost) as lost:
        publish(storage, one, 2)
    assert lost.value.winner == two.entry
    assert deleted in storage.objects
    assert storage.run(newest(LAYOUT)) == two.entry
    assert storage.run(newest(LAYOUT, hint=3)) == two.entry
    storage.run(trim(LAYOUT, two.entry))
    assert deleted not in storage.objects


def test_a_start_that_slept_after_its_claim_while_others_followed_does_not_claim_again() -> None:
    class Overtaken(PlainStorage):
        sleeping = False

        def do(self, effect: Effect) -> object:
            answer = super().do(effect)
            if self.sleeping and isinstance(effect, Create):
                self.sleeping = False
                two = owner(self, "two")
                for id in range(1, 6):
                    publish(self, two, id)
            return answer

    storage = Overtaken()
    owner(storage, "one")
    storage.sleeping = True
    with pytest.raises(ClaimLost) as lost:
        owner(storage, "three")
    assert lost.value.winner.owner == "two"


def test_a_driver_that_cannot_list_later_folders_does_not_know_whether_it_won() -> None:
    class Silent(PlainStorage):
        def run(self, steps: Steps[object]) -> object:
            answer = None
            while True:
                try:
                    effect = steps.send(answer)
                    if isinstance(effect, ListFolders):
                        effect = steps.throw(StorageUnavailable("memory://", effect.prefix, "no answer"))
                except StopIteration as end:
                    return end.value
                answer = self.do(effect)

    mine = entries.checkpoint(claimed(), next(SIGN), ref(1), 1)
    with pytest.raises(OutcomeUnknown):
        Silent().run(append(LAYOUT, mine))


def test_a_folder_that_a_driver_has_prepared_for_the_next_entry_decides_nothing() -> None:
    """File systems show a folder before its first entry, also if the writer dies in between."""

    class WithEmptyFolder(PlainStorage):
        def do(self, effect: Effect) -> object:
            answer = super().do(effect)
            if isinstance(effect, ListFolders) and effect.prefix == LAYOUT.entries:
                return [*answer, f"{5:012d}"]  # type: ignore[misc]
            return answer

    storage = WithEmptyFolder()
    log = Log(3)
    assert log.last is not None
    storage.objects = log.objects
    last = entries.checkpoint(log.last, next(SIGN), ref(log.last.last_id + 1), 2)
    assert (last.folder, last.next_folder) == (2, 5)
    assert storage.run(append(LAYOUT, last)) == Won()
    assert storage.run(newest(LAYOUT)) == last


def test_a_folder_in_which_a_writer_died_is_removed_in_the_end(tmp_path: Path) -> None:
    log = Log(1)
    storage = LocalStorage(tmp_path)
    mine = log.last
    for slot in range(2, 20):
        assert mine is not None
        mine = entries.checkpoint(mine, next(SIGN), next_ref(mine), 2)
        assert perform(append(LAYOUT, mine), storage) == Won()
        if slot == 3:
            (tmp_path / LAYOUT.entries / f"{2:012d}" / ".tmp-of-a-driver-that-died").write_bytes(b"half")
        perform(trim(LAYOUT, mine), storage)
    assert storage.folders(LAYOUT.entries) == [f"{14:012d}", f"{17:012d}"]


def test_a_former_owner_that_wakes_deletes_nothing_that_is_needed() -> None:
    log = Log(8)
    former = log.last
    assert former is not None
    log.grow(20)
    before = dict(log.objects)
    log.run(trim(LAYOUT, former))
    assert log.objects == before


def test_a_pin_is_too_late_if_its_checkpoint_was_dropped_while_the_reader_slept() -> None:
    log = Log(8)
    assert log.last is not None
    held = log.last.retained[0]
    log.schedule = [0, 0, 0, 30]
    with pytest.raises(PinTooLate):
        log.run(place(LAYOUT, "pin", held, "a reader"))
    assert LAYOUT.pin("pin") not in log.objects


def test_drivers_that_disagree_about_the_size_of_folders_contend_for_the_same_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(3)
    assert log.last is not None
    one = entries.checkpoint(log.last, next(SIGN), next_ref(log.last), 2)
    monkeypatch.setattr(entries, "SLOTS_PER_FOLDER", 1)
    two = entries.checkpoint(log.last, next(SIGN), next_ref(log.last), 2)
    assert path_of(LAYOUT, one) == path_of(LAYOUT, two)
    assert one.next_folder == two.next_folder == 5


def test_history_gives_what_is_left_and_notices_a_gap() -> None:
    log = Log(30)
    left = log.run(history(LAYOUT, 30))
    assert [entry.slot for entry in left] == [26, 27, 28, 29, 30]  # type: ignore[attr-defined]
    del log.objects[LAYOUT.log(28, 26)]
    with pytest.raises(LogCorrupt, match="missing"):
        log.run(history(LAYOUT, 30))


# Logs of version 1: every entry in `log`


def as_version_1(log: list[Entry]) -> PlainStorage:
    storage = PlainStorage()
    for entry in log:
        storage.objects[LAYOUT.log(entry.slot)] = entries.to_bytes(replace(entry, format=1, folder=0, next_folder=0))
    return storage


def version_1(length: int) -> PlainStorage:
    log = [claimed()]
    while len(log) < length:
        log.append(entries.checkpoint(log[-1], next(SIGN), next_ref(log[-1]), 2))
    return as_version_1(log)


def test_a_log_of_version_1_is_continued_in_folders_and_none_of_its_entries_is_deleted() -> None:
    storage = version_1(5)
    before = dict(storage.objects)
    for each in storage.run(newest(LAYOUT)).retained:  # type: ignore[attr-defined]
        storage.objects[each.metadata] = b""
    sign = signatures("new")
    end = storage.run(newest(LAYOUT))
    assert isinstance(end, Entry)
    mine = entries.claim(end, next(sign), end.lineage, end.base)
    assert storage.run(append(LAYOUT, mine)) == Won()
    assert path_of(LAYOUT, mine) == LAYOUT.log(6)  # where a driver of version 1 would write
    for _ in range(20):
        mine = entries.checkpoint(mine, next(sign), next_ref(mine), 2)
        assert storage.run(append(LAYOUT, mine)) == Won()
        storage.run(trim(LAYOUT, mine))
    assert storage.run(newest(LAYOUT)) == mine
    assert storage.objects.items() >= before.items()
    assert len([name for name in storage.objects if "/entries/" in name]) <= 6


def test_a_driver_of_version_1_loses_its_slot_to_the_claim_that_leads_on_into_folders() -> None:
    storage = version_1(5)
    end = storage.run(newest(LAYOUT))
    assert isinstance(end, Entry)
    mine = entries.claim(end, next(SIGN), end.lineage, end.base)
    storage.run(append(LAYOUT, mine))
    rival = replace(entries.checkpoint(end, next(SIGN), next_ref(end), 2), format=1, folder=0, next_folder=0)
    assert storage.run(append(LAYOUT, rival)) == mine


@pytest.mark.parametrize("length", [0, 5])
def test_version_1_finds_an_entry_that_it_refuses_to_follow(length: int) -> None:
    """It reads slot after slot in `log`, and knows format 1."""
    storage = version_1(length) if length else PlainStorage()
    end = storage.run(newest(LAYOUT))
    assert end is None or isinstance(end, Entry)
    mine = claimed(end)
    storage.run(append(LAYOUT, mine))
    for _ in range(20):
        mine = entries.checkpoint(mine, next(SIGN), next_ref(mine), 2)
        storage.run(append(LAYOUT, mine))
        storage.run(trim(LAYOUT, mine))
    last_in_log = max(name for name in storage.objects if name.startswith("job/log/"))
    assert last_in_log == LAYOUT.log(length + 1)
    assert entries.from_bytes(storage.objects[last_in_log], "log").format == 2
    assert all(LAYOUT.log(slot) in storage.objects for slot in range(1, length + 2))


def test_no_request_creates_an_entry_in_log_after_that() -> None:
    storage = PlainStorage()
    store = owner(storage, "one")
    for id in range(1, 9):
        publish(storage, store, id)
    created = [effect.path for effect in storage.asked if isinstance(effect, Create) and "_metadata" not in effect.path]
    assert [path for path in created if path.startswith("job/log/")] == [LAYOUT.log(1)]
