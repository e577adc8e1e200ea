"""What the client does with NameNodes that are not active, and with servers that are something else: played by a stand-in."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.servers.hdfs import HdfsAddresses
from tests.servers.process import free_ports
from tidegate.storage import (
    Patience,
    StorageDenied,
    StorageMisconfigured,
    StorageRefused,
    StorageUnavailable,
    new_nonce,
    open_storage,
    probe,
)
from tidegate.storage.hdfs.address import HdfsAddress
from tidegate.storage.hdfs.client import WebHdfsClient

ONCE = Patience(attempts=2, first_ms=1)
Respond = Callable[[dict[str, str]], tuple[int, Any]]
"""From the parameters of a request to a status and a body."""


@contextmanager
def stand_in(respond: Respond) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server's address, and the parameters of the requests that it has received."""
    heard: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            params = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
            heard.append(params)
            status, body = respond(params)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            if status == 307:
                self.send_header("Location", f"http://127.0.0.1:{port}{self.path}&datanode=true")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{port}", heard
    finally:
        server.shutdown()
        server.server_close()


def refused(exception: str, message: str = "for a reason", status: int = 403) -> tuple[int, Any]:
    return status, {"RemoteException": {"exception": exception, "message": message}}


def standby(params: dict[str, str]) -> tuple[int, Any]:
    return refused("StandbyException", "Operation category READ is not supported in state standby")


@pytest.mark.feature("E5")
def test_the_active_name_node_is_found_and_remembered(hdfs: HdfsAddresses) -> None:
    with stand_in(standby) as (passive, heard):
        dead = f"127.0.0.1:{free_ports(1)[0]}"
        options = hdfs.options() | {"web_address": f"{dead},{passive},127.0.0.1:{hdfs.web_port}"}
        storage = open_storage(f"{hdfs.url}/{new_nonce()}", patience=Patience(attempts=1), **options)
        for number in range(3):
            storage.put(f"log/{number}", b"x")
        assert len(storage.list()) == 3
        assert len(heard) == 1


def test_name_nodes_of_which_none_is_active_are_named() -> None:
    with stand_in(standby) as (one, _), stand_in(standby) as (two, _):
        storage = open_storage("hdfs://bank/a", patience=ONCE, web_address=f"{one},{two}")
        with pytest.raises(StorageUnavailable, match=f"{one}: StandbyException.*{two}: StandbyException") as caught:
            storage.size("x")
        assert caught.value.retryable


def test_a_token_is_sent_in_place_of_a_name_and_never_shown() -> None:
    with stand_in(lambda params: refused("InvalidToken", "token is expired", status=401)) as (server, heard):
        storage = open_storage("hdfs://bank/a", patience=ONCE, web_address=server, delegation_token="s3cret")
        with pytest.raises(StorageDenied, match="token is expired") as caught:
            storage.put("x", b"1")
    assert [params.get("delegation") for params in heard] == ["s3cret"]
    assert "user.name" not in heard[0]
    assert "s3cret" not in f"{caught.value} {storage!r} {storage.url}"


def test_a_cluster_that_asks_for_kerberos_says_what_it_needs() -> None:
    body = b"<html>Authentication required</html>"
    with stand_in(lambda params: (401, body)) as (server, heard):
        with pytest.raises(StorageDenied, match=r"Kerberos needs hdfs\.delegation-token"):
            open_storage("hdfs://bank/a", patience=ONCE, web_address=server).get("x")
        assert len(heard) == 1


@pytest.mark.parametrize(("status", "body"), [(404, b"<html>no such page</html>"), (200, b"<html>welcome</html>")])
def test_a_server_that_is_no_name_node_is_reported_at_once(status: int, body: bytes) -> None:
    with stand_in(lambda params: (status, body)) as (server, heard):
        with pytest.raises(StorageRefused, match=r"hdfs\.web-address"):
            open_storage("hdfs://bank/a", patience=ONCE, web_address=server).list()
        assert len(heard) == 1


def test_a_server_that_ignores_the_options_of_a_rename_fails_the_probe() -> None:
    """HttpFS does."""

    def httpfs(params: dict[str, str]) -> tuple[int, Any]:
        if params["op"] == "CREATE":
            return (201, b"") if "datanode" in params else (307, b"")
        return 200, {"boolean": True}

    with stand_in(httpfs) as (server, _), pytest.raises(StorageMisconfigured, match="HttpFS"):
        probe(open_storage("hdfs://bank/a", patience=ONCE, web_address=server))


@pytest.mark.parametrize("exception", ["SafeModeException", "RetriableException", "NSQuotaExceededException"])
def test_what_may_pass_is_tried_again(exception: str) -> None:
    with stand_in(lambda params: refused(exception)) as (server, heard):
        with pytest.raises(StorageUnavailable, match=exception) as caught:
            open_storage("hdfs://bank/a", patience=ONCE, web_address=server).put("x", b"1")
        assert caught.value.retryable
        assert len(heard) == ONCE.attempts


def test_a_redirection_away_from_tls_is_not_followed() -> None:
    client = WebHdfsClient(HdfsAddress.of("swebhdfs://bank/a", {"delegation_token": "s3cret"}))
    with pytest.raises(StorageRefused, match="without TLS") as caught:
        client.follow("PUT", "x", "http://datanode:9864/webhdfs/v1/x?delegation=s3cret", set(), b"1")
    assert "s3cret" not in str(caught.value)
