"""Staged rows: few wait in the committable, others in storage, and never more than the driver may hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checkpoint.history_kit import committable
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.output.committables import Ledger, marks
from tidegate.checkpoint.output.staging import InlineLimits, InlineRoom, JobStaging, read_staged
from tidegate.connectors.sink import Committable
from tidegate.core.errors import CorruptState
from tidegate.core.ids import AttemptId, EpochId, Slot, Term, Uid
from tidegate.testing.storage import MemoryStorage

LAYOUT = JobLayout("orders")


def staging(storage: MemoryStorage, room: InlineRoom | None, epoch: int = 1, attempt: int = 1) -> JobStaging:
    at = EpochId(Term(1), epoch)
    return JobStaging(storage, layout=LAYOUT, epoch=at, sink=Uid("out"), attempt=AttemptId(attempt), room=room)


def test_few_rows_are_no_object_in_storage():
    storage = MemoryStorage()
    found = staging(storage, InlineRoom(8 << 10))
    tokens = [found.put(b"few rows"), found.put(b"\x00\xff" * 100)]
    assert (storage.list(), found.paths) == ([], [])
    assert [read_staged(storage, token) for token in tokens] == [b"few rows", b"\x00\xff" * 100]
    assert found.size_bytes == 208


def test_rows_that_do_not_fit_are_stored_and_later_ones_may_fit_again():
    storage = MemoryStorage()
    found = staging(storage, InlineRoom(100))
    tokens = [found.put(b"x" * 60), found.put(b"y" * 60), found.put(b"z")]
    assert [token.split(" ")[0] for token in tokens] == ["inline", "staged", "inline"]
    assert [each.path for each in storage.list()] == found.paths
    assert len(found.paths) == 1
    assert [read_staged(storage, token) for token in tokens] == [b"x" * 60, b"y" * 60, b"z"]


def test_a_token_counts_with_its_full_length():
    for size in range(200):
        token = staging(MemoryStorage(), InlineRoom(1 << 20)).put(b"x" * size)
        assert InlineRoom(len(token)).take(len(token))
        assert staging(MemoryStorage(), InlineRoom(len(token))).put(b"x" * size).startswith("inline")
        assert staging(MemoryStorage(), InlineRoom(len(token) - 1)).put(b"x" * size).startswith("staged")


def test_damaged_rows_in_a_committable_are_an_error():
    with pytest.raises(CorruptState):
        read_staged(None, "inline no base64!")


def test_all_slots_together_stay_below_the_limit_at_a_thousand_slots():
    limits = InlineLimits(task_bytes=8 << 10, waiting_bytes=16 << 20)
    waiting = 0
    for _ in range(100):
        waiting += 1_000 * limits.share(waiting, 1_000)
        assert waiting <= 16 << 20
    assert limits.share(0, 1) == 8 << 10
    assert limits.share(17 << 20, 1_000) == 0


Moves = st.lists(
    st.one_of(
        st.tuples(st.just("epoch"), st.lists(st.lists(st.integers(0, 300), max_size=3), min_size=4, max_size=4)),
        st.tuples(st.just("publish"), st.integers(0, 30)),
        st.tuples(st.just("rewind"), st.integers(0, 30)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=30,
)


@given(Moves, st.integers(0, 400), st.integers(0, 3_000))
def test_rows_in_waiting_output_never_exceed_the_limit_and_are_never_lost(moves, task_bytes, waiting_bytes):
    """The model knows every row that waits; the ledger knows committables."""
    limits = InlineLimits(task_bytes, waiting_bytes)
    storage = MemoryStorage()
    ledger = Ledger()
    model: dict[tuple[int, int], list[bytes]] = {}
    number = 0
    for move, what in moves:
        if move == "epoch":
            number += 1
            share = limits.share(ledger.payload_bytes, len(what))
            for slot, sizes in enumerate(what):
                found = staging(storage, InlineRoom(share), number, attempt=slot)
                rows = [bytes([slot]) * size for size in sizes]
                tokens = [found.put(each) for each in rows]
                inline = sum(len(token) for token in tokens if token.startswith("inline"))
                assert inline <= min(share, task_bytes)
                if tokens:
                    model[number, slot] = rows
                    ledger.accept([committed(number, slot, tokens, found)])
        elif move == "publish":
            ledger.confirm(marks(c for c in ledger.waiting() if c.epoch.number <= what))
            model = {key: rows for key, rows in model.items() if key[0] > what}
        elif move == "rewind":
            ledger.rewind(Term(1), EpochId(Term(1), what))
            model = {key: rows for key, rows in model.items() if key[0] <= what}
            number = max(number, what)
        else:
            ledger = Ledger(ledger.carried_by(EpochId(Term(1), number)))
        tokens_of = {(c.epoch.number, int(c.slot)): c.payload.decode().split("\n") for c in ledger.waiting()}
        assert {key: [read_staged(storage, t) for t in tokens] for key, tokens in tokens_of.items()} == model
        inline = sum(len(t) for tokens in tokens_of.values() for t in tokens if t.startswith("inline"))
        assert inline <= waiting_bytes
        assert ledger.payload_bytes == sum(len(c.payload) for c in ledger.waiting())


def committed(number: int, slot: int, tokens: list[str], found: JobStaging) -> Committable:
    like = committable(number, slot)
    return Committable(
        lineage=like.lineage,
        sink=like.sink,
        epoch=EpochId(Term(1), number),
        slot=Slot(slot),
        payload="\n".join(tokens).encode(),
        staged=tuple(found.paths),
    )
