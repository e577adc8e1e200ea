"""Committing in transactions: rows and the markers that cover them become visible together, once.

A committer has one producer per topic. One of its transactions carries as many epochs and slots as the size allows, in
epoch order. Recovery from any failure is the same, now or when the requests are repeated: a new producer starts from step
1, where Kafka reports what was committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

from tidegate.connectors.kafka.client import CHECK_S, check_topic, translated
from tidegate.connectors.kafka.errors import KafkaFenced, MarkerExpired, MarkerUnsettled
from tidegate.connectors.kafka.marker import Expired, Marker, PartState, SinkSlot, decide, encode
from tidegate.connectors.kafka.payload import KafkaCommittable, StagedPart
from tidegate.connectors.kafka.plain_committer import sending_settings
from tidegate.connectors.kafka.transactions import (
    Transactions,
    TransactionSettings,
    administrator_of,
    group_of,
    groups_of,
    markers_in,
    offsets_retention_ms,
)
from tidegate.connectors.outcome import CommitOutcome
from tidegate.connectors.read_ahead import read_ahead
from tidegate.connectors.sink import Committable
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Lineage, Uid

_ATTEMPTS = 3
"""A producer that was fenced takes its slots again: a stale committer that resumed briefly does it once. If it happens every
time, another driver commits the same output, and the error says so."""


@dataclass(frozen=True, slots=True)
class PendingPart:
    """One part that must be in the topic exactly once."""

    topic: str
    stream: SinkSlot
    epoch: EpochId
    marker: Marker
    part: StagedPart
    at_ms: int


class TransactionalCommitter:
    """Threads are serialized by a lock."""

    def __init__(
        self,
        settings: TransactionSettings,
        read: Callable[[str], bytes],
        payload_of: Callable[[Committable], KafkaCommittable],
        *,
        covers: Callable[[Lineage, Uid, EpochId, EpochId], bool] = lambda lineage, sink, marker, epoch: epoch <= marker,
        now_ms: Callable[[], int] = lambda: round(time.time() * 1000),
    ) -> None:
        self._settings = settings
        self._read = read
        self._payload_of = payload_of
        self._covers = covers
        self._now_ms = now_ms
        self._open: dict[str, Transactions] = {}
        self._retention_ms: int | None = None
        self._lock = Lock()

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        """Commit what is not in the topic yet, an epoch of all slots before the next one."""
        committed: set[tuple[SinkSlot, EpochId]] = set()
        # All are checked before the first row is sent.
        ordered = sorted(requests, key=lambda r: (r.epoch, r.slot))
        pending = [part for request in ordered for part in _parts_of(request, self._payload_of(request))]
        with self._lock:
            for topic, parts in _by_topic(pending):
                self._commit_topic(topic, parts, committed)
        outputs = [(_stream(request), request.epoch) for request in requests]
        return [
            CommitOutcome.COMMITTED if output in committed else CommitOutcome.ALREADY_COMMITTED for output in outputs
        ]

    def check_target(self) -> None:
        settings = self._settings
        servers = settings.bootstrap_servers
        check_topic(servers, sending_settings(servers, settings.config), settings.topic, CHECK_S)

    def markers(self, lineage: Lineage, sink: Uid) -> list[EpochId]:
        """Return the markers of all slots that the sink has ever had, at any parallelism: a request for each."""
        administrator = administrator_of(self._settings.bootstrap_servers, self._settings.config)
        with translated(f"list the markers of sink {sink!r}"):
            groups = groups_of(administrator, lineage, sink)
            return [epoch for group in groups for epoch in markers_in(administrator, group)]

    def close(self) -> None:
        """Close all producers. The committer remains usable and opens new ones."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].forget()

    def _commit_topic(self, topic: str, parts: Sequence[PendingPart], committed: set[tuple[SinkSlot, EpochId]]) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._commit_parts(self._transactions(topic), parts, committed)
                return
            except Exception as error:
                # Whatever the error: an open transaction would block every reader of committed rows.
                # Also with all slots that it has taken: the next attempt takes them again, and learns from Kafka what
                # was committed.
                if (broken := self._open.pop(topic, None)) is not None:
                    broken.forget()
                # The client has already waited for unreachable brokers; the request will be repeated.
                if attempt == _ATTEMPTS or not isinstance(error, KafkaFenced):
                    raise

    def _commit_parts(
        self, transactions: Transactions, parts: Sequence[PendingPart], committed: set[tuple[SinkSlot, EpochId]]
    ) -> None:
        """Commit what is missing in the topic, and add it to `committed`.

        1. Take the slots: Kafka aborts any transaction that an earlier committer of them left open, and fences that
           committer. Then read their markers; output they cover is done. See `Transactions` for the details.
        2. Begin a transaction and send the rows. A crash leaves an open transaction, which no reader of committed rows sees.
        3. Add the markers to the transaction. A crash leaves it open as before.
        4. Commit. A crash before the response leaves it committed or aborted; the markers in step 1
           of the next attempt show which.
        """
        # Before anything is decided: only a producer that has fenced all others may trust the markers that it reads.
        transactions.take({each.stream for each in parts})
        reach("kafka.1-marker-read", topic=transactions.topic)
        states = [(each, self._state(transactions, each)) for each in parts]
        expired = self._settings.expired
        skipped = [each for each, state in states if state is PartState.UNKNOWN and expired is Expired.SKIP]
        waiting = [each for each, state in states if state is not PartState.COMMITTED and each not in skipped]
        # Slots that have nothing to send are given up, so that they cost no transaction.
        transactions.keep(_first_markers([*skipped, *waiting]))
        if skipped:
            # Commit only their markers: the next start finds them, and does not ask the user again.
            transactions.begin()
            transactions.mark(_last_markers(skipped))
            transactions.commit()
        for together in _transactions_of(waiting, self._settings.most_bytes):
            transactions.begin()
            for packed in read_ahead(self._read, [each.part.token for each in together]):
                transactions.send(packed)
            # Slow brokers get all the time they need here. The calls after this one have a timeout.
            transactions.await_deliveries()
            reach("kafka.2-sent", topic=transactions.topic)
            transactions.mark(_last_markers(together))
            reach("kafka.3-marked", topic=transactions.topic)
            transactions.commit()
            # At once, and not at the end: if a later transaction fails, these parts were committed by this call.
            committed |= {(each.stream, each.epoch) for each in together}
            reach("kafka.4-committed", topic=transactions.topic)

    def _state(self, transactions: Transactions, each: PendingPart) -> PartState:
        """Return whether a part is in the topic. Raises if nobody can know it and the user has not decided (`Expired.FAIL`)."""
        slot = transactions.taken[each.stream]
        if slot.is_unstable:
            state = PartState.UNKNOWN
        else:
            # The brokers' setting matters only for a marker that is missing, and costs a request.
            retention_ms = 0 if slot.marker is not None else self._retention()
            marker = None if slot.marker is None else self._offset_for(slot.marker, each)
            state = decide(marker, each.marker.offset, self._now_ms() - each.at_ms, retention_ms)
        if state is PartState.UNKNOWN and self._settings.expired is Expired.FAIL:
            reason = MarkerUnsettled if slot.is_unstable else MarkerExpired
            raise reason(each.stream.sink, each.stream.slot, each.epoch, group_of(each.stream))
        return state

    def _offset_for(self, marker: Marker, each: PendingPart) -> int:
        """Return the offset of the marker as far as it concerns this part: nothing if it covers no output of the part's claim.
        Raises `ForeignOutput` if it is not of the job's history."""
        is_covered = self._covers(each.stream.lineage, each.stream.sink, marker.epoch, each.epoch)
        return marker.offset if is_covered else -1

    def _transactions(self, topic: str) -> Transactions:
        if topic not in self._open:
            self._open[topic] = Transactions(self._settings, topic)
        return self._open[topic]

    def _retention(self) -> int:
        if self._retention_ms is None:
            self._retention_ms = offsets_retention_ms(self._settings.bootstrap_servers, self._settings.config)
        return self._retention_ms


def _stream(request: Committable) -> SinkSlot:
    return SinkSlot(request.lineage, request.sink, request.slot)


def _parts_of(request: Committable, staged: KafkaCommittable) -> Iterator[PendingPart]:
    for index, part in enumerate(staged.parts):
        marker = Marker(encode(request.epoch, index), request.epoch.term)
        yield PendingPart(
            topic=staged.topic,
            stream=_stream(request),
            epoch=request.epoch,
            marker=marker,
            part=part,
            at_ms=staged.at_ms,
        )


def _first_markers(parts: Sequence[PendingPart]) -> dict[SinkSlot, Marker]:
    return _last_markers(sorted(parts, key=lambda each: each.marker.offset, reverse=True))


def _last_markers(parts: Sequence[PendingPart]) -> dict[SinkSlot, Marker]:
    """Return the last marker of each slot, from parts in order."""
    return {each.stream: each.marker for each in parts}


def _by_topic(parts: Sequence[PendingPart]) -> Iterator[tuple[str, list[PendingPart]]]:
    """Yield runs of parts for the same topic: a sink's topic changes only at a restart."""
    run: list[PendingPart] = []
    for each in parts:
        # Runs, not groups: an epoch for the old topic must be committed before a later one for the new topic.
        if run and run[-1].topic != each.topic:
            yield run[-1].topic, run
            run = []
        run.append(each)
    if run:
        yield run[-1].topic, run


def _transactions_of(parts: Sequence[PendingPart], most_bytes: int) -> Iterator[list[PendingPart]]:
    """Yield the parts of each transaction. A different split on a repeat is harmless: a part is committed whole or not at all."""
    together: list[PendingPart] = []
    for each in parts:
        if together and sum(other.part.size_bytes for other in together) + each.part.size_bytes > most_bytes:
            yield together
            together = []
        together.append(each)
    if together:
        yield together
