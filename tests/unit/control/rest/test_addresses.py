"""IPv6 wherever a host is given, found or shown."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.unit.control.cli.test_cli_jobs import call
from tests.unit.control.rest.test_server import Pretended
from tidegate.control.jobs.service import JobService
from tidegate.control.rest.addresses import host_and_port, plain_host
from tidegate.control.rest.client import Client
from tidegate.control.rest.request_checks import AllowedHosts
from tidegate.control.rest.server import RestServer
from tidegate.core.errors import PreconditionFailed


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as found:
            found.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "127.0.0.1:8081"),
        ("Host.Example", "host.example:8081"),
        ("::1", "[::1]:8081"),
        ("[::1]", "[::1]:8081"),
        ("0:0:0:0:0:0:0:1", "[::1]:8081"),
        ("FD00::2", "[fd00::2]:8081"),
    ],
)
def test_an_ipv6_address_before_a_port_has_brackets(host: str, shown: str) -> None:
    assert host_and_port(host, 8081) == shown
    assert plain_host(host_and_port(host, 8081).rpartition(":")[0]) == plain_host(host)


@needs_ipv6
@pytest.mark.parametrize("bound", ["::1", "[::1]", "0:0:0:0:0:0:0:1", "::"])
def test_a_command_finds_a_server_that_is_bound_to_an_ipv6_address(
    bound: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The address comes from the file for all jobs, and the token from the file of the server."""
    monkeypatch.setenv("TIDEGATE_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_TOKEN_DIR", str(tmp_path / "tokens"))
    with RestServer(JobService(Pretended()), host=bound) as server:  # type: ignore[arg-type]
        (tmp_path / "config.yaml").write_text(f'rest:\n  port: {server.port}\n  bind-address: "{bound}"\n')
        assert "orders (RUNNING)" in call("list").output
        assert "orders (RUNNING)" in call("list", "-m", f"[::1]:{server.port}").output
        if bound != "::":
            assert Client(server.url).jobs()
        else:
            assert Client(f"127.0.0.1:{server.port}").jobs(), "all addresses, also those of IPv4"


@needs_ipv6
def test_the_message_about_a_port_in_use_shows_the_address_as_a_user_writes_it() -> None:
    with (
        RestServer(JobService(Pretended()), host="::1") as first,  # type: ignore[arg-type]
        pytest.raises(PreconditionFailed, match=rf"cannot listen on \[::1\]:{first.port}: port {first.port} is taken"),
    ):
        RestServer(JobService(Pretended()), host="::1", port=first.port)  # type: ignore[arg-type]


def test_a_server_answers_to_its_ipv6_address_in_every_form() -> None:
    hosts = AllowedHosts.of("[FD00:0::2]", ["[fd00::3]"])
    for name in ("[fd00::2]:8081", "[fd00:0:0::2]", "[FD00::2]", "[fd00::3]:1", "localhost"):
        assert hosts.admits(name), name
    assert not hosts.admits("[fd00::4]")
    assert AllowedHosts.of("[::]").admits("[fd00::4]:8081")
