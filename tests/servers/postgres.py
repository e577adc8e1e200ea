"""A real PostgreSQL server, as Debian packages it, on loopback only."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.servers.process import ServerProcess, free_ports
from tests.servers.wire import Wire


class Postgres:
    """One server with one database. Ready when the constructor returns (about 2 s, most of it for a new directory)."""

    def __init__(self, directory: Path, prepared_transactions: int = 128) -> None:
        self._directory, self._prepared = directory, prepared_transactions
        self._user = _unprivileged()
        if self._user is not None:
            os.chown(directory, self._user, -1)
        self._port = free_ports(1)[0]
        subprocess.run(
            [_binary("initdb"), "-D", directory / "data", "-U", "tidegate", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            user=self._user,
            cwd=directory,
        )
        self._process: ServerProcess | None = None
        self.start()

    @property
    def conninfo(self) -> str:
        return self._conninfo(self._port)

    def behind(self, wire: Wire) -> str:
        """How to reach it over that wire."""
        return self._conninfo(wire.lead_to("127.0.0.1", self._port).port)

    def _conninfo(self, port: int) -> str:
        return f"host=127.0.0.1 port={port} user=tidegate dbname=postgres connect_timeout=5"

    def ask_for_password(self, user: str) -> None:
        """From now on this user needs one; everybody else is trusted."""
        import psycopg

        rules = self._directory / "data" / "pg_hba.conf"
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")

    def start(self) -> None:
        """Does nothing while it runs."""
        if self._process is not None:
            return
        settings = {
            "port": self._port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_prepared_transactions": self._prepared,
            "fsync": "off",
            "shared_buffers": "16MB",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._process = ServerProcess(
            [_binary("postgres"), "-D", str(self._directory / "data"), *options],
            self._directory / "postgres.log",
            user=self._user,
            # "Immediate": no farewell to anybody, and recovery at the next start.
            stop_signal=signal.SIGQUIT,
        )
        self._process.wait_until(self._answers)

    def stop(self) -> None:
        """As a crash would: connections break, what was not committed is gone."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self.start()

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.conninfo).close()
            return True
        except psycopg.OperationalError:
            return False


def _unprivileged() -> int | None:
    """The server refuses to be run by root."""
    if os.getuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres").pw_uid
    return pwd.getpwnam("nobody").pw_uid


def _binary(name: str) -> str:
    beside = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(beside[-1]) if beside else shutil.which(name)
    if found is None:
        raise RuntimeError("PostgreSQL's server is missing. On Debian: apt-get install postgresql.")
    return found
