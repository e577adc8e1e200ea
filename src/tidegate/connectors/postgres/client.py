"""Connections that detect a dead server, and whose commits are durable once acknowledged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import PreconditionFailed
from tidegate.core.redaction import HIDDEN, redacted

if TYPE_CHECKING:
    import psycopg

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
    secrets = {str(password or ""), *re.split("[@/?#]", userinfo.partition(":")[2])}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN) if len(secret) > 1 else text
    return redacted(text)


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
    if lock_timeout_ms:
        connection.execute(f"SET lock_timeout TO {lock_timeout_ms:d}")
    return connection
