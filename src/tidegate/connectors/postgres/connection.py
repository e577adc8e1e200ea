"""Connections as tidegate needs them: that notice a dead server, and whose commits are durable when they are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.core.errors import PreconditionFailed

if TYPE_CHECKING:
    import psycopg

_DEFAULTS = {"application_name": "tidegate", "connect_timeout": "10", "tcp_user_timeout": "30000"}


def driver() -> Any:
    """psycopg, or an error that says how to get it."""
    try:
        import psycopg
    except ImportError as error:
        raise PreconditionFailed("PostgreSQL needs psycopg 3: pip install 'tidegate[postgres]'.") from error
    return psycopg


def connect(conninfo: str, lock_timeout_ms: int = 0) -> psycopg.Connection[Any]:
    """In autocommit: transactions begin where the code says so. Raises `psycopg.OperationalError`."""
    library = driver()
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    given = conninfo_to_dict(conninfo)
    connection: psycopg.Connection[Any] = library.connect(
        make_conninfo(conninfo, **{name: value for name, value in _DEFAULTS.items() if name not in given}),
        autocommit=True,
    )
    # An answered commit that a crash of the server may forget would be noted here as done.
    if connection.execute("SHOW synchronous_commit").fetchone() == ("off",):
        connection.execute("SET synchronous_commit TO on")
    if lock_timeout_ms:
        connection.execute(f"SET lock_timeout TO {lock_timeout_ms:d}")
    return connection
