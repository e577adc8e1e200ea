"""Connections that detect a dead server, and whose commits are durable once acknowledged."""

from __future__ import annotations

import getpass
import os
import re
import select
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.connectors.postgres.refusal import Refusal
from tidegate.core.errors import PreconditionFailed
from tidegate.core.redaction import HIDDEN, redacted

if TYPE_CHECKING:
    import psycopg

# The kernel ends a connection whose server has acknowledged nothing for 30 s. Without it, that takes a quarter of an
# hour.
_DEFAULTS = {"application_name": "tidegate", "connect_timeout": "10", "tcp_user_timeout": "30000"}


def driver() -> Any:
    """Return psycopg, or raise an error that says how to install it."""
    try:
        import psycopg
    except ImportError as error:
        raise PreconditionFailed("PostgreSQL needs psycopg 3: pip install 'tidegate[postgres]'.") from error
    return psycopg


def _without_password(text: str, conninfo: str, password: object) -> str:
    """Redact an error of the server or of the resolver. A password with an unescaped @ ends up in the host name."""
    _, _, address = conninfo.partition("://")
    userinfo = address.rpartition("@")[0]
    # Also parts of it: libpq cuts an address at the first special character that is not escaped.
    secrets = {str(password or ""), *re.split("[@/?#]", userinfo.partition(":")[2])}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN) if len(secret) > 1 else text
    return redacted(text)


# How long one more try may take, only to learn why the first has failed.
_ASK_S = 5.0


def refusal_of(error: BaseException, conninfo: str) -> Refusal | None:
    """Return why the connection is refused until the address, the user or the password is corrected; None if it may succeed
    later. Asks the server once more if the text of the error does not say so.
    """
    refusal = Refusal.of(error)
    if refusal is not None or isinstance(error, driver().errors.ConnectionTimeout):  # nobody answers
        return refusal
    state = _refusal_state(conninfo)
    return None if state is None else Refusal.of(error, state)


def _refusal_state(conninfo: str) -> str | None:
    """Connect once more and return the SQLSTATE with which the server refuses. None: it does not, or nobody can say.

    libpq has no function that returns it for a connection that failed, and the text is in the language of the server. But libpq
    writes the answer of the server to a trace.
    """
    library = driver()
    try:
        trace = os.fdopen(os.memfd_create("tidegate-connect"), "w+b")  # in memory only: it may hold the password
    except (AttributeError, OSError):
        return None  # only Linux has such files, and traces
    with trace, suppress(library.Error, OSError):
        connection = library.pq.PGconn.connect_start(conninfo.encode())
        try:
            connection.trace(trace.fileno())
            _finish_connecting(connection, library.pq.PollingStatus)
            connection.untrace()
        finally:
            connection.finish()
        trace.seek(0)
        states = _STATE.findall(trace.read())
        return states[-1].decode() if states else None
    return None


_STATE = re.compile(rb'ErrorResponse.*? C "([0-9A-Z]{5})"')


def _finish_connecting(connection: Any, status: Any) -> None:
    """Take the steps that libpq asks for, until the connection is there or refused, or `_ASK_S` have passed."""
    until = time.monotonic() + _ASK_S
    step = status.WRITING  # as libpq's manual says for the first step
    while step not in (status.OK, status.FAILED):
        reads, writes = ([connection.socket], []) if step == status.READING else ([], [connection.socket])
        if not any(select.select(reads, writes, [], max(0.0, until - time.monotonic()))):
            return
        step = connection.connect_poll()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a conninfo leads, for messages. Parts that it leaves out come from the environment."""

    hosts: tuple[str, ...]
    """Each with its port."""
    database: str
    user: str

    @staticmethod
    def of(conninfo: str) -> Address:
        from psycopg.conninfo import conninfo_to_dict

        given = conninfo_to_dict(conninfo)

        def part(name: str, variable: str, default: str) -> str:
            return str(given.get(name) or os.environ.get(variable) or default)

        user = part("user", "PGUSER", getpass.getuser())
        hosts = part("host", "PGHOST", "localhost").split(",")
        ports = part("port", "PGPORT", "5432").split(",")
        # One port is for all hosts; an empty one is the default.
        ports = ports * len(hosts) if len(ports) == 1 else ports
        pairs = tuple(f"{host}:{port or 5432}" for host, port in zip(hosts, ports))
        return Address(pairs, part("dbname", "PGDATABASE", user), user)

    def __str__(self) -> str:
        return f"{', '.join(self.hosts)}, database {self.database!r}, user {self.user!r}"


def host_names(conninfo: str) -> list[str]:
    """Return the names of hosts in a conninfo; nothing for a socket of this machine or an address."""
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(conninfo)
    if given.get("hostaddr") or os.environ.get("PGHOSTADDR"):
        return []
    hosts = str(given.get("host") or os.environ.get("PGHOST") or "").split(",")
    return [host for host in hosts if host and not host.startswith(("/", "@"))]


def connect(conninfo: str, lock_timeout_ms: int = 0) -> psycopg.Connection[Any]:
    """Open a connection in autocommit mode: transactions begin where the code says so. Raises `psycopg.OperationalError`."""
    library = driver()
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        given = conninfo_to_dict(conninfo)
    except library.Error:
        # The library's own message quotes the text.
        raise PreconditionFailed(
            "The conninfo of PostgreSQL cannot be parsed: it is neither 'host=… dbname=… user=…' nor a postgresql:// "
            "address whose special characters are written as %40. It is not shown, since it may hold a password."
        ) from None
    try:
        connection: psycopg.Connection[Any] = library.connect(
            make_conninfo(conninfo, **{name: value for name, value in _DEFAULTS.items() if name not in given}),
            autocommit=True,
        )
    except library.OperationalError as error:
        raise type(error)(_without_password(str(error), conninfo, given.get("password"))) from None
    # Otherwise a commit that a server crash may lose would be recorded here as done.
    if connection.execute("SHOW synchronous_commit").fetchone() == ("off",):
        connection.execute("SET synchronous_commit TO on")
    # Otherwise the server learns after two hours that a client's host is gone, and keeps its locks until then.
    connection.execute(
        "SELECT set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false), "
        "set_config('tcp_keepalives_count', '3', false)"
    )
    if lock_timeout_ms:
        connection.execute(f"SET lock_timeout TO {lock_timeout_ms:d}")
    return connection
