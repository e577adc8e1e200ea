"""Output that waits for long: stored once, referred to by later checkpoints, deleted with the last of them, never lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.checkpoint.history_kit import LAYOUT, LINE, PlainStorage, signatures
from tidegate.checkpoint.completed.cleaner import Cleaner
from tidegate.checkpoint.completed.completed_store import (
    CheckpointUnreadable,
    CompletedCheckpointStore,
    Draft,
    divided_output,
)
from tidegate.checkpoint.files.contents import contents_of, read_contents, reader
from tidegate.checkpoint.files.output_objects import INLINE_BYTES, OutputParts
from tidegate.checkpoint.files.shared import InFlight
from tidegate.checkpoint.job_log.claim import claim
from tidegate.checkpoint.job_log.entry import CheckpointRef, RunOutcome
from tidegate.checkpoint.job_log.pins import place, remove
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    CommittedMark,
    MetadataError,
    SnapshotKind,
    checksum_in,
    decode,
    encode,
)
from tidegate.checkpoint.output.committables import channel
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Slot, Term, Uid

READ = reader(lambda committable: committable.staged)


class Stopped(Exception):
    """The driver died."""


@dataclass
class Disk(PlainStorage):
    """A storage that outlives its drivers. With `requests_left`, the driver dies before one more request."""

    requests_left: int | None = None
    written: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def do(self, effect: object) -> object:
        if self.requests_left is not None:
            if self.requests_left == 0:
                self.requests_left = None
                raise Stopped
            self.requests_left -= 1
        before = dict(self.objects)
        answer = super().do(effect)  # type: ignore[arg-type]
        self.written |= {name: len(data) for name, data in self.objects.items() if before.get(name) != data}
        return answer


def output(term: Term, number: int, slot: int, rows: int = 40) -> Committable:
    return Committable(
        lineage=LINE,
        sink=Uid("out" if slot % 3 else "other"),
        epoch=EpochId(term, number),
        slot=Slot(slot),
        payload=f"rows of {slot} in {number} ".encode() * rows,
        size_bytes=rows,
    )


def key(committable: Committable) -> tuple[object, ...]:
    return channel(committable), committable.epoch, committable.payload


class Driver:
    """One owner of the job, from its claim to its death."""

    def __init__(self, storage: PlainStorage, name: str, retained: int = 1, inline_bytes: int = 1_000) -> None:
        sign = signatures(name)
        self.storage = storage
        entry = storage.run(claim(LAYOUT, Start(), lambda: next(sign), lambda: LINE, 1, force=True))
        self.store = CompletedCheckpointStore(LAYOUT, entry, READ, lambda: next(sign), retained, inline_bytes)  # type: ignore[arg-type]
        self.storage.run(self.store.recover())
        self.cleaner = Cleaner(self.store)
        self.epoch = 0
        self.id = self.store.entry.last_id

    def run(self, slots: Iterable[int]) -> None:
        self.epoch += 1
        self.store.ledger.accept([output(self.store.term, self.epoch, slot) for slot in slots])

    def published(self, slot: int, up_to: EpochId) -> None:
        sink = Uid("out" if slot % 3 else "other")
        self.store.ledger.confirm([CommittedMark(LINE, sink, slot, up_to)])

    def metadata(self, parts: OutputParts, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> CheckpointMetadata:
        return CheckpointMetadata(
            job="job",
            lineage=LINE,
            checkpoint_id=self.id,
            term=self.store.term,
            epoch=EpochId(self.store.term, self.epoch),
            kind=kind,
            triggered_ms=0,
            completed_ms=0,
            tidegate_version="0",
            spark_version="4",
            max_parallelism=8,
            parallelism=8,
            clock_ms=0,
            committables=parts.inline,
            stored_output=parts.refs,
        )

    def checkpoint(self, shares: bool = True) -> CheckpointRef:
        self.id += 1
        self.epoch += 1
        epoch = EpochId(self.store.term, self.epoch)
        parts = divided_output(self.store, self.id, epoch, shares)
        metadata = self.metadata(parts)
        data = encode(metadata)
        contents = contents_of(LAYOUT.metadata(self.id), metadata, lambda c: c.staged, parts.objects)
        draft = Draft(
            id=self.id, epoch=epoch, metadata=data, checksum=checksum_in(data), contents=contents, objects=parts.new
        )
        ref = self.storage.run(self.store.append_checkpoint(draft))
        assert isinstance(ref, CheckpointRef)
        return ref

    def clean(self, sweep: bool = False) -> None:
        self.storage.run(self.cleaner.clean(InFlight(self.id + 1)))
        if sweep:
            self.storage.run(self.cleaner.sweep(InFlight(self.id + 1)))


def carried(storage: PlainStorage, ref: CheckpointRef) -> set[tuple[object, ...]]:
    """What a start from this checkpoint would publish."""
    contents = storage.run(read_contents(READ, ref.metadata, storage.objects[ref.metadata]))
    found = [key(each) for each in contents.committables]  # type: ignore[attr-defined]
    assert len(found) == len(set(found))
    return set(found)


def waiting(driver: Driver) -> set[tuple[object, ...]]:
    return {key(each) for each in driver.store.ledger.waiting()}


def objects(storage: PlainStorage) -> set[str]:
    return {name for name in storage.objects if "/output-" in name}


MOVES = st.one_of(
    st.tuples(st.just("run"), st.lists(st.integers(0, 7), unique=True, max_size=8)),
    st.tuples(st.just("publish"), st.integers(0, 7), st.integers(0, 30)),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("die in a checkpoint"), st.integers(0, 4)),
    st.tuples(st.just("clean"), st.booleans()),
    st.tuples(st.just("die in a clean-up"), st.integers(0, 4)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("pin"), st.integers(0, 3)),
    st.tuples(st.just("unpin"), st.integers(0, 3)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(MOVES, max_size=40), st.integers(1, 3), st.sampled_from([0, 1_000, 5_000]))
def test_no_output_is_lost_and_no_object_is_left_whatever_happens(moves, retained, inline_bytes):  # noqa: C901 a case for each move
    storage = Disk()
    drivers = 1
    driver = Driver(storage, "driver-1", retained, inline_bytes)
    model: dict[tuple[int, Term], set[tuple[object, ...]]] = {}
    """By id and term: what each checkpoint carries, if it was completed."""
    pinned: dict[str, CheckpointRef] = {}

    def start() -> Driver:
        nonlocal drivers
        drivers += 1
        started = Driver(storage, f"driver-{drivers}", retained, inline_bytes)
        base = started.store.entry.base
        assert waiting(started) == (set() if base is None else model[base.id, base.term])
        return started

    for move, what, *more in moves:
        if move == "run":
            driver.run(what)
        elif move == "publish":
            driver.published(what, EpochId(driver.store.term, more[0]))
        elif move in ("checkpoint", "die in a checkpoint"):
            model[driver.id + 1, driver.store.term] = waiting(driver)
            storage.requests_left = None if move == "checkpoint" else what
            try:
                driver.checkpoint(shares=move != "checkpoint" or what)
            except Stopped:
                driver = start()
            storage.requests_left = None
        elif move == "clean":
            driver.clean(sweep=what)
        elif move == "die in a clean-up":
            storage.requests_left = what
            try:
                driver.clean(sweep=True)
            except Stopped:
                driver = start()
            storage.requests_left = None
        elif move == "restart":
            driver = start()
        elif move == "pin" and driver.store.entry.retained:
            ref = driver.store.entry.retained[what % len(driver.store.entry.retained)]
            storage.run(place(LAYOUT, str(what), ref, "a fork"))
            pinned[str(what)] = ref
        elif move == "unpin" and str(what) in pinned:
            storage.run(remove(LAYOUT, str(what)))
            del pinned[str(what)]
        for ref in (*driver.store.entry.retained, *pinned.values()):
            assert carried(storage, ref) == model[ref.id, ref.term]
    driver.checkpoint()
    driver.clean(sweep=True)
    needed = {
        f"job/{each.path}"
        for ref in (*driver.store.entry.retained, *pinned.values())
        for each in decode(storage.objects[ref.metadata]).stored_output
    }
    assert objects(storage) == needed


def test_a_checkpoint_writes_what_is_new_and_not_what_waits():
    """50 slots whose target is away for 60 checkpoints: each writes about two epochs and what may stay in the metadata."""
    storage = Disk()
    driver = Driver(storage, "driver", inline_bytes=INLINE_BYTES)
    sizes = []
    for _ in range(60):
        driver.run(range(50))
        storage.written.clear()
        ref = driver.checkpoint()
        sizes.append(sum(size for name, size in storage.written.items() if "/chk-" in name))
    one_epoch = sizes[0]
    assert max(sizes) < 2.5 * one_epoch + INLINE_BYTES
    assert len(storage.objects[ref.metadata]) < 1.5 * one_epoch + INLINE_BYTES
    assert carried(storage, ref) == waiting(driver)
    assert len(waiting(driver)) == 3_000


def test_output_that_is_committed_at_once_costs_no_request():
    storage = Disk()
    driver = Driver(storage, "driver", inline_bytes=0)
    for number in range(1, 5):
        driver.run(range(8))
        driver.checkpoint()
        for slot in range(8):
            driver.published(slot, EpochId(driver.store.term, 2 * number))
    assert objects(storage) == set()


def backlog(storage: PlainStorage, name: str = "driver", checkpoints: int = 3) -> Driver:
    driver = Driver(storage, name, inline_bytes=0)
    for _ in range(checkpoints):
        driver.run(range(8))
        driver.checkpoint()
    return driver


def test_an_object_of_which_little_waits_is_replaced():
    storage = Disk()
    driver = backlog(storage)
    before = objects(storage)
    for slot in range(7):
        driver.published(slot, EpochId(driver.store.term, 99))
    driver.checkpoint()
    driver.clean()
    assert objects(storage).isdisjoint(before)
    assert carried(storage, driver.store.entry.base) == waiting(driver) != set()


@pytest.mark.parametrize("damage", ["missing", "changed", "cut"])
def test_a_start_stops_if_waiting_output_is_missing_or_damaged(damage):
    storage = Disk()
    backlog(storage)
    name = min(objects(storage))
    data = storage.objects.pop(name)
    if damage == "changed":
        storage.objects[name] = data.replace(b"partition", b"partitioN")
    elif damage == "cut":
        storage.objects[name] = data[:-1]
    with pytest.raises(CheckpointUnreadable):
        Driver(storage, "next")


def test_a_savepoint_refers_to_no_object_of_the_job():
    driver = backlog(Disk())
    parts = divided_output(driver.store, 9, EpochId(driver.store.term, 99), shares=False)
    assert parts.objects == ()
    assert {key(each) for each in parts.inline} == waiting(driver)
    shared = divided_output(driver.store, 9, EpochId(driver.store.term, 99), shares=True)
    assert shared.objects
    with pytest.raises(ValueError, match="savepoint contains its uncommitted output"):
        driver.metadata(shared, SnapshotKind.SAVEPOINT)


def test_the_end_of_a_job_deletes_its_objects():
    storage = Disk()
    driver = backlog(storage)
    for slot in range(8):
        driver.published(slot, EpochId(driver.store.term, 99))
    storage.run(driver.store.finish(RunOutcome.FINISHED, keep=False))
    driver.clean()
    assert objects(storage) == set()


def test_forged_output_in_an_object_is_refused():
    """Output of an epoch after the snapshot's own, whose marker would cover everything that the job publishes later."""
    storage = Disk()
    driver = Driver(storage, "driver", inline_bytes=0)
    driver.store.ledger.accept([output(driver.store.term, 1, 1)])
    driver.checkpoint()
    driver.checkpoint()
    ref = driver.store.entry.base
    metadata = decode(storage.objects[ref.metadata])
    assert metadata.stored_output
    early = encode(CheckpointMetadata(**{**fields(metadata), "epoch": EpochId(driver.store.term, 0)}))
    with pytest.raises(MetadataError, match="after its own epoch"):
        storage.run(read_contents(READ, ref.metadata, early))


def fields(metadata: CheckpointMetadata) -> dict[str, object]:
    return {name: getattr(metadata, name) for name in metadata.__dataclass_fields__}
