"""Who may call the REST server of a job, and what callers can hold: over real connections to a job that only pretends to run."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from tests.unit.control.rest.test_server import ID, Pretended, asking
from tidegate.control.cli import main
from tidegate.control.jobs.service import JobService
from tidegate.control.rest import access_token
from tidegate.control.rest.client import Client, Refused, Unreachable
from tidegate.control.rest.connection_limits import ConnectionLimits
from tidegate.control.rest.request_checks import AllowedHosts
from tidegate.control.rest.server import RestServer, application
from tidegate.core.errors import PreconditionFailed

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def run() -> Pretended:
    return Pretended()


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tokens are kept."""
    monkeypatch.delenv(access_token.VARIABLE, raising=False)
    monkeypatch.setenv(access_token.DIRECTORY_VARIABLE, str(tmp_path / "rest"))
    return tmp_path / "rest"


@pytest.fixture
def server(run: Pretended, directory: Path) -> Iterator[RestServer]:
    with RestServer(JobService(run)) as started:  # type: ignore[arg-type]
        yield started


@pytest.fixture
def client(run: Pretended) -> TestClient:
    """Knows the token, so whatever refuses it is another check."""
    app = application(JobService(run), token="t", allow_actions=True)  # type: ignore[arg-type]
    return asking(app, Authorization="Bearer t")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (JSON, 202),
        ({**JSON, "Content-Type": "Application/JSON; charset=utf-8"}, 202),
        ({**JSON, "Sec-Fetch-Site": "same-origin"}, 202),
        ({**JSON, "Host": "evil.example"}, 403),
        ({**JSON, "Host": "localhost.evil.example:8081"}, 403),
        ({**JSON, "Host": "127.0.0.1@evil.example"}, 403),
        ({**JSON, "Host": "2130706433"}, 403),
        ({**JSON, "Origin": "http://evil.example"}, 403),
        ({**JSON, "Origin": "http://localhost:3000"}, 403),
        ({**JSON, "Origin": "null"}, 403),
        ({**JSON, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**JSON, "Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({}, 415),
    ],
)
@pytest.mark.parametrize("body", [b"{}", b""])
def test_a_web_page_cannot_stop_a_job(
    client: TestClient, run: Pretended, headers: dict[str, str], status: int, body: bytes
) -> None:
    answer = client.post(f"/jobs/{ID}/stop", content=body, headers=headers)
    assert answer.status_code == status
    assert ("errors" in answer.json()) == (status != 202)
    assert run.asked == [] or status == 202


def test_a_web_page_can_neither_cancel_nor_read(client: TestClient, run: Pretended) -> None:
    page = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert client.patch(f"/jobs/{ID}?mode=cancel", headers=page).status_code == 403
    assert client.patch(f"/jobs/{ID}", content=b"x", headers={"Content-Type": "text/plain"}).status_code == 415
    assert client.get("/jobs", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.get("/jobs", headers={"Host": "rebound.example"}).status_code == 403
    assert client.request("OPTIONS", "/jobs", headers=page).status_code == 403
    assert run.asked == []


def test_names_that_a_server_answers_to() -> None:
    local, everywhere = AllowedHosts.of("127.0.0.1"), AllowedHosts.of("0.0.0.0")
    behind = AllowedHosts.of("10.0.0.7", ["jobs.example"])
    for name in ("localhost", "LOCALHOST:1", "localhost.", "127.0.0.1:8081", "127.9.9.9", "[::1]:8081"):
        assert local.admits(name), name
    for name in ("", "::1", "10.0.0.7", "[::1", "localhost:x", "local host", "evil.example", "[::1]evil"):
        assert not local.admits(name), name
    assert everywhere.admits("10.0.0.7:8081")
    assert everywhere.admits(socket.gethostname())
    assert not everywhere.admits("evil.example")
    assert behind.admits("jobs.example:443")
    assert behind.admits("10.0.0.7")
    assert behind.admits_origin("https://jobs.example", "10.0.0.7")
    assert not behind.admits_origin("https://other.example", "10.0.0.7")


def test_another_user_of_the_machine_has_no_token(server: RestServer, run: Pretended, directory: Path) -> None:
    assert httpx.get(f"{server.url}/jobs").status_code == 401
    assert httpx.post(f"{server.url}/jobs/{ID}/stop", json={}).status_code == 401
    assert run.asked == []
    (kept,) = server.token_files
    assert kept.parent == directory
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert len(server.token) >= 40
    assert server.token not in repr(server)


def test_the_command_line_finds_the_token_of_the_current_user(server: RestServer) -> None:
    assert Client(server.url).jobs()[0]["jid"] == ID
    assert Client(f"localhost:{server.port}").jobs()[0]["jid"] == ID


def test_a_client_outlives_the_servers_that_it_asks(run: Pretended, directory: Path) -> None:
    """Whoever watches a job begins before it and goes on when it is started again, with another token."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client, tokens = Client(f"127.0.0.1:{port}"), set()
    for _ in range(2):
        with RestServer(JobService(run), port=port) as server:  # type: ignore[arg-type]
            assert client.jobs()[0]["jid"] == ID
            tokens.add(server.token)
    assert len(tokens) == 2


def test_the_token_file_is_removed_when_its_server_closes(run: Pretended, directory: Path) -> None:
    first = RestServer(JobService(run))  # type: ignore[arg-type]
    (kept,) = first.token_files
    first.close()
    assert not kept.exists()
    assert list(directory.iterdir()) == []


def test_a_chosen_token_is_read_from_the_environment(
    run: Pretended, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(access_token.VARIABLE, "chosen-by-me")
    with RestServer(JobService(run)) as server:  # type: ignore[arg-type]
        assert (server.token, server.token_files) == ("chosen-by-me", ())
        assert Client(server.url).jobs()
        monkeypatch.setenv(access_token.VARIABLE, "another")
        with pytest.raises(Refused, match="TIDEGATE_TOKEN"):
            Client(server.url).jobs()


def test_a_token_that_no_header_can_carry_is_refused_without_being_shown(run: Pretended) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        RestServer(JobService(run), token="two words")  # type: ignore[arg-type]
    assert "two words" not in str(caught.value)


def test_a_token_on_the_command_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.py").touch()
    told = CliRunner().invoke(main, ["run", str(tmp_path / "job.py"), "-Drest.token=hunter2"])
    assert told.exit_code == 3
    assert "TIDEGATE_TOKEN" in told.output
    assert "hunter2" not in told.output


@pytest.mark.parametrize("what", ["open directory", "link to a directory", "open file", "link to a file"])
def test_a_token_that_others_may_have_placed_is_not_read(directory: Path, what: str) -> None:
    directory.mkdir(mode=0o700)
    file = directory / access_token._name("127.0.0.1", 8081)
    file.write_text("planted")
    file.chmod(0o600)
    assert access_token.find_token("127.0.0.1", 8081) == "planted"
    if what == "open directory":
        directory.chmod(0o777)
    elif what == "open file":
        file.chmod(0o644)
    else:
        place = directory if "directory" in what else file
        place.rename(directory.with_name("elsewhere"))
        place.symlink_to(directory.with_name("elsewhere"))
    assert access_token.find_token("127.0.0.1", 8081) is None


def test_no_server_starts_with_a_token_that_others_can_read(run: Pretended, directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o755)
    with pytest.raises(PreconditionFailed, match="only you can enter"):
        RestServer(JobService(run))  # type: ignore[arg-type]


def test_a_client_sends_its_token_to_no_other_server(directory: Path) -> None:
    """To a server that redirects, to a proxy, or to another address than the token is for."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        directory.mkdir(mode=0o700)
        access_token.TokenFile.write("mine", "127.0.0.1", port)
        assert access_token.find_token("10.0.0.7", port) is None
        assert access_token.find_token("127.0.0.1", port + 1) is None
    with pytest.raises(Unreachable, match="TIDEGATE_TOKEN"):
        Client("http://me:mine@127.0.0.1:8081")


def test_a_redirect_is_not_followed(server: RestServer, run: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                asked.append(connection.recv(4096))
                where = f"{server.url}/jobs/overview".encode()
                connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: " + where + b"\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        with pytest.raises(Unreachable, match="is not tidegate"):
            Client(f"127.0.0.1:{other.getsockname()[1]}", token=server.token).jobs()
        thread.join()
    assert len(asked) == 1


# -- bounds ------------------------------------------------------------------------------------------------------------


def raw(server: RestServer, head: str, body: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    lines = f"{head}\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\nContent-Type: application/json\r\n"
    connection.sendall(lines.encode() + body)
    return connection


def test_a_long_body_is_refused_before_it_is_read(server: RestServer) -> None:
    announced = raw(server, f"POST /jobs/{ID}/savepoints HTTP/1.1\r\nContent-Length: 1500000000", b"\r\n")
    with announced:
        assert announced.recv(12) == b"HTTP/1.1 413"


def test_a_long_body_of_unknown_length_is_refused_once_it_is_too_long(run: Pretended, directory: Path) -> None:
    with RestServer(JobService(run), limits=ConnectionLimits(body_bytes=1000)) as server:  # type: ignore[arg-type]
        chunk = b"\r\n" + b"3e8\r\n" + b" " * 1000 + b"\r\n" + b"1\r\n \r\n"
        with raw(server, f"POST /jobs/{ID}/savepoints HTTP/1.1\r\nTransfer-Encoding: chunked", chunk) as endless:
            assert endless.recv(12) == b"HTTP/1.1 413"
    assert run.asked == []


def test_deeply_nested_json_is_a_client_error(client: TestClient) -> None:
    answer = client.post(f"/jobs/{ID}/savepoints", content=b"[" * 200_000, headers=JSON)
    assert (answer.status_code, "not JSON" in answer.json()["errors"][0]) == (400, True)


def test_a_long_trigger_id_is_refused(client: TestClient) -> None:
    """A thousand of them are remembered."""
    answer = client.post(f"/jobs/{ID}/savepoints", json={"triggerId": "x" * 201})
    assert answer.status_code == 400


def closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_request_that_does_not_end_is_cut_off(run: Pretended, directory: Path) -> None:
    with RestServer(JobService(run), limits=ConnectionLimits(request_s=1)) as server:  # type: ignore[arg-type]
        silent = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        half_a_head = raw(server, "GET /jobs HTTP/1.1")
        half_a_body = raw(server, f"POST /jobs/{ID}/stop HTTP/1.1\r\nContent-Length: 9", b"\r\n{")
        for slow in (silent, half_a_head, half_a_body):
            with slow:
                assert closed(slow)
    assert run.asked == []


def test_slow_connections_do_not_block_other_clients(run: Pretended, directory: Path) -> None:
    with RestServer(JobService(run), limits=ConnectionLimits(connections=8)) as server:  # type: ignore[arg-type]
        slow = [raw(server, "GET /jobs HTTP/1.1") for _ in range(40)]
        assert Client(server.url).jobs()
        assert all(closed(one) for one in slow[:32])
        for one in slow:
            one.close()


def test_a_long_head_is_refused(server: RestServer) -> None:
    with raw(server, f"GET /jobs HTTP/1.1\r\nX: {'x' * 400_000}") as long:
        assert long.recv(12) == b"HTTP/1.1 400"


@pytest.mark.parametrize("header", [{"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://127.0.0.1:8081"}])
def test_pages_are_read_only_unless_actions_are_allowed(run: Pretended, header: dict[str, str]) -> None:
    app = application(JobService(run), token="t")  # type: ignore[arg-type]
    browser, program = (
        asking(app, **more) for more in ({"Authorization": "Bearer t", **header}, {"Authorization": "Bearer t"})
    )
    refused = browser.post(f"/jobs/{ID}/stop", json={})
    assert (refused.status_code, "--allow-actions" in refused.text, run.asked) == (403, True, [])
    assert browser.get(f"/jobs/{ID}/report").json()["allows"]["actions"] is False
    assert program.post(f"/jobs/{ID}/checkpoints", json={}).status_code == 202


def test_only_files_of_pages_are_served_without_a_token(run: Pretended) -> None:
    client = asking(application(JobService(run), token="t"))  # type: ignore[arg-type]
    page = client.get("/", follow_redirects=True)
    assert (page.status_code, str(page.url)) == (200, "http://127.0.0.1:8081/ui/")
    assert "unsafe" not in page.headers["content-security-policy"]
    assert client.get("/ui/../jobs").status_code == client.get("/jobs").status_code == 401
    assert client.post("/ui/", json={}).status_code == 401
    assert client.get("/ui/%2e%2e/service.py").status_code == 404
    assert client.get("/ui/", headers={"Host": "evil.example"}).status_code == 403
