"""What the committer decides before it sends anything to a broker."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from tidegate.connectors.kafka import payload
from tidegate.connectors.kafka.committer import (
    PendingPart,
    TransactionalCommitter,
    _first_markers,
    _last_markers,
    _transactions_of,
)
from tidegate.connectors.kafka.marker import Expired, Marker, SinkSlot, encode, holder_in, metadata_of, read_marker
from tidegate.connectors.kafka.payload import KafkaCommittable, StagedPart
from tidegate.connectors.kafka.transactions import TakenSlot, Transactions, TransactionSettings
from tidegate.connectors.outcome import CommitOutcome
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid, term_of

SETTINGS = TransactionSettings(
    bootstrap_servers="host:9092", config={}, topic="t", timeout_ms=1000, most_bytes=1000, expired=Expired.FAIL
)


def stream(slot: int) -> SinkSlot:
    return SinkSlot(Lineage("line"), Uid("out"), Slot(slot))


def pending(slot: int, number: int, part: int = 0, size_bytes: int = 10) -> PendingPart:
    epoch = EpochId(Term(1), number)
    marker = Marker(encode(epoch, part), epoch.term)
    return PendingPart("t", stream(slot), epoch, marker, StagedPart(f"{number}-{slot}-{part}", 1, size_bytes), 0)


@pytest.mark.parametrize(
    ("named", "holder"),
    [
        (None, "tidegate-line-out-3-t"),
        ("", "tidegate-line-out-3-t"),
        ("tidegate-line-out-1-t", "tidegate-line-out-1-t"),
        ("payments", "tidegate-line-out-3-t"),
        ("tidegate-line-other-1-t", "tidegate-line-out-3-t"),
        ("tidegate-line-out-1-elsewhere", "tidegate-line-out-3-t"),
    ],
)
def test_a_marker_names_its_holder_and_strangers_are_not_fenced(named, holder):
    assert Transactions(SETTINGS, "t")._holder(stream(3), named) == holder


@pytest.mark.feature("J28", "N27")
def test_a_transaction_carries_epochs_in_order_and_the_last_marker_of_each_slot():
    parts = [pending(slot, number) for number in (1, 2, 3) for slot in (0, 1)]
    together = list(_transactions_of(parts, most_bytes=40))
    assert [[each.part.token for each in some] for some in together] == [
        ["1-0-0", "1-1-0", "2-0-0", "2-1-0"],
        ["3-0-0", "3-1-0"],
    ]
    assert _last_markers(together[0]) == {stream(slot): pending(slot, 2).marker for slot in (0, 1)}


@pytest.mark.feature("J28")
def test_a_slot_without_a_marker_gets_one_that_covers_none_of_the_pending_output():
    parts = [pending(0, 2), pending(1, 2), pending(0, 3)]
    assert _first_markers(parts) == {stream(0): pending(0, 2).marker, stream(1): pending(1, 2).marker}


def test_offset_metadata_has_the_holder_and_the_whole_term():
    term = term_of(7, 0xFFFFFFFF)
    offset = encode(EpochId(term, 41), 3)
    metadata = metadata_of("tidegate-line-out-1-t", term)
    assert holder_in(metadata) == "tidegate-line-out-1-t"
    assert read_marker(offset, metadata).epoch == EpochId(term, 41)


def test_a_marker_of_an_earlier_version_has_the_term_that_its_offset_tells():
    offset = encode(EpochId(Term(7), 41), 3)
    assert read_marker(offset, "tidegate-line-out-1-t").epoch == EpochId(Term(7), 41)
    assert read_marker(offset, None).epoch == EpochId(Term(7), 41)


class PretendedTopic(Transactions):
    """A topic that takes rows and markers, and keeps both when its transaction is committed."""

    def __init__(self) -> None:
        super().__init__(SETTINGS, "t")
        self.rows: list[bytes] = []
        self._sent: list[bytes] = []

    def take(self, streams: Collection[SinkSlot]) -> None:
        for each in streams:
            self.taken.setdefault(each, TakenSlot(None, None))

    def keep(self, first: Mapping[SinkSlot, Marker]) -> None: ...
    def begin(self) -> None: ...
    def await_deliveries(self) -> None: ...

    def send(self, packed: bytes) -> None:
        self._sent.append(packed)

    def mark(self, markers: Mapping[SinkSlot, Marker]) -> None:
        self._next = markers

    def commit(self) -> None:
        self.rows, self._sent = self.rows + self._sent, []
        for stream, marker in self._next.items():
            self.taken[stream].marker = marker


def request(slot: int, number: int) -> Committable:
    part = StagedPart(f"{number}-{slot}", 1, 10)
    staged = payload.encode(KafkaCommittable("t", 0, [part]))
    epoch = EpochId(Term(1), number)
    return Committable(lineage=Lineage("line"), sink=Uid("out"), epoch=epoch, slot=Slot(slot), payload=staged)


@pytest.mark.feature("J28")
def test_rows_whose_marker_is_in_the_topic_are_not_sent_again():
    """As after a crash between the commit and the record of it: the next start repeats the requests."""
    topic = PretendedTopic()
    committer = TransactionalCommitter(
        SETTINGS, str.encode, lambda each: payload.decode(each.payload), now_ms=lambda: 0
    )
    committer._open["t"] = topic
    committer._retention_ms = 1000
    first = [request(slot, 1) for slot in (0, 1)]
    assert committer.commit(first) == [CommitOutcome.COMMITTED] * 2
    repeated = committer.commit([*first, request(0, 2)])
    assert repeated == [CommitOutcome.ALREADY_COMMITTED, CommitOutcome.ALREADY_COMMITTED, CommitOutcome.COMMITTED]
    assert topic.rows == [b"1-0", b"1-1", b"2-0"]
