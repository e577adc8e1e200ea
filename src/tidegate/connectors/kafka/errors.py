"""Errors between tidegate and a Kafka cluster."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.connectors.outcome import CommitInDoubt
from tidegate.core.errors import ConnectorError, PreconditionFailed
from tidegate.core.ids import EpochId, Slot, Uid


class KafkaError(ConnectorError):
    """Kafka did not do what was asked. `name` is Kafka's own word for the reason."""

    code = "KAFKA"
    name: str = ""

    def __init__(self, message: str, name: str = "") -> None:
        self.name = name
        super().__init__(message)


class KafkaUnavailable(KafkaError):
    """The brokers did not respond, or not in time. A retry may succeed."""

    code = "KAFKA_UNAVAILABLE"
    retryable = True


class KafkaFenced(KafkaError):
    """Another committer of the same job took over the transaction. It may be a stale one that resumed briefly."""

    code = "KAFKA_FENCED"
    retryable = True


class KafkaRefused(KafkaError):
    """The brokers rejected the request, and will again until something changes."""

    code = "KAFKA_REFUSED"


class MarkerExpired(CommitInDoubt, KafkaError):
    """It can no longer be determined whether some rows were committed: the broker has deleted the marker."""

    code = "KAFKA_MARKER_EXPIRED"

    def __init__(self, sink: Uid, slot: Slot, epoch: EpochId, group: str) -> None:
        self.sink = sink
        self.slot = slot
        self.epoch = epoch
        self.group = group
        super().__init__(
            f"Rows of sink {sink!r} (slot {slot}, epoch {epoch}) have been waiting for their commit for longer than "
            f"the broker keeps idle group offsets (offsets.retention.minutes), and the group {group!r}, which would "
            "show whether they were committed, no longer exists. Check whether they are in the topic, then start the "
            "job with KafkaSink(…, expired_marker='publish') if they are not, or expired_marker='skip' if they are. "
            "Raise offsets.retention.minutes above the longest pause of a job."
        )


class MarkerUnsettled(KafkaError):
    """Kafka responds, but cannot report how far the output is: it waits for the end of a transaction that has ended."""

    code = "KAFKA_MARKER_UNSETTLED"
    retryable = True

    def __init__(self, sink: Uid, slot: Slot, epoch: EpochId, group: str) -> None:
        self.sink = sink
        self.slot = slot
        self.epoch = epoch
        self.group = group
        super().__init__(
            f"It is unknown whether rows of sink {sink!r} (slot {slot}, epoch {epoch}) are committed: Kafka reports "
            f"the offset of group {group!r} as part of an unfinished transaction. The check will be retried; usually "
            "the transaction ends by itself. A broker that was killed while completing a transaction may never "
            "finish it. In that case, check whether the rows are in the topic, and start the job once with "
            "KafkaSink(…, expired_marker='publish') if they are not, or 'skip' if they are."
        )


class ClientMissing(PreconditionFailed):
    code = "KAFKA_CLIENT_MISSING"

    def __init__(self) -> None:
        super().__init__(
            "Kafka sources and sinks need confluent-kafka, which is not installed: pip install 'tidegate[kafka]'."
        )


class RegistryClientMissing(PreconditionFailed):
    code = "SCHEMA_REGISTRY_CLIENT_MISSING"

    def __init__(self) -> None:
        super().__init__(
            "Formats with a schema registry need parts of confluent-kafka that are not installed: pip install "
            "'tidegate[schema-registry]'."
        )


class RegistryUnavailable(KafkaError):
    """The schema registry did not respond, or not in time. A retry may succeed."""

    code = "SCHEMA_REGISTRY_UNAVAILABLE"
    retryable = True


class RegistryRefused(KafkaError):
    """The schema registry rejected the request, and will again until something changes."""

    code = "SCHEMA_REGISTRY_REFUSED"


class RecordUnreadable(PreconditionFailed):
    """A record cannot be decoded with the format of the source."""

    code = "KAFKA_RECORD_UNREADABLE"


class RowUnwritable(PreconditionFailed):
    """A row cannot be encoded with the format of the sink."""

    code = "KAFKA_ROW_UNWRITABLE"


class RowsGone(PreconditionFailed):
    """The position to resume from is no longer in the topic: the rows in between would be skipped silently."""

    code = "KAFKA_ROWS_GONE"
    gaps: tuple[str, ...] = ()

    def __init__(self, gaps: Sequence[str]) -> None:
        self.gaps = tuple(gaps)
        super().__init__(
            f"The job must resume from positions that Kafka no longer has: {'; '.join(self.gaps)}. To continue with "
            "the remaining rows and accept the loss, start it with kafka_source(…, fail_on_data_loss=False). To lose "
            "none, start from a newer checkpoint, or restore the rows. Keep the topic's retention longer than the "
            "longest pause of the job."
        )
