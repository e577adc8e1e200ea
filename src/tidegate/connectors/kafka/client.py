"""Kafka's client library: found when it is first needed, its settings put together, its errors translated once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.connectors.kafka.errors import ClientMissing, KafkaError, KafkaFenced, KafkaRefused, KafkaUnavailable

if TYPE_CHECKING:
    import confluent_kafka

_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_PRODUCER_ID"}
_ADVICE = {
    "UNKNOWN_TOPIC_OR_PART": "Create the topic first, or correct its name; rows with a `partition` need one that exists.",
    "_UNKNOWN_TOPIC": "Create the topic first, or correct its name.",
    "_UNKNOWN_PARTITION": "Rows name a `partition` that the topic does not have.",
    "TOPIC_EXCEPTION": "Correct the name of the topic.",
    "MSG_SIZE_TOO_LARGE": (
        "A row is larger than allowed: raise `message.max.bytes` in the sink's config and `max.message.bytes` of the topic."
    ),
    "INVALID_TRANSACTION_TIMEOUT": (
        "The broker allows shorter transactions only (transaction.max.timeout.ms, 15 minutes by default): "
        "lower the sink's transaction_timeout, or raise the broker's limit."
    ),
    "TOPIC_AUTHORIZATION_FAILED": "Allow the user READ, WRITE and DESCRIBE on the topic.",
    "GROUP_AUTHORIZATION_FAILED": "Allow the user READ on groups that begin with `tidegate-`.",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "Allow the user WRITE and DESCRIBE on transactional ids that begin with `tidegate-`."
    ),
    "CLUSTER_AUTHORIZATION_FAILED": "Allow the user IDEMPOTENT_WRITE on the cluster.",
    "SASL_AUTHENTICATION_FAILED": "Correct user and password in the config.",
    "_AUTHENTICATION": "Correct user and password in the config.",
    "_SSL": "Correct the ssl.* settings in the config.",
    "_INVALID_ARG": "Correct the config: the client does not know a setting, or not its value.",
}
"""What to do about the reasons for which brokers and client say no. For all others a retry may help."""

_SHARED = (
    "security.",
    "sasl.",
    "ssl.",
    "socket.",
    "broker.",
    "client.",
    "metadata.",
    "reconnect.",
    "enable.sasl",
    "debug",
)
"""Settings that speak of the connection, so every client of a cluster has them."""


def library(module: str = "confluent_kafka") -> Any:
    """The client library, or one of its modules."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ClientMissing from error


def connection(bootstrap_servers: str, config: Mapping[str, str]) -> dict[str, Any]:
    """The part of the settings that any client of the cluster takes."""
    shared = {key: value for key, value in config.items() if key.startswith(_SHARED)}
    return {"bootstrap.servers": bootstrap_servers, **shared}


def reader_settings(bootstrap_servers: str, config: Mapping[str, str], group: str) -> dict[str, Any]:
    """Settings of a consumer that is told what to read and leaves no trace in its group."""
    return {
        **connection(bootstrap_servers, config),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn the client's errors into ours. `doing` completes the sentence "Kafka did not …"."""
    try:
        yield
    except library().KafkaException as error:
        raise translate(error.args[0], doing) from error


def translate(error: confluent_kafka.KafkaError, doing: str) -> KafkaError:
    name = error.name()
    said = f"Kafka did not {doing}: {error.str()} ({name})."
    if name in _ADVICE:
        return KafkaRefused(f"{said} {_ADVICE[name]}", name)
    if name in _FENCED:
        return KafkaFenced(
            f"{said} Another driver commits output of the same job; if that is no mistake, stop this one.", name
        )
    return KafkaUnavailable(f"{said} What was to be done is tried again; see that the brokers can be reached.", name)
