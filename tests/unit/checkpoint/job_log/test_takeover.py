"""A savepoint given to a job, or lent to it: who deletes it, when, and what a crash at any step leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import pytest

from tests.unit.checkpoint.history_kit import LINE, PlainStorage, signatures
from tidegate.checkpoint.completed.cleaner import Cleaner
from tidegate.checkpoint.completed.completed_store import CompletedCheckpointStore, Draft
from tidegate.checkpoint.files.contents import CheckpointContents
from tidegate.checkpoint.files.shared import InFlight
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.claim import claim
from tidegate.checkpoint.job_log.entry import CheckpointRef, RunOutcome
from tidegate.checkpoint.job_log.pins import place, remove
from tidegate.checkpoint.job_log.start import Start, StartRefused
from tidegate.checkpoint.job_log.takeover import CannotClaim, check_unclaimed, take_over
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind
from tidegate.core import faults
from tidegate.core.ids import EpochId, Lineage, Term
from tidegate.storage.port import Nonce

FOLDER = "/savepoints/sp-1/"
CHECKSUM = "sha256:" + "7" * 40
SAVEPOINT = CheckpointRef(
    id=7,
    term=Term(3),
    epoch=EpochId(Term(3), 70),
    lineage=LINE,
    metadata=f"{FOLDER}_metadata",
    checksum=CHECKSUM,
    owned=False,
)
OTHERS = {f"{FOLDER}notes of the user", "/elsewhere/file", "other/shared/1/a"}
NONCES = count(1)
BODIES: dict[bytes, CheckpointContents] = {}


def snapshot(kind: SnapshotKind = SnapshotKind.SAVEPOINT) -> CheckpointMetadata:
    return CheckpointMetadata(
        job="origin",
        lineage=LINE,
        checkpoint_id=7,
        term=Term(3),
        epoch=SAVEPOINT.epoch,
        kind=kind,
        triggered_ms=0,
        completed_ms=0,
        tidegate_version="0.1.0",
        spark_version="4.3.0",
        max_parallelism=128,
        parallelism=2,
        clock_ms=0,
    )


@pytest.fixture
def storage() -> PlainStorage:
    made = PlainStorage()
    body = json.dumps({"checksum": CHECKSUM}).encode()
    files = {f"{FOLDER}L1-S0-a", f"{FOLDER}L1-S1-b"}
    # Metadata may name what it likes: only what lies in its own folder was given away.
    BODIES[body] = CheckpointContents(frozenset(files | OTHERS - {f"{FOLDER}notes of the user"}), frozenset(), ())
    made.objects |= {SAVEPOINT.metadata: body} | dict.fromkeys(files | OTHERS, b"state")
    return made


class Job:
    """One driver after the other of one job."""

    def __init__(self, storage: PlainStorage, name: str = "job", retained: int = 1) -> None:
        self.storage, self.layout, self.retained = storage, JobLayout(name), retained
        self.id = 0

    def start(
        self, source: CheckpointRef | None = None, *, claims: bool = False, fresh: bool = False
    ) -> CompletedCheckpointStore:
        sign = signatures(f"{self.layout.job}-{next(NONCES)}")
        if source is not None:
            nonce = Nonce(f"nonce-{next(NONCES):08d}")
            steps = take_over(source, snapshot(), self.layout.job, "/ckpt", nonce)
            if claims:
                source = self.storage.run(steps)  # type: ignore[assignment]
            else:
                self.storage.run(check_unclaimed(source, self.layout.job, "/ckpt"))
        lineage = Lineage(f"line-{next(NONCES)}")
        entry = self.storage.run(
            claim(self.layout, Start(source=source, fresh=fresh), lambda: next(sign), lambda: lineage, 1, force=True)
        )
        store = CompletedCheckpointStore(
            self.layout, entry, lambda path, body: BODIES[body], lambda: next(sign), self.retained
        )  # type: ignore[arg-type]
        self.storage.run(store.recover())
        return store

    def checkpoint(self, store: CompletedCheckpointStore) -> None:
        self.publish(store)
        self.tidy(store)

    def publish(self, store: CompletedCheckpointStore) -> None:
        id = store.entry.last_id + 1
        checksum = f"sha256:{self.layout.job}-{store.term}-{id}".ljust(40, "0")
        body = json.dumps({"checksum": checksum}).encode()
        BODIES[body] = CheckpointContents(frozenset(), frozenset(), ())
        epoch = EpochId(store.term, id * 10)
        self.storage.run(
            store.append_checkpoint(Draft(id=id, epoch=epoch, metadata=body, checksum=checksum, contents=BODIES[body]))
        )

    def tidy(self, store: CompletedCheckpointStore) -> None:
        cleaner = Cleaner(store)
        self.storage.run(cleaner.clean(InFlight(store.entry.last_id + 1)))
        self.storage.run(cleaner.dispose())


def left(storage: PlainStorage) -> set[str]:
    """Of the savepoint."""
    return {path for path in storage.objects if path.startswith(FOLDER)} - OTHERS


def log_of(storage: PlainStorage, job: str = "job") -> list[entries.Entry]:
    names = [path for path in storage.objects if path.startswith((f"{job}/log/", f"{job}/entries/"))]
    log = sorted((entries.from_bytes(storage.objects[name], name) for name in names), key=lambda entry: entry.slot)
    entries.fold(log)
    return log


@pytest.mark.feature("I19")
def test_a_savepoint_that_was_lent_stays(storage: PlainStorage) -> None:
    before = left(storage)
    job = Job(storage)
    store = job.start(SAVEPOINT)
    for _ in range(3):
        job.checkpoint(store)
    storage.run(store.finish(RunOutcome.CANCELED, keep=False))
    job.tidy(store)
    assert left(storage) == before


@pytest.mark.feature("I20")
@pytest.mark.parametrize("retained", [1, 2, 3])
def test_a_claimed_savepoint_goes_with_the_checkpoint_that_subsumes_it_and_nothing_else_does(
    storage: PlainStorage, retained: int
) -> None:
    job = Job(storage, retained=retained)
    store = job.start(SAVEPOINT, claims=True)
    for published in range(retained):
        assert left(storage) == {f"{FOLDER}{name}" for name in ("_metadata", "_claimed", "L1-S0-a", "L1-S1-b")}
        assert len(store.entry.retained) == published + 1
        job.checkpoint(store)
    assert left(storage) == set()
    assert storage.objects.keys() >= OTHERS
    job.checkpoint(store)
    assert log_of(storage)[-1].disposing == ()


def test_a_claimed_savepoint_goes_when_the_job_gives_all_its_checkpoints_up(storage: PlainStorage) -> None:
    job = Job(storage, retained=3)
    store = job.start(SAVEPOINT, claims=True)
    job.checkpoint(store)
    storage.run(store.finish(RunOutcome.CANCELED, keep=False))
    job.tidy(store)
    assert left(storage) == set()
    log_of(storage)


def test_a_pin_holds_a_claimed_savepoint(storage: PlainStorage) -> None:
    job = Job(storage)
    store = job.start(SAVEPOINT, claims=True)
    storage.run(place(job.layout, "reader", store.entry.retained[0], "somebody reads it"))
    job.checkpoint(store)
    assert len(left(storage)) == 4
    storage.run(remove(job.layout, "reader"))
    job.checkpoint(store)
    assert left(storage) == set()


class Crash(Exception):
    pass


@pytest.mark.parametrize(
    "point",
    ["takeover.1-marked", "claim.1-read", "claim.2-decided", "claim.3-won", "claim.4-shown", "recover.1-read", "recover.3-owed",
     "publish.1-metadata", "publish.2-entry", "dispose.1-read", "dispose.2-files", "dispose.3-metadata"],
)  # fmt: skip
def test_a_crash_at_any_step_loses_nothing_and_leaves_nothing(storage: PlainStorage, point: str) -> None:
    job = Job(storage)

    def die(reached: str, **context: object) -> None:
        if reached == point:
            raise Crash

    faults.arm(die)
    try:
        with pytest.raises(Crash):
            job.checkpoint(job.start(SAVEPOINT, claims=True))
    finally:
        faults.arm(None)
    owned = any(path.startswith("job/log/") for path in storage.objects)
    if not owned or log_of(storage)[-1].base == replace(SAVEPOINT, claimed=True):
        assert len(left(storage) - {f"{FOLDER}_claimed"}) == 3  # whoever starts next finds it whole
    store = job.start() if owned else job.start(SAVEPOINT, claims=True)
    assert store.entry.base is not None
    job.tidy(store)
    job.checkpoint(store)
    assert left(storage) == set()
    assert storage.objects.keys() >= OTHERS
    job.checkpoint(store)
    assert log_of(storage)[-1].disposing == ()


@pytest.mark.feature("I20")
def test_a_savepoint_is_claimed_by_one_job_only(storage: PlainStorage) -> None:
    Job(storage, "first").start(SAVEPOINT, claims=True)
    with pytest.raises(CannotClaim, match="claimed by the job 'first'"):
        Job(storage, "second").start(SAVEPOINT, claims=True)
    with pytest.raises(CannotClaim, match="savepoint copy"):
        Job(storage, "second").start(SAVEPOINT)
    assert Job(storage, "first").start(SAVEPOINT, claims=True, fresh=True).entry.retained[0].claimed


def test_of_two_that_claim_at_once_one_wins(storage: PlainStorage) -> None:
    slow = take_over(SAVEPOINT, snapshot(), "slow", "/ckpt", Nonce("nonce-of-slow"))
    effect = slow.send(None)  # it has asked whether the savepoint is claimed …
    answer = storage.do(effect)
    Job(storage, "quick").start(SAVEPOINT, claims=True)
    lost = slow.send(answer)
    marked = storage.do(lost)
    whose = storage.do(slow.send(marked))
    with pytest.raises(CannotClaim, match="'quick'"):
        slow.send(whose)


def test_a_checkpoint_of_another_job_is_not_the_users_to_give(storage: PlainStorage) -> None:
    with pytest.raises(CannotClaim, match="checkpoint of the job 'origin'"):
        storage.run(take_over(SAVEPOINT, snapshot(SnapshotKind.CHECKPOINT), "job", "/ckpt", Nonce("nonce-1")))


def test_a_savepoint_that_is_being_deleted_cannot_be_started_from(storage: PlainStorage) -> None:
    job = Job(storage)
    store = job.start(SAVEPOINT, claims=True)
    job.publish(store)  # the entry is written, and then the driver dies
    with pytest.raises(StartRefused, match="no longer retained"):
        job.start(SAVEPOINT)
