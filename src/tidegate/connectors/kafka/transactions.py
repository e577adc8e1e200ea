"""The transactions of a Kafka sink, and the markers that they move.

A marker is the offset of a consumer group (`marker`). A transaction carries it next to the rows, so the two become visible
together. `Transactions` holds the producer that sends both; the functions below it read the markers through the admin API.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Thread
from typing import Any

from tidegate.connectors.kafka.client import (
    Rejections,
    await_topic,
    connection,
    library,
    reader_settings,
    translated,
)
from tidegate.connectors.kafka.errors import KafkaUnavailable
from tidegate.connectors.kafka.marker import Expired, Marker, SinkSlot, holder_in, metadata_of, read_marker
from tidegate.connectors.kafka.plain_committer import await_deliveries, send, sending_settings
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Lineage, Slot, Uid

_ANSWER_S = 30.0
"""Timeout of a call that does not wait for rows."""
_FAREWELL_S = 5.0
"""Timeout of the abort of a transaction that is given up: the next producer of the slot aborts it otherwise."""
_AT_ONCE = 8
"""Slots that are taken at the same time: each costs several round trips."""
_DEFAULT_RETENTION_MS = 7 * 24 * 3_600_000
"""Kafka's default for `offsets.retention.minutes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """How a sink commits in transactions."""

    bootstrap_servers: str
    config: Mapping[str, str] = field(repr=False)
    topic: str
    """The topic of the sink. Output that waits since before a change of it may be for another one."""
    timeout_ms: int
    most_bytes: int
    """The size of the rows of one transaction."""
    expired: Expired


@dataclass(slots=True)
class TakenSlot:
    """A slot whose marker only our producer can move, as long as it is not fenced."""

    members: Any
    """The metadata of the marker's consumer group, as a transaction needs it."""
    marker: Marker | None
    """How far the topic is. None: Kafka has no marker."""
    is_unstable: bool = False
    """Whether Kafka reports the marker as part of an unfinished transaction, although there is none."""
    own: Any = field(default=None, repr=False)
    """The producer with the slot's own transactional id, until the slot is kept."""


class Transactions:
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

    def __init__(self, settings: TransactionSettings, topic: str) -> None:
        self.topic = topic
        self.taken: dict[SinkSlot, TakenSlot] = {}
        self._settings = settings
        self._leader: SinkSlot | None = None
        self._producer: Any = None
        self._next: Mapping[SinkSlot, Marker] = {}

    def take(self, streams: Collection[SinkSlot]) -> None:
        """Do steps 1 to 3 for slots that are not taken yet."""
        # In a fixed order: two committers that take the same slots meet at the same leader, and one fences the other there
        # instead of each fencing the other at a different slot.
        missing = sorted((stream for stream in streams if stream not in self.taken), key=lambda s: (s.lineage, s.slot))
        if missing and self._leader is None:
            leader = missing.pop(0)
            slot = self._take(leader, see_topic=True)
            self.taken[leader] = slot
            self._leader = leader
            self._producer = slot.own
            # The leader's transactional id is that of its own slot, so step 4 has nothing to record for it.
            slot.own = None
        if len(missing) == 1:
            self.taken[missing[0]] = self._take(missing[0])
        elif missing:
            with ThreadPoolExecutor(min(_AT_ONCE, len(missing)), "tidegate-kafka") as pool:
                calls = {stream: pool.submit(self._take, stream) for stream in missing}
            failures = [call.exception() for call in calls.values()]
            # Those that succeeded are remembered, so that `forget` drops their producers.
            self.taken |= {stream: call.result() for stream, call in calls.items() if call.exception() is None}
            if failure := next((each for each in failures if each is not None), None):
                raise failure

    def keep(self, first: Mapping[SinkSlot, Marker]) -> None:
        """Do step 4 for these slots, with the marker of the first part each sends. The others have
        nothing to send and are given up.
        """
        for stream in [each for each, slot in self.taken.items() if slot.own is not None and each not in first]:
            del self.taken[stream]
        naming = [(stream, first[stream]) for stream, slot in self.taken.items() if slot.own is not None]
        if len(naming) == 1:
            self._name_leader(*naming[0])
        elif naming:
            with ThreadPoolExecutor(min(_AT_ONCE, len(naming)), "tidegate-kafka") as pool:
                list(pool.map(self._name_leader, *zip(*naming)))

    def _take(self, stream: SinkSlot, see_topic: bool = False) -> TakenSlot:
        # Step 1.
        own_id = self._id(stream)
        with translated(f"begin transactions for topic {self.topic!r}"):
            own = self._begin_with(own_id, see_topic)
        # Step 2.
        with translated(f"return the offset of group {group_of(stream)!r}"):
            _await_coordinator(self._administrator, group_of(stream))
            # Without `stable`: the holder of a transaction that is open now must be found as well.
            holder = self._holder(stream, holder_in(self._offset(stream).metadata))
        # The leader is ours: to fence it would end our own transactions.
        if holder != own_id and (self._leader is None or holder != self._id(self._leader)):
            with translated(f"end transactions of {holder!r}"):
                self._begin_with(holder)
        reach("kafka.1-taken", topic=self.topic)
        # Step 3. Not earlier: while an earlier transaction is open, the marker in it cannot be read.
        with translated(f"return the offset of group {group_of(stream)!r}"):
            at = self._stable_offset(stream)
            # The client takes the metadata of a group only from a consumer. This one never joins: its metadata name no
            # member, and brokers accept that for a group without members.
            settings = reader_settings(self._settings.bootstrap_servers, self._settings.config, group_of(stream))
            consumer = library().Consumer(settings)
            members = consumer.consumer_group_metadata()
            consumer.close()
        marker = read_marker(at.offset, at.metadata) if at is not None and at.offset >= 0 else None
        return TakenSlot(members, marker, at is None, own)

    def _holder(self, stream: SinkSlot, named: str | None) -> str:
        """Return the transactional id that a marker names. Anyone may have written there: an id that is not ours is no holder."""
        if named is not None and named.startswith(_sink_prefix(stream)) and named.endswith(f"-{self.topic}"):
            return named
        return self._id(stream)

    def _stable_offset(self, stream: SinkSlot) -> Any:
        """Return the slot's marker once no transaction holds it. None: a transaction still holds it after
        the timeout, and Kafka says so.
        """
        latest = time.monotonic() + _ANSWER_S
        while True:
            at = self._offset(stream, stable=True)
            if at.error is None:
                return at
            if at.error.code() != library().KafkaError.UNSTABLE_OFFSET_COMMIT:
                raise library().KafkaException(at.error)
            if time.monotonic() > latest:
                return None
            time.sleep(0.1)

    def _offset(self, stream: SinkSlot, stable: bool = False) -> Any:
        """Return the offset of the slot's group. Without `stable`, as it was before transactions that have not ended.

        Uses the admin API. A consumer waits internally for the end of a transaction, and its timeout does not show
        whether it waited for that or for the brokers.
        """
        place = library().TopicPartition(self.topic, 0)
        return _offset_of(self._administrator, group_of(stream), place, stable)

    @cached_property
    def _administrator(self) -> Any:
        return administrator_of(self._settings.bootstrap_servers, self._settings.config)

    def _name_leader(self, stream: SinkSlot, first: Marker) -> None:
        slot = self.taken[stream]
        # A missing marker is created so that it covers everything before the rows sent now, and none of them.
        at = Marker(first.offset - 1, first.term) if slot.marker is None else slot.marker
        with translated(f"add the offset of group {group_of(stream)!r} to a transaction"):
            slot.own.begin_transaction()
            _bounded(partial(self._send_marker, slot.own, stream, at), _ANSWER_S)
            _bounded(partial(slot.own.commit_transaction, _ANSWER_S), _ANSWER_S)
        # From here the leader sends for the slot; a producer for each would mean a transaction for each.
        slot.own = None

    def _begin_with(self, transactional_id: str, see_topic: bool = False) -> Any:
        servers = self._settings.bootstrap_servers
        writing = {"transactional.id": transactional_id, "transaction.timeout.ms": self._settings.timeout_ms}
        settings = {**sending_settings(servers, self._settings.config), **writing}
        rejections = Rejections()
        producer = library().Producer(settings | rejections.settings())
        if see_topic:
            # Fail early if the topic does not exist: the producer would wait for it until the transaction times out.
            place = f"at {servers}"
            with rejections.reported(producer, f"find topic {self.topic!r} {place}"):
                await_topic(producer, self.topic, place, _ANSWER_S)
        producer.init_transactions(_ANSWER_S)
        return producer

    def _id(self, stream: SinkSlot) -> str:
        # Must never change: under another name, open transactions would not be aborted. A slot that moved from one
        # topic to another has a producer for each, and they must not fence each other.
        return f"{group_of(stream)}-{self.topic}"

    def begin(self) -> None:
        with translated("begin a transaction"):
            self._producer.begin_transaction()

    def send(self, packed: bytes) -> None:
        with translated(f"accept rows for topic {self.topic!r}"):
            send(self._producer, self.topic, packed, _ANSWER_S)

    def await_deliveries(self) -> None:
        """Wait until the brokers have all rows or have rejected them; in the latter case `mark` fails."""
        with translated(f"accept rows for topic {self.topic!r}"):
            await_deliveries(self._producer, _ANSWER_S)

    def mark(self, markers: Mapping[SinkSlot, Marker]) -> None:
        for stream, marker in markers.items():
            with translated(f"add the offset of group {group_of(stream)!r} to the transaction"):
                _bounded(partial(self._send_marker, self._producer, stream, marker), _ANSWER_S)
        self._next = markers

    def _send_marker(self, producer: Any, stream: SinkSlot, marker: Marker) -> None:
        """Send the marker with the name of the leader, which holds the slot."""
        assert self._leader is not None
        named = metadata_of(self._id(self._leader), marker.term)
        at = library().TopicPartition(self.topic, 0, marker.offset, named)
        producer.send_offsets_to_transaction([at], self.taken[stream].members, _ANSWER_S)

    def commit(self) -> None:
        with translated(f"commit rows to topic {self.topic!r}"):
            _bounded(partial(self._producer.commit_transaction, _ANSWER_S), _ANSWER_S)
        for stream, marker in self._next.items():
            slot = self.taken[stream]
            slot.marker = marker
            slot.is_unstable = False

    def forget(self) -> None:
        """Drop the producer. An open transaction is aborted now if Kafka responds, otherwise by the next `init_transactions`."""
        producers = [self._producer, *(slot.own for slot in self.taken.values())]
        self._producer = None
        self._leader = None
        self.taken = {}
        for producer in producers:
            if producer is not None:
                with suppress(library().KafkaException, KafkaUnavailable):
                    # Rows in its queue would be sent after those of the next producer.
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

    # Daemon: a call that never returns must not keep the process from ending.
    Thread(target=make, name="tidegate-kafka-call", daemon=True).start()
    try:
        # A little longer than the call's own timeout, whose error says more.
        done.result(limit_s + 2)
    except TimeoutError:
        raise KafkaUnavailable(
            f"Kafka did not respond within {limit_s:g} s. The commit will be retried; check that the brokers are "
            "reachable."
        ) from None


def group_of(stream: SinkSlot) -> str:
    """Return the group whose offset is the marker. Must never change: under another name, markers would not be found."""
    return f"tidegate-{stream}"


def _sink_prefix(stream: SinkSlot) -> str:
    """Return the prefix of all groups and transactional ids of the sink."""
    return f"tidegate-{stream.lineage}-{stream.sink}-"


def administrator_of(servers: str, config: Mapping[str, str]) -> Any:
    return library("confluent_kafka.admin").AdminClient(connection(servers, config))


def groups_of(administrator: Any, lineage: Lineage, sink: Uid) -> list[str]:
    """Return the groups of all slots that the sink has ever had, at any parallelism."""
    prefix = _sink_prefix(SinkSlot(lineage, sink, Slot(0)))
    listed = administrator.list_consumer_groups(request_timeout=_ANSWER_S).result().valid
    # Another sink's name may begin with this one's: only slots follow the prefix.
    return [each.group_id for each in listed if each.group_id.removeprefix(prefix).isdecimal()]


def markers_in(administrator: Any, group: str) -> Iterator[EpochId]:
    """Yield the markers in a group: one for each topic that the sink has written to."""
    _await_coordinator(administrator, group)
    query = library().ConsumerGroupTopicPartitions(group)
    offsets = _while_coordinators_move(
        lambda: administrator.list_consumer_group_offsets([query], request_timeout=_ANSWER_S)[group].result()
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
    administrator = administrator_of(servers, config)
    groups: dict[str, str] = {}
    with translated(f"list the open transactions of sink {sink!r}"):
        for group in sorted(groups_of(administrator, lineage, sink)):
            _await_coordinator(administrator, group)
            for topic in topics:
                offset = partial(_offset_of, administrator, group, kafka.TopicPartition(topic, 0))
                at = offset(stable=True)
                if at.error is None or at.error.code() != kafka.KafkaError.UNSTABLE_OFFSET_COMMIT:
                    continue
                # The slot's own transaction names its leader; after that the leader's transactions hold the marker.
                groups[f"{group}-{topic}"] = group
                holder = holder_in(offset(stable=False).metadata)
                if holder is not None and holder.startswith(prefix) and holder.endswith(f"-{topic}"):
                    groups[holder] = group
    return groups


def end_transactions(servers: str, config: Mapping[str, str], transactional_ids: Collection[str]) -> None:
    """Abort what these ids have open, and fence any producer that still uses them."""
    for transactional_id in transactional_ids:
        with translated(f"end transactions of {transactional_id!r}"):
            settings = {**sending_settings(servers, config), "transactional.id": transactional_id}
            library().Producer(settings).init_transactions(_ANSWER_S)
        reach("kafka.end-aborted", id=transactional_id)


def offsets_retention_ms(servers: str, config: Mapping[str, str]) -> int:
    """Return how long the brokers keep offsets of idle groups, or Kafka's default if we are not authorized to ask."""
    administration = library("confluent_kafka.admin")
    client, resource = administrator_of(servers, config), administration.ConfigResource
    try:
        broker = next(iter(client.list_topics(timeout=_ANSWER_S).brokers))
        [answer] = client.describe_configs([resource(resource.Type.BROKER, str(broker))]).values()
        return int(answer.result(_ANSWER_S)["offsets.retention.minutes"].value) * 60_000
    except (library().KafkaException, KeyError, TypeError, ValueError):
        return _DEFAULT_RETENTION_MS


def _offset_of(administrator: Any, group: str, place: Any, stable: bool) -> Any:
    """Return the offset of a group at a partition. Without `stable`, as it was before transactions that have not ended."""
    query = library().ConsumerGroupTopicPartitions(group, [place])

    def ask() -> Any:
        answers = administrator.list_consumer_group_offsets([query], require_stable=stable, request_timeout=_ANSWER_S)
        [at] = answers[group].result().topic_partitions
        return at

    return _while_coordinators_move(ask)


def _await_coordinator(administrator: Any, group: str) -> None:
    """Wait until the coordinator of a group answers: it may be moving, or the first group of a broker is just created.

    librdkafka (2.x) ends the whole process with a segmentation fault if a coordinator refuses to list offsets to an admin
    client. So it is first asked for a description, which it may refuse.
    """
    _while_coordinators_move(
        lambda: administrator.describe_consumer_groups([group], request_timeout=_ANSWER_S)[group].result()
    )


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
