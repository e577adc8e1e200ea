"""What cannot pass by itself ends the first start of a job within seconds; later, output waits."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from confluent_kafka import KafkaError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, UnauthorizedError

from tidegate.connectors.files import FileSink
from tidegate.connectors.files.s3 import S3Prefix
from tidegate.connectors.kafka import KafkaSink, client
from tidegate.connectors.kafka.client import await_topic, check_topic
from tidegate.connectors.kafka.errors import KafkaRefused, KafkaUnavailable
from tidegate.connectors.lakehouse import DeltaSink, IcebergSink
from tidegate.connectors.lakehouse.errors import translated
from tidegate.connectors.outcome import CommitRefused, RetryLater
from tidegate.connectors.postgres.client import Address
from tidegate.connectors.postgres.committer import PostgresCommitter
from tidegate.connectors.postgres.refusal import Refusal
from tidegate.connectors.sink import CommitterContext, checks_target
from tidegate.core.errors import TidegateError
from tidegate.core.ids import Lineage, Uid
from tidegate.runtime.checkpoints.committers import Committers
from tidegate.schema.schema import Schema
from tidegate.storage import StorageDenied, StorageMisconfigured, StorageUnavailable, open_storage, probe
from tidegate.storage.probe import check_credentials

ROWS = Schema.parse("value string")
CONTEXT = CommitterContext(ROWS, lambda token: b"")


class Target:
    """A committer whose target answers with an error, or takes everything."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked = 0

    def commit(self, requests: object) -> None: ...

    def check_target(self) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error


def committers(**targets: object) -> Committers:
    made = Committers(SimpleNamespace(sinks=(), job="j"), None)  # type: ignore[arg-type]
    made.committers = {Uid(uid): target for uid, target in targets.items()}  # type: ignore[misc]
    return made


REFUSED = CommitRefused("password authentication failed for user 'tide' at db:5432")


def test_what_cannot_pass_ends_the_first_start() -> None:
    with pytest.raises(CommitRefused, match=r"^Sink 'out': password .*'tide' at db:5432"):
        committers(out=Target(REFUSED)).check_targets(is_first=True)


def test_a_sink_whose_committer_cannot_be_created_is_named() -> None:
    class Unopened:
        def create_committer(self, context: CommitterContext) -> Any:
            raise KafkaRefused("There is no table.", "NO_TABLE")

    sink = SimpleNamespace(uid=Uid("out"), target=Unopened(), input=SimpleNamespace(schema=ROWS))
    with pytest.raises(KafkaRefused, match=r"^Sink 'out': There is no table\.") as refused:
        Committers(SimpleNamespace(sinks=(sink,), job="j"), None)  # type: ignore[arg-type]
    assert refused.value.name == "NO_TABLE"


@pytest.mark.parametrize("error", [RetryLater("down"), OSError("no route")])
def test_a_target_that_cannot_be_reached_ends_no_start(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    later = Target()
    committers(out=Target(error), other=later).check_targets(is_first=True)
    assert "sink out does not accept output now" in caplog.text
    assert later.asked == 1


def test_after_a_first_success_output_waits_for_what_was_changed_since(caplog: pytest.LogCaptureFixture) -> None:
    committers(out=Target(REFUSED)).check_targets(is_first=False)
    assert "password authentication failed" in caplog.text


def test_a_committer_without_a_check_is_not_asked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        committers(out=SimpleNamespace()).check_targets(is_first=True)
    assert caplog.text == ""


# -- PostgreSQL ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_final"),
    [
        ('connection to server at "db" failed: FATAL:  password authentication failed for user "tide"', True),
        ('FATAL:  database "shap" does not exist', True),
        ('FATAL:  role "tide" does not exist', True),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1"', True),
        ("connection failed: fe_sendauth: no password supplied", True),
        ('FATAL:  permission denied for database "shop"\nDETAIL:  User does not have CONNECT privilege.', True),
        ('FATAL:  role "tide" is not permitted to log in', True),
        ("server does not support SSL, but SSL was required", True),
        ("FATAL:  the database system is starting up", False),
        ("FATAL:  sorry, too many clients already", False),
        ("connection refused. Is the server running?", False),
        ('could not translate host name "db" to address: Name or service not known', False),
    ],
)
def test_what_a_server_of_postgresql_will_always_refuse(text: str, is_final: bool) -> None:
    assert (Refusal.of(psycopg.OperationalError(text)) is not None) is is_final


def test_a_refused_connection_names_host_database_and_user_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    said = 'connection to server at "db", port 5433 failed: FATAL:  password authentication failed for user "tide"\n'
    conninfo = "host=db port=5433 dbname=shop user=tide password=hunter2"
    committer = PostgresCommitter(conninfo, "totals", CONTEXT, key=(), two_phase=False, description="appends to totals")

    def refuse() -> Any:
        raise psycopg.OperationalError(said)

    monkeypatch.setattr(committer, "_open", refuse)
    with pytest.raises(CommitRefused) as refused:
        committer.check_target()
    message = str(refused.value)
    for part in ("db:5433", "'shop'", "'tide'", "password authentication failed", "totals"):
        assert part in message, part
    assert "hunter2" not in message


def test_a_password_that_is_missing_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    said = 'connection failed: connection to server at "10.0.0.1", port 5433 failed: fe_sendauth: no password supplied'
    conninfo = "host=db port=5433 dbname=shop user=tide"
    committer = PostgresCommitter(conninfo, "totals", CONTEXT, key=(), two_phase=False, description="appends to totals")

    def refuse() -> Any:
        raise psycopg.OperationalError(said)

    monkeypatch.setattr(committer, "_open", refuse)
    with pytest.raises(CommitRefused, match=r"user 'tide'\): fe_sendauth: no password supplied\. .* add password="):
        committer.check_target()


GERMAN = {
    "28P01": "Passwort-Authentifizierung für Benutzer »tide« fehlgeschlagen",
    "3D000": "Datenbank »shap« existiert nicht",
    "53300": "tut mir leid, schon zu viele Verbindungen",
    "57P03": "das Datenbanksystem startet",
}


@contextmanager
def german_server(state: str) -> Iterator[int]:
    """A server that answers every connection with this SQLSTATE and a message in German."""
    fields = {b"S": "FATAL", b"V": "FATAL", b"C": state, b"M": GERMAN[state]}
    body = b"".join(name + value.encode() + b"\0" for name, value in fields.items()) + b"\0"
    answer = b"E" + (len(body) + 4).to_bytes(4, "big") + body

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.skipif(sys.platform != "linux", reason="libpq writes traces on Linux only")
@pytest.mark.parametrize(("state", "is_final"), [("28P01", True), ("3D000", True), ("53300", False), ("57P03", False)])
def test_a_server_that_does_not_speak_english_is_understood(state: str, is_final: bool) -> None:
    with german_server(state) as port:
        conninfo = (
            f"host=127.0.0.1 port={port} dbname=shop user=tide password=hunter2 sslmode=disable gssencmode=disable"
        )
        committer = PostgresCommitter(conninfo, "t", CONTEXT, key=(), two_phase=False, description="appends to t")
        with pytest.raises(CommitRefused if is_final else psycopg.OperationalError, match=GERMAN[state]) as raised:
            committer.check_target()
    assert "hunter2" not in str(raised.value)


def test_parts_that_a_conninfo_leaves_out_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PGHOST", "db"), ("PGUSER", "tide"), ("PGPASSWORD", "hunter2")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PGPORT", raising=False)
    monkeypatch.delenv("PGDATABASE", raising=False)
    assert str(Address.of("")) == "db:5432, database 'tide', user 'tide'"


@pytest.mark.parametrize(
    ("conninfo", "hosts"),
    [
        ("host=h1,h2 port=1,2", "h1:1, h2:2"),
        ("host=h1,h2 port=1", "h1:1, h2:1"),
        ("host=h1,h2 port=,7", "h1:5432, h2:7"),
    ],
)
def test_each_host_of_a_conninfo_is_shown_with_its_port(conninfo: str, hosts: str) -> None:
    assert str(Address.of(f"{conninfo} dbname=shop user=tide")) == f"{hosts}, database 'shop', user 'tide'"


ADVICE = {
    'FATAL:  password authentication failed for user "tide"': "Correct user and password",
    "fe_sendauth: no password supplied": "has no password: add password=",
    'FATAL:  database "shop" does not exist': "CREATE DATABASE shop",
    'FATAL:  role "tide" does not exist': "CREATE ROLE tide LOGIN",
    'FATAL:  role "tide" is not permitted to log in': "ALTER ROLE tide LOGIN",
    'FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "tide", database "shop", no encryption': "sslmode=require",
    'FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "tide", database "shop", SSL encryption': "added to its pg_hba",
    'FATAL:  permission denied for database "shop"': "GRANT CONNECT ON DATABASE shop TO tide",
    "server does not support SSL, but SSL was required": "sslmode=prefer",
    'root certificate file "/ca.pem" does not exist': "Correct sslrootcert",
}


def refusing(said: str, monkeypatch: pytest.MonkeyPatch, conninfo: str = "host=db dbname=shop user=tide") -> Any:
    """A committer whose every connection is refused with these words."""
    committer = PostgresCommitter(conninfo, "totals", CONTEXT, key=(), two_phase=False, description="appends to totals")

    def refuse() -> Any:
        raise psycopg.OperationalError(said)

    monkeypatch.setattr(committer, "_open", refuse)
    return committer


@pytest.mark.parametrize("said", ADVICE)
def test_a_refused_login_says_what_to_do_about_its_cause(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = 'connection failed: connection to server at "10.0.0.1", port 5432 failed: '
    with pytest.raises(CommitRefused) as refused:
        refusing(before + said, monkeypatch).check_target()
    assert ADVICE[said] in str(refused.value)
    others = [advice for text, advice in ADVICE.items() if text != said]
    assert not any(advice in str(refused.value) for advice in others)


def test_of_several_hosts_the_one_that_refused_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    down = 'connection failed: connection to server at "10.0.0.2", port 2 failed: Connection refused'
    wrong = (
        'connection failed: connection to server at "10.0.0.1", port 1 failed: FATAL:  password authentication failed'
    )
    said = f"""{down}
Multiple connection attempts failed. All failures were:
- host: 'h1', port: '1', hostaddr: '10.0.0.1': {wrong}
- host: 'h2', port: '2', hostaddr: '10.0.0.2': {down}"""
    committer = refusing(said, monkeypatch, "host=h1,h2 port=1,2 dbname=shop user=tide")
    expected = r"\(h1:1, h2:2, database .*\): h1:1 says: password authentication failed\. Correct user"
    with pytest.raises(CommitRefused, match=expected):
        committer.check_target()


def test_the_error_suggests_waiting_only_for_servers_that_may_answer_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    refusing('FATAL:  password authentication failed for user "tide"', monkeypatch).check()
    assert caplog.text == ""
    refusing(
        "FATAL:  the database system is starting up", monkeypatch, "host=127.0.0.1 port=1 connect_timeout=2"
    ).check()
    assert "is not reachable yet (127.0.0.1:1, database" in caplog.text


def test_a_missing_permission_is_not_reported_as_a_fault_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    committer = refusing("", monkeypatch)

    def refuse() -> Any:
        raise psycopg.errors.InsufficientPrivilege("permission denied for table totals")

    monkeypatch.setattr(committer, "_open", refuse)
    with pytest.raises(CommitRefused, match=r"'tide' lacks a right: permission denied for table totals\. Grant it"):
        committer.markers(Lineage("a"), Uid("out"))


def resolving(errno: int, *known: str) -> Any:
    """A `getaddrinfo` that knows some hosts, and answers with an error for others."""

    def getaddrinfo(name: str, *_: object) -> list[object]:
        if name in known:
            return [object()]
        raise socket.gaierror(errno, "said in any language")

    return getaddrinfo


@pytest.mark.parametrize(
    ("errno", "conninfo", "is_final"),
    [
        (socket.EAI_NONAME, "host=dbb dbname=shop user=tide", True),
        (socket.EAI_NONAME, "host=dbb,dbc dbname=shop user=tide", True),
        (socket.EAI_NONAME, "host=dbb,db dbname=shop user=tide", False),
        (socket.EAI_NONAME, "host=/run/postgresql dbname=shop user=tide", False),
        (socket.EAI_NONAME, "host=dbb hostaddr=10.0.0.1 dbname=shop user=tide", False),
        (socket.EAI_AGAIN, "host=dbb dbname=shop user=tide", False),
    ],
    ids=["one", "all", "one of two", "a socket", "an address", "no name server"],
)
def test_a_host_of_postgresql_that_does_not_exist_is_refused(
    errno: int, conninfo: str, is_final: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer = PostgresCommitter(conninfo, "t", CONTEXT, key=(), two_phase=False, description="appends to t")

    def fail() -> Any:
        raise psycopg.errors.ConnectionTimeout("could not translate host name")

    monkeypatch.setattr(committer, "_open", fail)
    monkeypatch.setattr(socket, "getaddrinfo", resolving(errno, "db"))
    with pytest.raises(CommitRefused if is_final else psycopg.OperationalError) as raised:
        committer.check_target()
    assert ("dbb" in str(raised.value) and "no such host" in str(raised.value)) is is_final


@pytest.mark.parametrize(
    ("servers", "is_final"),
    [("kafkaa:9092", True), ("kafkaa:9092, kafkab:9093", True), ("kafkaa:9092,kafka:9092", False), ("[::1]:1", False)],
)
def test_brokers_that_do_not_exist_are_refused_with_the_address_and_the_user(
    servers: str, is_final: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise KafkaUnavailable("no answer", "_TRANSPORT")

    monkeypatch.setattr(client, "await_topic", silent)
    monkeypatch.setattr(socket, "getaddrinfo", resolving(socket.EAI_NONAME, "kafka", "::1"))
    with pytest.raises(KafkaRefused if is_final else KafkaUnavailable) as raised:
        check_topic(servers, {"sasl.username": "tide"}, "orders", 1)
    if is_final:
        assert (
            f"find topic 'orders' at {servers} as user 'tide': there is no such host. Correct bootstrap_servers"
            in str(raised.value)
        )


# -- Kafka ---------------------------------------------------------------------------------------------------------------------


class Producer:
    """Answers with these errors of a topic, and then knows it."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    def list_topics(self, topic: str, timeout_s: float) -> Any:
        error = KafkaError(self.errors.pop(0)) if self.errors else None
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error)})


def test_a_topic_that_stays_unknown_is_refused_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TOPIC_S", 0.2)
    with pytest.raises(KafkaRefused, match=r"^There is no topic 'orders' at kafka:9092.*Create the topic first"):
        await_topic(Producer(*[3] * 100), "orders", "at kafka:9092", 1)


def test_the_client_does_not_log_while_a_topic_is_looked_for(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(KafkaUnavailable, match=f"find topic 'orders' at {address}"):
        check_topic(address, {"bootstrap.servers": address}, "orders", 0.5)
    assert capfd.readouterr().err == ""
    with pytest.raises(KafkaUnavailable):
        check_topic(address, {"bootstrap.servers": address, "debug": "broker"}, "orders", 0.5)
    assert "Connect" in capfd.readouterr().err


def test_a_topic_that_a_broker_learns_of_in_a_moment_is_found() -> None:
    await_topic(Producer(3, 3), "orders", "at kafka:9092", 1)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_unreachable_brokers_do_not_refuse_the_start(guarantee: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("committer", "plain_committer"):
        monkeypatch.setattr(f"tidegate.connectors.kafka.{module}.CHECK_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        committer = KafkaSink(address, "orders", delivery_guarantee=guarantee).create_committer(CONTEXT)
        assert checks_target(committer)
        with pytest.raises(KafkaUnavailable, match=f"find topic 'orders' at {address}"):
            committer.check_target()


# -- files and checkpoints -----------------------------------------------------------------------------------------------------


def test_a_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    committer = FileSink(str(tmp_path / "file" / "out"), format="json").create_committer(CONTEXT)
    assert checks_target(committer)
    with pytest.raises(CommitRefused, match="is a file"):
        committer.check_target()


def test_a_directory_that_does_not_exist_yet_is_not_created(tmp_path: Path) -> None:
    committer = FileSink(str(tmp_path / "out"), format="json").create_committer(CONTEXT)
    assert checks_target(committer)
    committer.check_target()
    assert list(tmp_path.iterdir()) == []


class Bucket:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def list_multipart_uploads(self, **_: Any) -> None:
        raise self.error


def _answer(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}}, "ListMultipartUploads")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NoCredentialsError(), "no complete credentials for S3"),
        (_answer("NoSuchBucket"), "Create the bucket"),
        (_answer("SignatureDoesNotMatch"), "access key AKIA1.*secret access key"),
    ],
)
def test_s3_without_a_bucket_or_credentials_is_refused(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"access_key_id": "AKIA1", "secret_access_key": "hunter2", "endpoint": "http://minio:9000"}
    monkeypatch.setattr(S3Prefix, "_client", Bucket(error))
    with pytest.raises(CommitRefused, match=message) as refused:
        S3Prefix("bucket/out", options).check()
    assert "s3://bucket/out/ at http://minio:9000" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_missing_list_permission_on_s3_does_not_refuse_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(S3Prefix, "_client", Bucket(_answer("AccessDenied")))
    with pytest.raises(ClientError):
        S3Prefix("bucket/out", {}).check()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A machine without a role, in an environment without credentials."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    module = sys.modules[check_credentials.__module__]  # the package has a function of the same name
    monkeypatch.setattr(module, "_METADATA_SERVICE", ("127.0.0.1", 1))


@pytest.mark.usefixtures("elsewhere")
def test_checkpoints_on_s3_without_credentials_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage("s3://bucket/checkpoints", region="eu-west-1")
    with pytest.raises(StorageMisconfigured, match=r"no credentials for s3://bucket/checkpoints.*s3\.access-key"):
        probe(storage)
    check_credentials(open_storage("s3://bucket/checkpoints", access_key_id="a", secret_access_key="b"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    check_credentials(storage)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("options", "variables", "missing"),
    [
        ({"access_key_id": "a"}, {}, r"s3\.access-key is set, and s3\.secret-key \(or AWS_SECRET_ACCESS_KEY"),
        ({"secret_access_key": "b"}, {}, r"s3\.secret-key is set, and s3\.access-key \(or AWS_ACCESS_KEY_ID"),
        ({}, {"AWS_ACCESS_KEY_ID": "a"}, r"s3\.secret-key \(or AWS_SECRET_ACCESS_KEY"),
    ],
    ids=["secret", "access", "environment"],
)
def test_one_of_two_keys_is_refused_with_the_one_that_is_missing(
    options: dict[str, str], variables: dict[str, str], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        StorageMisconfigured, match=rf"s3://bucket/checkpoints are incomplete: .*{missing} .* is missing"
    ):
        open_storage("s3://bucket/checkpoints", region="eu-west-1", **options)


@contextmanager
def metadata_service(monkeypatch: pytest.MonkeyPatch, token: int, role: int) -> Iterator[str]:
    """A metadata service of a cloud that answers with these statuses when it is asked for a token and for a role."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self._answer(token)

        def do_GET(self) -> None:
            self._answer(role)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "1")
            self.end_headers()
            self.wfile.write(b"x")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(
            sys.modules[check_credentials.__module__], "_METADATA_SERVICE", ("127.0.0.1", server.server_port)
        )
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("token", "role", "has_role"), [(200, 200, True), (403, 200, False), (200, 404, False), (500, 500, False)]
)
def test_a_metadata_service_counts_as_credentials_only_if_it_has_a_role(
    token: int, role: int, has_role: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage("s3://bucket/checkpoints", region="eu-west-1")
    with metadata_service(monkeypatch, token, role):
        if has_role:
            check_credentials(storage)
        else:
            with pytest.raises(StorageMisconfigured, match=r"no credentials for s3://bucket.*no role"):
                check_credentials(storage)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("token", "role", "expected"), [(403, 403, StorageDenied), (503, 503, StorageUnavailable)])
def test_a_role_that_the_metadata_service_refuses_means_no_credentials(
    token: int, role: int, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.storage.retry.Patience.persist", lambda self, act: act())
    with metadata_service(monkeypatch, token, role) as address:
        storage = open_storage("s3://bucket/checkpoints", region="eu-west-1", metadata_endpoint=address)
        with pytest.raises(expected) as refused:
            storage.get("a")
    message = "no credentials for s3://bucket/checkpoints. Set s3.access-key and s3.secret-key"
    assert (message in str(refused.value)) is (expected is StorageDenied)


@pytest.mark.usefixtures("elsewhere")
def test_a_directory_needs_no_credentials(tmp_path: Path) -> None:
    probe(open_storage(tmp_path))


# -- tables --------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("elsewhere")
def test_a_delta_table_on_s3_without_credentials_is_refused_at_once() -> None:
    options = {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_REGION": "eu-west-1"}
    with pytest.raises(
        CommitRefused, match=r"s3://bucket/events at http://minio:9000.*no credentials.*storage_options"
    ):
        DeltaSink("s3://bucket/events", storage_options=options).create_committer(CONTEXT)


@pytest.mark.usefixtures("elsewhere")
def test_an_iceberg_warehouse_on_s3_without_credentials_is_refused_at_once(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3://bucket/lake"}
    with pytest.raises(
        CommitRefused, match=r"db\.events of catalog lake.*no credentials for s3://bucket/lake.*s3\.access-key-id"
    ):
        IcebergSink("lake", "db.events", properties).create_committer(CONTEXT)
    assert list(tmp_path.iterdir()) == []


def test_a_delta_table_that_cannot_be_created_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        CommitRefused,
        match=rf"Delta table {tmp_path}/file/events cannot be opened.*Not a directory.*Choose a path",
    ):
        DeltaSink(str(tmp_path / "file" / "events"), create=True).create_committer(CONTEXT)


def test_a_delta_table_that_is_gone_is_refused_by_its_committer(tmp_path: Path) -> None:
    committer = DeltaSink(str(tmp_path / "events"), create=True).create_committer(CONTEXT)
    assert checks_target(committer)
    committer.check_target()
    shutil.rmtree(tmp_path / "events")
    with pytest.raises(TidegateError, match=f"{tmp_path}/events") as refused:
        committer.check_target()
    assert not refused.value.retryable


class Catalog:
    """One without the namespace of the table."""

    def table_exists(self, name: str) -> bool:
        return False

    def create_table_if_not_exists(self, name: str, schema: object) -> None:
        raise NoSuchNamespaceError(f"Namespace does not exist: {name}")


def test_an_iceberg_namespace_that_does_not_exist_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.connectors.lakehouse.iceberg.sink.load", lambda *_: Catalog())
    sink = IcebergSink("lake", "db.events", {"type": "sql", "uri": "sqlite:///lake.db"}, create=True)
    with pytest.raises(
        CommitRefused,
        match=r"db\.events of catalog lake \(sqlite:///lake.db\).*does not exist.*Create the namespace first",
    ):
        sink.create_committer(CONTEXT)


def test_a_catalog_in_a_missing_directory_is_refused_briefly(tmp_path: Path) -> None:
    sink = IcebergSink(
        "lake", "db.events", {"type": "sql", "uri": f"sqlite:///{tmp_path}/none/lake.db", "warehouse": str(tmp_path)}
    )
    with pytest.raises(
        CommitRefused, match=r"unable to open database file\. SQLite creates the file .* create that"
    ) as refused:
        sink.create_committer(CONTEXT)
    assert "sqlalche.me" not in str(refused.value)


def test_an_iceberg_table_in_a_namespace_that_does_not_exist_is_refused_with_what_to_create(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": str(tmp_path)}
    with pytest.raises(CommitRefused, match=r"db\.events of catalog lake .*Create the namespace first"):
        IcebergSink("lake", "db.events", properties, create=True).create_committer(CONTEXT)


def test_an_iceberg_warehouse_below_a_file_is_refused_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": f"{tmp_path}/file/lake"}
    SqlCatalog("lake", **properties).create_namespace("db")
    with pytest.raises(CommitRefused, match=r"file/lake.*Not a directory.*is a file\. Choose"):
        IcebergSink("lake", "db.events", properties, create=True).create_committer(CONTEXT)


def test_a_catalog_that_cannot_be_opened_is_refused_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, properties: Any) -> None:
        raise ValueError(f"Could not parse {properties['uri']}")

    monkeypatch.setattr("tidegate.connectors.lakehouse.iceberg.sink.load", load)
    sink = IcebergSink("lake", "db.events", {"type": "sql", "uri": "postgresql://tide:hunter2@db/lake"})
    with pytest.raises(CommitRefused, match=r"db\.events of catalog lake \(postgresql://\*\*\*@db/lake\)") as refused:
        sink.create_committer(CONTEXT)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        (UnauthorizedError("NotAuthorizedException: Malformed token"), True),
        (OSError("AWS Error ACCESS_DENIED during HeadObject operation"), True),
        (OSError("Generic S3 error: 404 <Code>NoSuchBucket</Code>"), True),
        (ConnectionError("Connection refused"), False),
        (OSError("Generic S3 error: 503 Slow Down"), False),
    ],
)
def test_what_a_table_will_always_refuse(error: Exception, is_final: bool) -> None:
    expected = CommitRefused if is_final else RetryLater
    with pytest.raises(expected, match="The Delta table s3://b/t cannot be opened"), translated("Delta table s3://b/t"):
        raise error


def test_an_unreachable_catalog_does_not_refuse_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(RetryLater, match=rf"db\.events of catalog lake \({address}"):
        IcebergSink("lake", "db.events", {"type": "rest", "uri": address}).create_committer(CONTEXT)
