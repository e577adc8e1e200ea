"""A secret in every place where a user can put one: nothing that is shown, told, logged or stored has it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.unit.api.shop import Frame
from tests.unit.control.cli.test_cli import run as tidegate
from tests.unit.control.rest.test_server import ID, Pretended, asking
from tests.unit.runtime.checkpoints.test_loop import WAIT_S, Place
from tidegate.config import CheckpointConfig, Checkpointing, read_options
from tidegate.connectors.postgres.client import connect
from tidegate.control.jobs.service import JobService
from tidegate.control.rest.client import Client
from tidegate.control.rest.server import RestServer, application
from tidegate.core.redaction import redacted
from tidegate.runtime.epochs.run_options import RunOptions
from tidegate.runtime.epochs.settings import read_settings
from tidegate.runtime.exchange.assignment import Archive
from tidegate.runtime.monitoring.run_report import FailureLine
from tidegate.storage import open_storage

SECRET = "h4nter/two+x"
"""With the characters that secrets of AWS have."""
URL = f"s3://AKIAEXAMPLE:{SECRET}@bucket/checkpoints"
ADDRESS = f"postgresql://tide:{SECRET.replace('/', '%2F')}@db.example/shop"


def attempt(act: Callable[[], object]) -> str:
    """What an act says of itself: its result, or its error with all that led to it."""
    try:
        return repr(act())
    except Exception as error:
        told, link = "", error
        while link is not None:
            told += f"{link!r} {link} "
            link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)  # type: ignore[assignment]
        return told


def sinks() -> dict[str, Callable[[], Any]]:
    keys = {"access_key_id": "A", "secret_access_key": SECRET}
    return {
        "files": lambda: tg.FileSink("s3://bucket/out", options=keys),
        "files, in the address": lambda: tg.FileSink(URL),
        "delta": lambda: tg.DeltaSink("s3://bucket/out", storage_options={"AWS_SECRET_ACCESS_KEY": SECRET}),
        "delta, in the address": lambda: tg.DeltaSink(URL),
        "iceberg": lambda: tg.IcebergSink("main", "db.events", properties={"s3.secret-access-key": SECRET}),
        "kafka": lambda: tg.KafkaSink("kafka:9092", "orders", config={"sasl.password": SECRET}),
        "postgres": lambda: tg.PostgresSink(ADDRESS, "totals"),
        "postgres, by words": lambda: tg.PostgresSink(f"host=db password='{SECRET}'", "totals"),
    }


@pytest.mark.parametrize("kind", sinks())
def test_a_sink_does_not_show_what_it_connects_with(kind: str) -> None:
    def explained() -> str:
        job = tg.Job("j")
        job.source("in", Frame("value string")).sink("out", sinks()[kind]())
        return job.explain() + job.explain("mermaid") + repr(job.graph())

    for shown in (attempt(sinks()[kind]), attempt(explained)):
        assert_hidden(shown)


@pytest.mark.parametrize(
    "conninfo",
    [
        ADDRESS,
        f"postgres:/tide:{SECRET}@db.example/shop",
        f"postgresql://tide:{SECRET}@127.0.0.1:port/shop",
        f"postgresql://tide:{SECRET}@ss@nowhere.invalid/shop",
        f"host=nowhere.invalid password={SECRET} dbname",
        f"host=nowhere.invalid passwort={SECRET}",
        f"host=nowhere.invalid password={SECRET}",
        SECRET,
    ],
)
def test_a_mistyped_dsn_is_not_quoted(conninfo: str) -> None:
    pytest.importorskip("psycopg")
    if conninfo == ADDRESS:
        conninfo = ADDRESS.replace("db.example", "nowhere.invalid")
    assert_hidden(attempt(lambda: connect(conninfo)))


def test_options_of_checkpoints_are_not_shown() -> None:
    chosen = Checkpointing(dir=URL, interval="1 s", savepoint_dir=URL, options={"s3.secret-key": SECRET})
    assert_hidden(repr(chosen))
    assert "s3.secret-key" in repr(chosen)
    assert repr(Checkpointing(dir="/c", interval="10 s")) == "Checkpointing(dir='/c', interval='10 s')"
    assert_hidden(attempt(lambda: read_settings(2, RunOptions(parallelism=1, checkpoint=chosen))))
    store = {"s3.access-key": "A", "s3.secret-key": SECRET}
    assert_hidden(attempt(lambda: read_settings(2, RunOptions(parallelism=1, checkpoint="/c", options=store))))
    assert_hidden(repr(Archive("s3://bucket/x", {"secret_access_key": SECRET})))


def test_credentials_in_the_address_of_a_store_are_refused_and_not_disclosed() -> None:
    for act in (
        lambda: open_storage(URL),
        lambda: tg.Savepoint.open(URL),
        lambda: open_storage("s3://bucket/x", secret_access_key=SECRET),
        lambda: open_storage("s3://bucket/x", no_such_option=SECRET),
        lambda: open_storage("/somewhere", secret_access_key=SECRET),
    ):
        assert_hidden(attempt(act))
    assert "contains credentials" in attempt(lambda: open_storage(URL))


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_command_line_repeats_no_secret(tmp_path: Path, form: str) -> None:
    (tmp_path / "job.py").write_text(f"raise RuntimeError('cannot reach {ADDRESS}')")
    for words in (
        ("savepoint", "show", URL),
        ("savepoint", "dispose", URL, "--yes"),
        ("checkpoints", "list", URL),
        ("state", "show", URL),
        ("run", str(tmp_path / "job.py"), f"-Drest.token={SECRET}"),
        ("run", str(tmp_path / "job.py")),
        ("list", "-m", f"http://me:{SECRET}@127.0.0.1:1"),
    ):
        told = tidegate(*words, "-o", form)
        assert told.exit_code == 3, (words, told.output, told.exception)
        assert_hidden(told.output)


class Telling(Pretended):
    """A job whose configuration and failures have the secret in them."""

    def __init__(self) -> None:
        super().__init__()
        assert self.checkpoint_config is not None
        self.checkpoint_config = dataclasses.replace(self.checkpoint_config, dir=URL)
        self.failures = [FailureLine(at_ms=7, kind="user-code", message=f"cannot reach {ADDRESS}", restarted=True)]

    def savepoint(self, target: str | None, *, format: str) -> Future[str]:
        answer: Future[str] = Future()
        answer.set_exception(RuntimeError(f"{target} does not answer"))
        return answer


def test_rest_answers_contain_no_secret() -> None:
    client = asking(application(JobService(Telling()), token=SECRET), Authorization=f"Bearer {SECRET}")  # type: ignore[arg-type]
    body = {"target-directory": URL, "triggerId": "t"}
    answers = [client.post(f"/jobs/{ID}/savepoints", json=body), client.get(f"/jobs/{ID}/savepoints/t")]
    paths = (
        "/openapi.json",
        "/jobs",
        "/jobs/overview",
        *(f"/jobs/{ID}{p}" for p in ("", "/exceptions", "/checkpoints", "/report", "/snapshots", "/state")),
    )
    answers += [client.get(path) for path in (*paths, f"/jobs/{ID}/checkpoints/config", f"/jobs/{ID}/unknown")]
    client.post("/savepoint-disposal", json={"savepoint-path": URL, "triggerId": "d"})
    while (disposal := client.get("/savepoint-disposal/d")).json()["status"]["id"] == "IN_PROGRESS":
        pass
    for answer in (*answers, disposal):
        assert_hidden(answer.text)
    assert "s3://***@bucket" in disposal.text


def test_a_token_is_never_disclosed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with RestServer(JobService(Pretended()), token="t-" + SECRET) as server:  # type: ignore[arg-type]
        assert_hidden(repr(server), server.url)
        assert_hidden(attempt(lambda: Client(server.url, token="wrong").jobs()))
        assert_hidden(repr(Client(server.url, token="t-" + SECRET)))
    assert_hidden(caplog.text)


def test_lines_of_the_log_are_redacted(caplog: pytest.LogCaptureFixture) -> None:
    """Errors of libraries and of the user's code are quoted in it."""
    caplog.set_level(logging.INFO)
    log = logging.getLogger("tidegate")
    log.info("savepoint %s complete", f"{URL}/sp", extra={"job": "orders"})
    log.warning("attempt %d failed: %s", 3, RuntimeError(f"cannot reach {ADDRESS}"))
    log.info("checkpoint %d at %s", 3, "/c/chk-3")
    assert_hidden(caplog.text)
    assert caplog.messages[0] == "savepoint s3://***@bucket/checkpoints/sp complete"
    assert caplog.messages[2] == "checkpoint 3 at /c/chk-3"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    place = Place(tmp_path)
    with place.run() as loop:
        loop.savepoint(str(tmp_path / "sp"), terminal=False, format="CANONICAL").result(WAIT_S)
    return tmp_path


def test_stored_files_contain_no_options_of_the_job(stored: Path) -> None:
    """Metadata and log of a job whose checkpoint directory has no credentials, since one that has them is refused."""
    config = CheckpointConfig.of(read_options(Checkpointing(dir="s3://bucket/x", interval="1 s").to_options()))
    assert_hidden(repr(config))
    for file in stored.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URL, "s3://***@bucket/checkpoints"),
        ("s3://KEY@bucket/x", "s3://***@bucket/x"),
        ("abfss://container@account.dfs.core.windows.net/x", "abfss://container@account.dfs.core.windows.net/x"),
        ("http://127.0.0.1:8081/jobs/a@b", "http://127.0.0.1:8081/jobs/a@b"),
        ("s3://bucket/with:colon/x", "s3://bucket/with:colon/x"),
        ("password=abc host=db", "password=*** host=db"),
        ("{'sasl.password': 'abc', 'acks': 'all'}", "{'sasl.password': ***, 'acks': 'all'}"),
        ("https://h/x?sig=1&X-Amz-Signature=abc&a=b", "https://h/x?sig=1&X-Amz-Signature=***&a=b"),
    ],
)
def test_redacted_texts(text: str, shown: str) -> None:
    assert redacted(text) == shown


def assert_hidden(*texts: str) -> None:
    for text in texts:
        for form in (SECRET, SECRET.replace("/", "%2F"), "h4nter"):
            assert form not in text, text[max(0, text.index(form) - 200) : text.index(form) + 60]
