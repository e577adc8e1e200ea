"""Committing in transactions: rows and the markers that cover them become visible together, once.

A committer has one producer per topic. One of its transactions carries as many epochs and slots as the size allows, in
epoch order. Recovery from any failure is the same, now or when the requests are repeated: a new producer starts from step
1, where Kafka reports what was committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Lock, Thread
from typing import Any

from tidegate.connectors.kafka.client import (
    CHECK_S,
    Rejections,
    await_topic,
    check_topic,
    connection,
    library,
    reader_settings,
    translated,
)
from tidegate.connectors.kafka.errors import KafkaFenced, KafkaUnavailable, MarkerExpired, MarkerUnsettled
from tidegate.connectors.kafka.marker import (
    Expired,
    Found,
    Marker,
    SinkSlot,
    decide,
    encode,
    holder_in,
    metadata_of,
    read_marker,
)
from tidegate.connectors.kafka.payload import KafkaCommittable, StagedPart
from tidegate.connectors.kafka.plain_committer import send, sending_settings, settle
from tidegate.connectors.outcome import CommitOutcome
from tidegate.connectors.read_ahead import read_ahead
from tidegate.connectors.sink import Committable
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Lineage, Slot, Uid

COMMITTED, ALREADY_COMMITTED = CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED
_ATTEMPTS = 3
_ANSWER_S = 30.0
"""Timeout of a call that does not wait for rows."""
_FAREWELL_S = 5.0
_AT_ONCE = 8
_DEFAULT_RETENTION_MS = 7 * 24 * 3_600_000
"""Kafka's default for `offsets.retention.minutes`."""


@dataclass(frozen=True, slots=True)
class Owed:
    """One part that must be in the topic exactly once."""

    topic: str
    stream: SinkSlot
    epoch: EpochId
    marker: Marker
    part: StagedPart
    at_ms: int


class TransactionalCommitter:
    """Threads are serialized by a lock."""

    def __init__(  # noqa: PLR0913 what the sink is configured with
        self,
        bootstrap_servers: str,
        config: Mapping[str, str],
        read: Callable[[str], bytes],
        *,
        topic: str,
        payload_of: Callable[[Committable], KafkaCommittable],
        timeout_ms: int,
        most_bytes: int,
        expired: Expired,
        covers: Callable[[Lineage, Uid, EpochId, EpochId], bool] = lambda lineage, sink, marker, epoch: epoch <= marker,
        now_ms: Callable[[], int] = lambda: round(time.time() * 1000),
    ) -> None:
        self._servers = bootstrap_servers
        self._config = config
        self._read = read
        self._now_ms = now_ms
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._most_bytes = most_bytes
        self._expired = expired
        self._payload_of = payload_of
        self._covers = covers
        self._open: dict[str, _Transactions] = {}
        self._retention_ms: int | None = None
        self._lock = Lock()

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        """Publish what is not in the topic yet, an epoch of all slots before the next one."""
        published: set[tuple[SinkSlot, EpochId]] = set()
        # All are checked before the first row is sent.
        ordered = sorted(requests, key=lambda r: (r.epoch, r.slot))
        owed = [each for request in ordered for each in _owed(request, self._payload_of(request))]
        with self._lock:
            for topic, theirs in _by_topic(owed):
                self._commit_topic(topic, theirs, published)
        known = [(_stream(request), request.epoch) for request in requests]
        return [COMMITTED if each in published else ALREADY_COMMITTED for each in known]

    def check_target(self) -> None:
        check_topic(self._servers, sending_settings(self._servers, self._config), self._topic, CHECK_S)

    def markers(self, lineage: Lineage, sink: Uid) -> list[EpochId]:
        """Return the markers of all slots that the sink has ever had, at any parallelism: a request for each."""
        prefix = _sink_prefix(SinkSlot(lineage, sink, Slot(0)))
        administrator = library("confluent_kafka.admin").AdminClient(connection(self._servers, self._config))
        with translated(f"list the markers of sink {sink!r}"):
            listed = administrator.list_consumer_groups(request_timeout=_ANSWER_S).result().valid
            # Another sink's name may begin with this one's: only slots follow the prefix.
            groups = [each.group_id for each in listed if each.group_id.removeprefix(prefix).isdecimal()]
            return [epoch for group in groups for epoch in _markers_of(administrator, group)]

    def close(self) -> None:
        """Close all producers. The committer remains usable and opens new ones."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].forget()

    def _commit_topic(self, topic: str, owed: Sequence[Owed], published: set[tuple[SinkSlot, EpochId]]) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._publish(self._transactions(topic), owed, published)
                return
            except Exception as error:
                # Whatever the error: an open transaction would block every reader of committed rows.
                if (broken := self._open.pop(topic, None)) is not None:
                    broken.forget()
                # The client has already waited for unreachable brokers; the request will be repeated.
                if attempt == _ATTEMPTS or not isinstance(error, KafkaFenced):
                    raise

    def _publish(
        self, transactions: _Transactions, owed: Sequence[Owed], published: set[tuple[SinkSlot, EpochId]]
    ) -> None:
        """Publish to the topic what is missing there, and add it to `published`.

        1. Take the slots: Kafka aborts any transaction that an earlier committer of them left open, and fences that
           committer. Then read their markers; output they cover is done. See `_Transactions` for the details.
        2. Begin a transaction and send the rows. A crash leaves an open transaction, which no reader of committed rows sees.
        3. Add the markers to the transaction. A crash leaves it open as before.
        4. Commit. A crash before the response leaves it committed or aborted; the markers in step 1
           of the next attempt show which.
        """
        transactions.take({each.stream for each in owed})
        reach("kafka.1-marker-read", topic=transactions.topic)
        found = [(each, self._find(transactions, each)) for each in owed]
        skipped = [each for each, state in found if state is Found.UNKNOWN and self._expired is Expired.SKIP]
        waiting = [each for each, state in found if state is not Found.COMMITTED and each not in skipped]
        transactions.keep(_first_markers([*skipped, *waiting]))
        if skipped:
            # Commit only their markers, so that the question is settled permanently.
            transactions.begin()
            transactions.mark(_last_markers(skipped))
            transactions.commit()
        for together in _transactions_of(waiting, self._most_bytes):
            transactions.begin()
            for packed in read_ahead(self._read, [each.part.token for each in together]):
                transactions.send(packed)
            transactions.settle()
            reach("kafka.2-sent", topic=transactions.topic)
            transactions.mark(_last_markers(together))
            reach("kafka.3-marked", topic=transactions.topic)
            transactions.commit()
            published |= {(each.stream, each.epoch) for each in together}
            reach("kafka.4-committed", topic=transactions.topic)

    def _find(self, transactions: _Transactions, each: Owed) -> Found:
        held = transactions.held[each.stream]
        if held.unsettled:
            found = Found.UNKNOWN
        else:
            retention_ms = 0 if held.marker is not None else self._retention()
            marker = None if held.marker is None else self._offset_for(held.marker, each)
            found = decide(marker, each.marker.offset, self._now_ms() - each.at_ms, retention_ms)
        if found is Found.UNKNOWN and self._expired is Expired.FAIL:
            told = MarkerUnsettled if held.unsettled else MarkerExpired
            raise told(each.stream.sink, each.stream.slot, each.epoch, _group(each.stream))
        return found

    def _offset_for(self, marker: Marker, each: Owed) -> int:
        """Return the offset of the marker as far as it concerns this part: nothing if it covers no output of the part's claim.
        Raises `ForeignOutput` if it is not of the job's history."""
        is_covered = self._covers(each.stream.lineage, each.stream.sink, marker.epoch, each.epoch)
        return marker.offset if is_covered else -1

    def _transactions(self, topic: str) -> _Transactions:
        if topic not in self._open:
            self._open[topic] = _Transactions(self._servers, self._config, topic, self._timeout_ms)
        return self._open[topic]

    def _retention(self) -> int:
        """Return how long the brokers keep offsets of idle groups, or Kafka's default if we are not authorized to ask."""
        if self._retention_ms is None:
            self._retention_ms = _ask_retention(connection(self._servers, self._config))
        return self._retention_ms


@dataclass(slots=True)
class _Held:
    """A slot whose marker only our producer can move, as long as it is not fenced."""

    members: Any
    """The metadata of the marker's consumer group, as a transaction needs it."""
    marker: Marker | None
    """How far the topic is. None: Kafka has no marker."""
    unsettled: bool = False
    """Whether Kafka reports the marker as part of an unfinished transaction, although there is none."""
    own: Any = field(default=None, repr=False)
    """The producer with the slot's own transactional id, until the slot is kept."""


class _Transactions:
    """The transactions into one topic, one after the other, by one producer that has not been fenced.

    Each slot has its own transactional id, and initializing a producer with that id fences all earlier ones. The producer
    of the first slot taken, the *leader*, also sends for the others. Another committer that takes one of those slots later
    must therefore fence the leader too, and must know which it is:

    1. Initialize a producer with the slot's id. From now on no other committer can do step 4 for it.
    2. Read which holder the slot's marker names. If it is another id, initialize a producer with that
       id too, which fences it as well.
    3. Read the marker, which no longer changes.
    4. If there are rows to send and the leader belongs to another slot: record the leader as holder, in a
       transaction of the slot's own id. It fails if another committer has done step 1 since; one that does so
       later finds the leader in step 2.
    """

    def __init__(self, servers: str, config: Mapping[str, str], topic: str, timeout_ms: int) -> None:
        self.topic = topic
        self.held: dict[SinkSlot, _Held] = {}
        self._servers = servers
        self._config = config
        self._timeout_ms = timeout_ms
        self._leader: SinkSlot | None = None
        self._producer: Any = None
        self._next: Mapping[SinkSlot, Marker] = {}

    def take(self, streams: Collection[SinkSlot]) -> None:
        """Do steps 1 to 3 for slots that are not held yet."""
        wanted = sorted((stream for stream in streams if stream not in self.held), key=lambda s: (s.lineage, s.slot))
        if wanted and self._leader is None:
            leader = wanted.pop(0)
            self.held[leader] = held = self._take(leader, see_topic=True)
            self._leader = leader
            self._producer = held.own
            held.own = None
        if len(wanted) == 1:
            self.held[wanted[0]] = self._take(wanted[0])
        elif wanted:
            with ThreadPoolExecutor(min(_AT_ONCE, len(wanted)), "tidegate-kafka") as pool:
                taking = {stream: pool.submit(self._take, stream) for stream in wanted}
            failures = [taken.exception() for taken in taking.values()]
            self.held |= {stream: taken.result() for stream, taken in taking.items() if taken.exception() is None}
            if failure := next((each for each in failures if each is not None), None):
                raise failure

    def keep(self, first: Mapping[SinkSlot, Marker]) -> None:
        """Do step 4 for these slots, with the marker of the first part each sends. The others have
        nothing to send and are released.
        """
        for stream in [each for each, held in self.held.items() if held.own is not None and each not in first]:
            del self.held[stream]
        naming = [(stream, first[stream]) for stream, held in self.held.items() if held.own is not None]
        if len(naming) == 1:
            self._name_leader(*naming[0])
        elif naming:
            with ThreadPoolExecutor(min(_AT_ONCE, len(naming)), "tidegate-kafka") as pool:
                list(pool.map(self._name_leader, *zip(*naming)))

    def _take(self, stream: SinkSlot, see_topic: bool = False) -> _Held:
        own_id = self._id(stream)
        with translated(f"begin transactions for topic {self.topic!r}"):
            own = self._begin_with(own_id, see_topic)
        with translated(f"return the offset of group {_group(stream)!r}"):
            _await_coordinator(self._administrator, _group(stream))
            holder = self._holder(stream, holder_in(self._offset(stream).metadata))
        if holder != own_id and (self._leader is None or holder != self._id(self._leader)):
            with translated(f"end transactions of {holder!r}"):
                self._begin_with(holder)
        reach("kafka.1-taken", topic=self.topic)
        with translated(f"return the offset of group {_group(stream)!r}"):
            # Not earlier: while an earlier transaction is open, the marker in it cannot be read.
            at = self._settled_offset(stream)
            consumer = library().Consumer(reader_settings(self._servers, self._config, _group(stream)))
            members = consumer.consumer_group_metadata()
            consumer.close()
        marker = read_marker(at.offset, at.metadata) if at is not None and at.offset >= 0 else None
        return _Held(members, marker, at is None, own)

    def _holder(self, stream: SinkSlot, named: str | None) -> str:
        """Return the transactional id that a marker names. Anyone may have written there: an id that is not ours is no holder."""
        ours = named is not None and named.startswith(_sink_prefix(stream)) and named.endswith(f"-{self.topic}")
        return named if ours and named is not None else self._id(stream)

    def _settled_offset(self, stream: SinkSlot) -> Any:
        """Return the slot's marker once no transaction holds it. None: a transaction still holds it after
        the timeout, and Kafka says so.
        """
        latest = time.monotonic() + _ANSWER_S
        while True:
            at = self._offset(stream, settled=True)
            if at.error is None:
                return at
            if at.error.code() != library().KafkaError.UNSTABLE_OFFSET_COMMIT:
                raise library().KafkaException(at.error)
            if time.monotonic() > latest:
                return None
            time.sleep(0.1)

    def _offset(self, stream: SinkSlot, settled: bool = False) -> Any:
        """Return the offset of the slot's group. Without `settled`, as it was before transactions that have not ended.

        Uses the admin API. A consumer waits internally for the end of a transaction, and its timeout does not show
        whether it waited for that or for the brokers.
        """
        kafka = library()
        group = _group(stream)
        wanted = kafka.ConsumerGroupTopicPartitions(group, [kafka.TopicPartition(self.topic, 0)])

        def ask() -> Any:
            asked = self._administrator.list_consumer_group_offsets(
                [wanted], require_stable=settled, request_timeout=_ANSWER_S
            )
            [at] = asked[group].result().topic_partitions
            return at

        return _while_coordinators_move(ask)

    @cached_property
    def _administrator(self) -> Any:
        return library("confluent_kafka.admin").AdminClient(connection(self._servers, self._config))

    def _name_leader(self, stream: SinkSlot, first: Marker) -> None:
        held = self.held[stream]
        # A missing marker is created so that it covers everything before the rows sent now, and none of them.
        at = Marker(first.offset - 1, first.term) if held.marker is None else held.marker
        with translated(f"add the offset of group {_group(stream)!r} to a transaction"):
            held.own.begin_transaction()
            _bounded(partial(self._send_marker, held.own, stream, at), _ANSWER_S)
            _bounded(partial(held.own.commit_transaction, _ANSWER_S), _ANSWER_S)
        held.own = None

    def _begin_with(self, transactional_id: str, see_topic: bool = False) -> Any:
        writing = {"transactional.id": transactional_id, "transaction.timeout.ms": self._timeout_ms}
        settings, rejections = {**sending_settings(self._servers, self._config), **writing}, Rejections()
        producer = library().Producer(settings | rejections.settings())
        if see_topic:
            # Fail early if the topic does not exist: the producer would wait for it until the transaction times out.
            place = f"at {self._servers}"
            with rejections.reported(producer, f"find topic {self.topic!r} {place}"):
                await_topic(producer, self.topic, place, _ANSWER_S)
        producer.init_transactions(_ANSWER_S)
        return producer

    def _id(self, stream: SinkSlot) -> str:
        # Must never change: under another name, open transactions would not be aborted. A slot that moved from one
        # topic to another has a producer for each, and they must not fence each other.
        return f"{_group(stream)}-{self.topic}"

    def begin(self) -> None:
        with translated("begin a transaction"):
            self._producer.begin_transaction()

    def send(self, packed: bytes) -> None:
        with translated(f"accept rows for topic {self.topic!r}"):
            send(self._producer, self.topic, packed, _ANSWER_S)

    def settle(self) -> None:
        """Wait until the brokers have all rows or have rejected them; in the latter case step 3 fails."""
        with translated(f"accept rows for topic {self.topic!r}"):
            settle(self._producer, _ANSWER_S)

    def mark(self, markers: Mapping[SinkSlot, Marker]) -> None:
        for stream, marker in markers.items():
            with translated(f"add the offset of group {_group(stream)!r} to the transaction"):
                _bounded(partial(self._send_marker, self._producer, stream, marker), _ANSWER_S)
        self._next = markers

    def _send_marker(self, producer: Any, stream: SinkSlot, marker: Marker) -> None:
        """Send the marker with the name of the leader, which holds the slot."""
        assert self._leader is not None
        named = metadata_of(self._id(self._leader), marker.term)
        at = library().TopicPartition(self.topic, 0, marker.offset, named)
        producer.send_offsets_to_transaction([at], self.held[stream].members, _ANSWER_S)

    def commit(self) -> None:
        with translated(f"commit rows to topic {self.topic!r}"):
            _bounded(partial(self._producer.commit_transaction, _ANSWER_S), _ANSWER_S)
        for stream, marker in self._next.items():
            self.held[stream].marker, self.held[stream].unsettled = marker, False

    def forget(self) -> None:
        """Drop the producer. An open transaction is aborted now if Kafka responds, otherwise by the next `init_transactions`."""
        producers = [self._producer, *(held.own for held in self.held.values())]
        self._producer = None
        self._leader = None
        self.held = {}
        for producer in producers:
            if producer is not None:
                with suppress(library().KafkaException, KafkaUnavailable):
                    producer.purge()
                    _bounded(partial(producer.abort_transaction, _FAREWELL_S), _FAREWELL_S)


def _bounded(call: Callable[[], None], limit_s: float) -> None:
    """Make a call and give up on it after `limit_s`.

    When a broker dies, adding offsets to a transaction blocks indefinitely, whatever its timeout (librdkafka issue
    5511). Such a call is abandoned together with its producer: that transaction is never committed, and the first step
    of the next producer aborts it.
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
            f"Kafka did not respond within {limit_s:g} s. The commit will be retried; check that the brokers are "
            "reachable."
        ) from None


def _stream(request: Committable) -> SinkSlot:
    return SinkSlot(request.lineage, request.sink, request.slot)


def _group(stream: SinkSlot) -> str:
    """Return the group whose offset is the marker. Must never change: under another name, markers would not be found."""
    return f"tidegate-{stream}"


def _sink_prefix(stream: SinkSlot) -> str:
    """Return the prefix of all groups and transactional ids of the sink."""
    return f"tidegate-{stream.lineage}-{stream.sink}-"


def _owed(request: Committable, staged: KafkaCommittable) -> Iterator[Owed]:
    for index, part in enumerate(staged.parts):
        marker = Marker(encode(request.epoch, index), request.epoch.term)
        yield Owed(
            topic=staged.topic,
            stream=_stream(request),
            epoch=request.epoch,
            marker=marker,
            part=part,
            at_ms=staged.at_ms,
        )


def _first_markers(owed: Sequence[Owed]) -> dict[SinkSlot, Marker]:
    return _last_markers(sorted(owed, key=lambda each: each.marker.offset, reverse=True))


def _last_markers(owed: Sequence[Owed]) -> dict[SinkSlot, Marker]:
    """Return the last marker of each slot, from parts in order."""
    return {each.stream: each.marker for each in owed}


def _by_topic(owed: Sequence[Owed]) -> Iterator[tuple[str, list[Owed]]]:
    """Yield runs of parts for the same topic: a sink's topic changes only at a restart."""
    run: list[Owed] = []
    for each in owed:
        if run and run[-1].topic != each.topic:
            yield run[-1].topic, run
            run = []
        run.append(each)
    if run:
        yield run[-1].topic, run


def _transactions_of(owed: Sequence[Owed], most_bytes: int) -> Iterator[list[Owed]]:
    """Yield the parts of each transaction. A different split on a repeat is harmless: a part is committed whole or not at all."""
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


def _while_coordinators_move(ask: Callable[[], Any]) -> Any:
    """Return what a request returns, and repeat it while its coordinator is not known. The admin client does not wait for it."""
    kafka = library()
    codes = kafka.KafkaError
    moving = {codes.NOT_COORDINATOR, codes.COORDINATOR_LOAD_IN_PROGRESS, codes.COORDINATOR_NOT_AVAILABLE}
    latest = time.monotonic() + _ANSWER_S
    while True:
        try:
            return ask()
        except kafka.KafkaException as error:
            if error.args[0].code() not in moving or time.monotonic() > latest:
                raise
            time.sleep(0.1)


def _await_coordinator(administrator: Any, group: str) -> None:
    """Wait until the coordinator of a group answers: it may be moving, or the first group of a broker is just created.

    librdkafka (2.x) ends the whole process with a segmentation fault if a coordinator refuses to list offsets to an admin
    client. So it is first asked for a description, which it may refuse.
    """
    _while_coordinators_move(
        lambda: administrator.describe_consumer_groups([group], request_timeout=_ANSWER_S)[group].result()
    )


def _markers_of(administrator: Any, group: str) -> Iterator[EpochId]:
    """Yield the markers in a group: one for each topic that the sink has written to."""
    _await_coordinator(administrator, group)
    wanted = library().ConsumerGroupTopicPartitions(group)
    offsets = _while_coordinators_move(
        lambda: administrator.list_consumer_group_offsets([wanted], request_timeout=_ANSWER_S)[group].result()
    )
    for at in offsets.topic_partitions:
        if at.offset >= 0:
            yield read_marker(at.offset, at.metadata).epoch


def open_transactions(
    servers: str, config: Mapping[str, str], topics: Collection[str], lineage: Lineage, sink: Uid
) -> dict[str, str]:
    """Return the transactional ids of a lineage whose transactions hold a marker open, and the group of each marker.

    Kafka's clients cannot list transactions. One that has sent rows and no marker is not found: its broker ends it after the
    sink's `transaction_timeout`.
    """
    kafka = library()
    prefix = _sink_prefix(SinkSlot(lineage, sink, Slot(0)))
    administrator = library("confluent_kafka.admin").AdminClient(connection(servers, config))
    found: dict[str, str] = {}
    with translated(f"list the open transactions of sink {sink!r}"):
        listed = administrator.list_consumer_groups(request_timeout=_ANSWER_S).result().valid
        for group in sorted(each.group_id for each in listed if each.group_id.removeprefix(prefix).isdecimal()):
            _await_coordinator(administrator, group)
            for topic in topics:
                at = partial(_offset_of, administrator, group, kafka.TopicPartition(topic, 0))
                settled = at(settled=True)
                if settled.error is None or settled.error.code() != kafka.KafkaError.UNSTABLE_OFFSET_COMMIT:
                    continue
                # The slot's own transaction names its leader; after that the leader's transactions hold the marker.
                found[f"{group}-{topic}"] = group
                holder = holder_in(at(settled=False).metadata)
                if holder is not None and holder.startswith(prefix) and holder.endswith(f"-{topic}"):
                    found[holder] = group
    return found


def end_transactions(servers: str, config: Mapping[str, str], transactional_ids: Sequence[str]) -> None:
    """Abort what these ids have open, and fence whoever still uses them."""
    for transactional_id in transactional_ids:
        with translated(f"end transactions of {transactional_id!r}"):
            settings = {**sending_settings(servers, config), "transactional.id": transactional_id}
            library().Producer(settings).init_transactions(_ANSWER_S)
        reach("kafka.end-aborted", id=transactional_id)


def _offset_of(administrator: Any, group: str, place: Any, settled: bool) -> Any:
    """Return the offset of a group at a partition. Without `settled`, as it was before transactions that have not ended."""
    wanted = library().ConsumerGroupTopicPartitions(group, [place])
    [at] = _while_coordinators_move(
        lambda: administrator.list_consumer_group_offsets([wanted], require_stable=settled, request_timeout=_ANSWER_S)[
            group
        ].result()
    ).topic_partitions
    return at
