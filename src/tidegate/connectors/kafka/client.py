"""Kafka's client library: imports it on first use, builds its settings, and translates its errors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidegate.connectors.host_names import none_exists
from tidegate.connectors.kafka.errors import ClientMissing, KafkaError, KafkaFenced, KafkaRefused, KafkaUnavailable

if TYPE_CHECKING:
    import confluent_kafka

_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_PRODUCER_ID"}
_ADVICE = {
    "UNKNOWN_TOPIC_OR_PART": "Create the topic first, or correct its name; rows with a `partition` need an existing partition.",
    "_UNKNOWN_TOPIC": "Create the topic first, or correct its name.",
    "_UNKNOWN_PARTITION": "Rows name a `partition` that the topic does not have.",
    "TOPIC_EXCEPTION": "Correct the name of the topic.",
    "MSG_SIZE_TOO_LARGE": (
        "A row is larger than allowed: raise `message.max.bytes` in the sink's config and `max.message.bytes` of the topic."
    ),
    "INVALID_TRANSACTION_TIMEOUT": (
        "The broker only allows shorter transactions (transaction.max.timeout.ms, 15 minutes by default): lower "
        "the sink's transaction_timeout, or raise the broker's limit."
    ),
    "TOPIC_AUTHORIZATION_FAILED": "Allow the user READ, WRITE and DESCRIBE on the topic.",
    "GROUP_AUTHORIZATION_FAILED": "Allow the user READ on groups that begin with `tidegate-`.",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "Allow the user WRITE and DESCRIBE on transactional ids that begin with `tidegate-`."
    ),
    "CLUSTER_AUTHORIZATION_FAILED": "Allow the user IDEMPOTENT_WRITE on the cluster.",
    "SASL_AUTHENTICATION_FAILED": "Correct the user and password in the config.",
    "_AUTHENTICATION": "Correct the user and password in the config.",
    "_SSL": "Correct security.protocol and the ssl.* settings in the config.",
    "_INVALID_ARG": "Correct the config: the client does not support a setting or its value.",
}
"""What to do when brokers or the client refuse, by reason. For any other reason, a retry may help."""

TOPIC_S = 5.0
"""How long a topic or a partition may be unknown: a broker that has just started responds before it knows its topics."""
CHECK_S = 5.0
"""How long a start waits for brokers. Later, output waits for them."""
UNKNOWN = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")

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
"""Connection settings, shared by all clients of a cluster."""


def library(module: str = "confluent_kafka") -> Any:
    """Return the client library, or one of its modules."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ClientMissing from error


def connection(bootstrap_servers: str, config: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that every client of the cluster takes."""
    shared = {key: value for key, value in config.items() if key.startswith(_SHARED)}
    return {"bootstrap.servers": bootstrap_servers, **shared}


def reader_settings(bootstrap_servers: str, config: Mapping[str, str], group: str) -> dict[str, Any]:
    """Return settings for a consumer with manual assignment that commits nothing to its group."""
    return {
        **connection(bootstrap_servers, config),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }


class Rejections:
    """Remembers that brokers turned a client away because of its password or certificate.

    librdkafka reports that only to its `error_cb`, connects again, and lets calls time out as if no broker could be reached.
    """

    def __init__(self) -> None:
        self._last: confluent_kafka.KafkaError | None = None

    def settings(self) -> dict[str, Any]:
        return {"error_cb": self._note}

    @contextmanager
    def reported(self, client: Any, doing: str) -> Iterator[None]:
        """Like `translated`, for calls of `client`. A rejection explains a call that failed, if it came last."""
        client.poll(0)
        self._last = None
        try:
            yield
        except library().KafkaException as error:
            client.poll(0)
            raise translate(self._last or error.args[0], doing) from error

    def _note(self, error: confluent_kafka.KafkaError) -> None:
        if error.name() in ("_AUTHENTICATION", "_SSL", "_TRANSPORT"):
            self._last = None if error.name() == "_TRANSPORT" else error


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Translate the client's errors into ours. `doing` completes the sentence "Kafka did not …"."""
    try:
        yield
    except library().KafkaException as error:
        raise translate(error.args[0], doing) from error


def translate(error: confluent_kafka.KafkaError, doing: str) -> KafkaError:
    name = error.name()
    said = f"Kafka did not {doing}: {error.str()} ({name})."
    # Brokers have decided: no retry helps before somebody changes something.
    if name in _ADVICE and not _lacks_token(error):
        return KafkaRefused(f"{said} {_ADVICE[name]}", name)
    if name in _FENCED:
        return KafkaFenced(
            f"{said} Another driver is committing output of the same job; if that is intended, stop this one.", name
        )
    return KafkaUnavailable(
        f"{said} The operation will be retried; check that the brokers are reachable, and that "
        "`security.protocol` is that of their port.",
        name,
    )


def check_topic(bootstrap_servers: str, settings: Mapping[str, Any], topic: str, answer_s: float) -> None:
    """Check that the brokers know a topic, as the first commit does. A broker that creates missing topics creates it now.

    Raises `KafkaRefused` with the address of the brokers and the user, or `KafkaUnavailable`.
    """
    rejections = Rejections()
    # The client logs each broker that it cannot reach, many times; the error says it once. With `debug`, its log is wanted.
    quiet = {} if "debug" in settings else {"log_level": 0}
    producer = library().Producer({**quiet, **settings, **rejections.settings()})
    user = settings.get("sasl.username")
    place = f"at {bootstrap_servers}{'' if user is None else f' as user {user!r}'}"
    try:
        with rejections.reported(producer, f"find topic {topic!r} {place}"):
            await_topic(producer, topic, place, answer_s)
    except KafkaUnavailable as error:
        if none_exists(_hosts(bootstrap_servers)):
            raise KafkaRefused(
                f"Kafka did not find topic {topic!r} {place}: there is no such host. Correct bootstrap_servers.",
                error.name,
            ) from None
        raise


def _hosts(bootstrap_servers: str) -> list[str]:
    """The hosts of `name:port,[address]:port`."""
    parts = (each.strip().rpartition("://")[2] for each in bootstrap_servers.split(","))
    return [urlsplit(f"//{part}").hostname or part for part in parts if part]


def await_topic(producer: Any, topic: str, place: str, answer_s: float) -> None:
    """Wait a moment for a topic that is unknown: a broker that has just started responds before it knows its topics. `place`
    names the brokers and the user: "at kafka:9092".
    """
    latest = time.monotonic() + TOPIC_S
    while True:
        # Asking for this topic alone lets brokers create it, if they are configured to.
        found = producer.list_topics(topic, answer_s).topics[topic]
        if found.error is None:
            return
        if found.error.code() != library().KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise translate(found.error, f"find topic {topic!r} {place}")
        if time.monotonic() > latest:
            raise KafkaRefused(
                f"There is no topic {topic!r} {place}, or the user may not see it. Create the topic first, or correct its name.",
                found.error.name(),
            )
        time.sleep(0.1)


def _lacks_token(error: confluent_kafka.KafkaError) -> bool:
    """Whether the client could not get a token: the brokers have refused nothing, and the next request may get one."""
    text = error.str().lower()
    return error.name() == "_AUTHENTICATION" and ("oauthbearer token" in text or "no token available" in text)
