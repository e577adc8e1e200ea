"""What can go wrong between tidegate and a Kafka cluster."""

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
    """The brokers did not answer, or not in time. The same may succeed later."""

    code = "KAFKA_UNAVAILABLE"
    retryable = True


class KafkaFenced(KafkaError):
    """Another committer of the same job took over the transaction. It may be one that only woke up for a moment."""

    code = "KAFKA_FENCED"
    retryable = True


class KafkaRefused(KafkaError):
    """The brokers answered no, and will again until something is changed."""

    code = "KAFKA_REFUSED"


class MarkerExpired(CommitInDoubt, KafkaError):
    """Whether some rows were committed cannot be known any more: the broker has forgotten the marker."""

    code = "KAFKA_MARKER_EXPIRED"

    def __init__(self, sink: Uid, slot: Slot, epoch: EpochId, group: str) -> None:
        self.sink, self.slot, self.epoch, self.group = sink, slot, epoch, group
        super().__init__(
            f"Rows of sink {sink!r} (slot {slot}, epoch {epoch}) wait to be committed for longer than the broker keeps idle "
            f"group offsets (offsets.retention.minutes), and the group {group!r}, which would tell whether they were, is gone. "
            "Look whether they are in the topic, then start the job with KafkaSink(…, expired_marker='publish') if they are "
            "not, or expired_marker='skip' if they are. Raise offsets.retention.minutes above the longest pause of a job."
        )


class MarkerUnsettled(KafkaError):
    """Kafka answers, and does not say how far the output is: it waits for the end of a transaction that has ended."""

    code = "KAFKA_MARKER_UNSETTLED"
    retryable = True

    def __init__(self, sink: Uid, slot: Slot, epoch: EpochId, group: str) -> None:
        self.sink, self.slot, self.epoch, self.group = sink, slot, epoch, group
        super().__init__(
            f"Whether rows of sink {sink!r} (slot {slot}, epoch {epoch}) are committed cannot be known: Kafka holds the offset "
            f"of group {group!r} to be part of an unfinished transaction. It is asked again; usually that ends by itself. "
            "A broker that was killed while it completed a transaction may forget to, for good. Then look whether the rows "
            "are in the topic, and start the job once with KafkaSink(…, expired_marker='publish') if they are not, or "
            "'skip' if they are."
        )


class ClientMissing(PreconditionFailed):
    code = "KAFKA_CLIENT_MISSING"

    def __init__(self) -> None:
        super().__init__("Kafka is spoken with confluent-kafka, which is not installed: pip install 'tidegate[kafka]'.")


class RowsGone(PreconditionFailed):
    """A position to go on from is no longer in the topic: rows between would be left out in silence."""

    code = "KAFKA_ROWS_GONE"
    gaps: tuple[str, ...] = ()

    def __init__(self, gaps: Sequence[str]) -> None:
        self.gaps = tuple(gaps)
        super().__init__(
            f"The job must go on from positions that Kafka no longer has: {'; '.join(self.gaps)}. To go on with what is left, "
            "and know that rows are missing, start it with kafka_source(…, fail_on_data_loss=False). To lose none, start from "
            "a newer checkpoint, or bring the rows back. Keep the topic's retention longer than the longest pause of the job."
        )
