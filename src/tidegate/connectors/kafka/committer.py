"""Committing in transactions: the rows of a slot and the marker that covers them become visible together, once.

Rows of one slot are committed in order of epochs and parts; slots do not wait for each other. Whatever goes wrong, the way
on is the same, now or when the request comes again: a new producer, from step 1, where Kafka says what was committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any

import msgspec

from tidegate.connectors.kafka.client import connection, library, reader_settings, translate, translated
from tidegate.connectors.kafka.errors import KafkaFenced, KafkaUnavailable, MarkerExpired, MarkerUnsettled
from tidegate.connectors.kafka.marker import Expired, Found, Stream, decide, encode
from tidegate.connectors.kafka.plain_committer import send, sending_settings, settle
from tidegate.connectors.kafka.sink import Part, Staged
from tidegate.connectors.outcome import CommitOutcome
from tidegate.connectors.sink import CommitRequest
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId

COMMITTED, ALREADY_COMMITTED = CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED
_ATTEMPTS = 3
_ANSWER_S = 30.0
"""How long an answer may take that waits for no rows."""
_TOPIC_S = 5.0
"""How long a topic may be unknown before that is believed."""
_FAREWELL_S = 5.0
_PRODUCERS = 64
"""Producers kept open. Each has threads and connections of its own."""
_AT_ONCE = 8
_DEFAULT_RETENTION_MS = 7 * 24 * 3_600_000
"""Kafka's default of `offsets.retention.minutes`."""


@dataclass(frozen=True, slots=True)
class Owed:
    """One part that is to be in the topic once."""

    topic: str
    epoch: EpochId
    marker: int
    part: Part
    at_ms: int


class TransactionalCommitter:
    def __init__(
        self,
        bootstrap_servers: str,
        config: Mapping[str, str],
        read: Callable[[str], bytes],
        *,
        timeout_ms: int,
        most_bytes: int,
        expired: Expired,
        now_ms: Callable[[], int] = lambda: round(time.time() * 1000),
    ) -> None:
        self._servers, self._config, self._read, self._now_ms = bootstrap_servers, config, read, now_ms
        self._timeout_ms, self._most_bytes, self._expired = timeout_ms, most_bytes, expired
        self._open: dict[tuple[Stream, str], _Transactions] = {}
        self._retention_ms: int | None = None

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """Publish each slot's rows that are not in the topic yet. Slots that can be committed are, also when one cannot."""
        published: set[tuple[Stream, EpochId]] = set()
        streams: dict[Stream, list[CommitRequest]] = {}
        for request in sorted(requests, key=lambda r: r.epoch):
            streams.setdefault(Stream(request.lineage, request.sink, request.slot), []).append(request)
        if len(streams) == 1:
            [(stream, theirs)] = streams.items()
            published |= {(stream, epoch) for epoch in self._commit_stream(stream, theirs)}
        elif streams:
            with ThreadPoolExecutor(min(_AT_ONCE, len(streams)), "tidegate-kafka") as pool:
                doing = {stream: pool.submit(self._commit_stream, stream, theirs) for stream, theirs in streams.items()}
            for stream, done in doing.items():
                published |= {(stream, epoch) for epoch in done.result()}
        while len(self._open) > _PRODUCERS:
            self._open.pop(next(iter(self._open))).forget()
        known = [(Stream(request.lineage, request.sink, request.slot), request.epoch) for request in requests]
        return [COMMITTED if each in published else ALREADY_COMMITTED for each in known]

    def close(self) -> None:
        """Let go of all producers. The committer may still be used, and opens new ones."""
        while self._open:
            self._open.popitem()[1].forget()

    def _commit_stream(self, stream: Stream, requests: Sequence[CommitRequest]) -> set[EpochId]:
        """Answer: the epochs of which something was published now."""
        published: set[EpochId] = set()
        owed = [each for request in requests for each in _owed(request)]
        for topic, theirs in _by_topic(owed):
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    self._publish(self._transactions(stream, topic), theirs, published)
                    break
                except Exception as error:
                    # Whatever it was: an open transaction would hold up every reader of committed rows.
                    if (broken := self._open.pop((stream, topic), None)) is not None:
                        broken.forget()
                    # Brokers that cannot be reached were waited for already; the request comes again.
                    if attempt == _ATTEMPTS or not isinstance(error, KafkaFenced):
                        raise
        return published

    def _publish(self, transactions: _Transactions, owed: Sequence[Owed], published: set[EpochId]) -> None:
        """Bring into the topic what is not there yet, and note in `published` of which epochs that was.

        1. Begin with a producer of this slot's transactional id: Kafka aborts whatever an earlier committer of that id left
           open, and no such committer can go on. Then read the marker; what it covers is done.
        2. Begin a transaction and send the rows. A crash leaves an open transaction, which no reader of committed rows sees.
        3. Add the marker to the transaction. A crash leaves it open as before.
        4. Commit. A crash before the answer leaves it committed or aborted, and the marker in step 1 of the next tells which.
        """
        marker = transactions.marker()
        reach("kafka.1-marker-read", stream=transactions.stream, marker=marker)
        found = [(each, self._find(transactions, marker, each)) for each in owed]
        skipped = [each for each, state in found if state is Found.UNKNOWN and self._expired is Expired.SKIP]
        if skipped:
            # Their marker alone, so that the question is answered for good.
            transactions.begin()
            transactions.mark(skipped[-1].marker)
            transactions.commit()
        waiting = [each for each, state in found if state is not Found.COMMITTED and each not in skipped]
        for together in _transactions_of(waiting, self._most_bytes):
            transactions.begin()
            for each in together:
                transactions.send(self._read(each.part.token))
            transactions.settle()
            reach("kafka.2-sent", stream=transactions.stream)
            transactions.mark(together[-1].marker)
            reach("kafka.3-marked", stream=transactions.stream)
            transactions.commit()
            published |= {each.epoch for each in together}
            reach("kafka.4-committed", stream=transactions.stream)

    def _find(self, transactions: _Transactions, marker: int | None, each: Owed) -> Found:
        if transactions.unsettled:
            found = Found.UNKNOWN
        else:
            retention_ms = 0 if marker is not None else self._retention()
            found = decide(marker, each.marker, self._now_ms() - each.at_ms, retention_ms)
        if found is Found.UNKNOWN and self._expired is Expired.FAIL:
            told = MarkerUnsettled if transactions.unsettled else MarkerExpired
            raise told(transactions.stream.sink, transactions.stream.slot, each.epoch, transactions.group)
        return found

    def _transactions(self, stream: Stream, topic: str) -> _Transactions:
        found = self._open.pop((stream, topic), None)
        if found is None:
            found = _Transactions(self._servers, self._config, stream, topic, self._timeout_ms)
        # At the end: the one used last is the last to be closed.
        self._open[stream, topic] = found
        return found

    def _retention(self) -> int:
        """How long the brokers keep offsets of idle groups; Kafka's default where we may not ask."""
        if self._retention_ms is None:
            self._retention_ms = _ask_retention(connection(self._servers, self._config))
        return self._retention_ms


class _Transactions:
    """The transactions of one slot into one topic, one after the other, by one producer that nobody has fenced."""

    def __init__(self, servers: str, config: Mapping[str, str], stream: Stream, topic: str, timeout_ms: int) -> None:
        self.stream, self.topic = stream, topic
        # Never to be changed: under another name, markers would not be found and open transactions not be aborted.
        self.group = f"tidegate-{stream}"
        self._reading = reader_settings(servers, config, self.group)
        # A slot that moved from topic to topic has a producer for each, and they must not fence one another.
        writing = {"transactional.id": f"{self.group}-{topic}", "transaction.timeout.ms": timeout_ms}
        self._writing = {**sending_settings(servers, config), **writing}
        self._producer: Any = None
        self._members: Any = None
        self._marker: int | None = None
        self.unsettled = False
        """Whether Kafka holds the marker to be part of a transaction that has not ended, although there is none."""

    def marker(self) -> int | None:
        """How far the topic is. Asked once: nobody else can move it as long as this producer is not fenced."""
        if self._producer is None:
            kafka = library()
            with translated(f"begin transactions for topic {self.topic!r}"):
                producer = kafka.Producer(self._writing)
                self._see_topic(producer)
                producer.init_transactions(_ANSWER_S)
                # Only now: as long as an earlier transaction is open, its marker cannot be read.
                consumer = kafka.Consumer(self._reading)
                try:
                    self._members = consumer.consumer_group_metadata()
                    at = _committed(consumer, kafka.TopicPartition(self.topic, 0))
                finally:
                    consumer.close()
            if at is not None and at.error is not None:
                raise translate(at.error, f"tell the offset of group {self.group!r}")
            self.unsettled = at is None
            self._marker = at.offset if at is not None and at.offset >= 0 else None
            self._producer = producer
        return self._marker

    def _see_topic(self, producer: Any) -> None:
        """A topic that does not exist would be waited for until the transaction times out."""
        latest = time.monotonic() + _TOPIC_S
        while True:
            found = producer.list_topics(self.topic, _ANSWER_S).topics[self.topic]
            if found.error is None:
                return
            # A broker that has just been started answers before it knows its topics.
            if found.error.code() != library().KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > latest:
                raise translate(found.error, f"find topic {self.topic!r}")
            time.sleep(0.1)

    def begin(self) -> None:
        with translated("begin a transaction"):
            self._producer.begin_transaction()

    def send(self, packed: bytes) -> None:
        with translated(f"take rows for topic {self.topic!r}"):
            send(self._producer, self.topic, packed, _ANSWER_S)

    def settle(self) -> None:
        """All rows are with the brokers, or are known not to be: then step 3 tells."""
        with translated(f"take rows for topic {self.topic!r}"):
            settle(self._producer, _ANSWER_S)

    def mark(self, marker: int) -> None:
        at = library().TopicPartition(self.topic, 0, marker)
        with translated(f"take the offset of group {self.group!r} into the transaction"):
            _bounded(partial(self._producer.send_offsets_to_transaction, [at], self._members, _ANSWER_S), _ANSWER_S)
        self._next = marker

    def commit(self) -> None:
        with translated(f"commit rows to topic {self.topic!r}"):
            _bounded(partial(self._producer.commit_transaction, _ANSWER_S), _ANSWER_S)
        self._marker, self.unsettled = self._next, False

    def forget(self) -> None:
        """Let the producer go. An open transaction is aborted now if Kafka listens, else by the next `init_transactions`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(library().KafkaException, KafkaUnavailable):
                producer.purge()
                _bounded(partial(producer.abort_transaction, _FAREWELL_S), _FAREWELL_S)


def _bounded(call: Callable[[], None], limit_s: float) -> None:
    """Make a call that is to take no longer than `limit_s`, and see that it does not.

    Adding offsets to a transaction waits on and on for a broker that died, whatever timeout it is given (librdkafka issue
    5511). Such a call is left behind with its producer: nobody will commit that transaction, and the first step of the next
    producer aborts it.
    """
    done: Future[None] = Future()

    def make() -> None:
        try:
            call()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    Thread(target=make, name="tidegate-kafka-call", daemon=True).start()
    try:
        done.result(limit_s + 2)
    except TimeoutError:
        raise KafkaUnavailable(
            f"Kafka gave no answer within {limit_s:g} s. The rows are offered again; see that the brokers can be reached."
        ) from None


def _committed(consumer: Any, place: Any) -> Any:
    """The group's offset; None if Kafka gives none because a transaction with it has not ended.

    A coordinator that moves or has just been made is waited for: the client does not do it here.
    """
    kafka = library()
    codes = kafka.KafkaError
    moving = {codes.NOT_COORDINATOR, codes.COORDINATOR_LOAD_IN_PROGRESS, codes.COORDINATOR_NOT_AVAILABLE}
    latest = time.monotonic() + _ANSWER_S
    while True:
        try:
            [at] = consumer.committed([place], _ANSWER_S)
            return at
        except kafka.KafkaException as error:
            code = error.args[0].code()
            if code == codes._TIMED_OUT:
                return None
            if code not in moving or time.monotonic() > latest:
                raise
            time.sleep(0.1)


def _owed(request: CommitRequest) -> Iterator[Owed]:
    staged = msgspec.json.decode(request.payload, type=Staged)
    for index, part in enumerate(staged.parts):
        yield Owed(staged.topic, request.epoch, encode(request.epoch, index), part, staged.at_ms)


def _by_topic(owed: Sequence[Owed]) -> Iterator[tuple[str, list[Owed]]]:
    """Runs of parts for the same topic: a slot's topic changes at most at a restart."""
    run: list[Owed] = []
    for each in owed:
        if run and run[-1].topic != each.topic:
            yield run[-1].topic, run
            run = []
        run.append(each)
    if run:
        yield run[-1].topic, run


def _transactions_of(owed: Sequence[Owed], most_bytes: int) -> Iterator[list[Owed]]:
    """Parts that go together into one transaction. Cutting otherwise the next time does no harm: a part is whole or absent."""
    together: list[Owed] = []
    for each in owed:
        if together and sum(other.part.size_bytes for other in together) + each.part.size_bytes > most_bytes:
            yield together
            together = []
        together.append(each)
    if together:
        yield together


def _ask_retention(settings: dict[str, Any]) -> int:
    administration = library("confluent_kafka.admin")
    client, resource = administration.AdminClient(settings), administration.ConfigResource
    try:
        broker = next(iter(client.list_topics(timeout=_ANSWER_S).brokers))
        [answer] = client.describe_configs([resource(resource.Type.BROKER, str(broker))]).values()
        return int(answer.result(_ANSWER_S)["offsets.retention.minutes"].value) * 60_000
    except (library().KafkaException, KeyError, TypeError, ValueError):
        return _DEFAULT_RETENTION_MS
