"""Which answers of brokers and of the client are final, and which are not."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tidegate.connectors.kafka import reader
from tidegate.connectors.kafka.client import translate
from tidegate.connectors.kafka.errors import KafkaRefused, KafkaUnavailable
from tidegate.connectors.kafka.reader import Cluster, Watch


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Failed to acquire SASL OAUTHBEARER token: HTTP 503", KafkaUnavailable),
        (
            "Failed to initialize SASL authentication: OAUTHBEARER cannot log in because there is no token available",
            KafkaUnavailable,
        ),
        ("SASL authentication error: Authentication failed: invalid credentials", KafkaRefused),
    ],
)
def test_a_token_that_could_not_be_fetched_is_not_a_refusal(text: str, kind: type[Exception]) -> None:
    assert type(translate(KafkaError(KafkaError._AUTHENTICATION, text), "return the latest offsets")) is kind


class Admin:
    """Answers with errors first, and with offset 7 from then on."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    def list_offsets(self, places: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Any]:
        answer: Future[Any] = Future()
        if self.errors:
            answer.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(places, answer)


def watch(*errors: int) -> Watch:
    found = Watch(Cluster("host:9092"))
    found._client = Admin(*errors)
    return found


def test_a_partition_that_is_unknown_for_a_moment_has_offsets() -> None:
    unknown = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
    assert watch(*unknown).latest([("t", 0)]) == {("t", 0): 7}


def test_a_partition_that_stays_unknown_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "TOPIC_S", 0.2)
    with pytest.raises(KafkaRefused, match="Create the topic first"):
        watch(*[KafkaError.UNKNOWN_TOPIC_OR_PART] * 100).earliest([("t", 0)])


def test_any_other_answer_is_reported_at_once() -> None:
    with pytest.raises(KafkaRefused, match="Allow the user READ"):
        watch(KafkaError.TOPIC_AUTHORIZATION_FAILED).latest([("t", 0)])
