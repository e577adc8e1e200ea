"""What to do about a connection that a server of PostgreSQL, or the client, refuses whenever it is asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ATTEMPT = re.compile(
    r"^- host: '(?P<host>[^\n]*?)', port: '?(?P<port>\d*)'?[^\n]*?: (?=connection |failed )", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class _Cause:
    pattern: str
    """Part of what is said in English."""
    states: tuple[str, ...]
    """SQLSTATE, which says it in any language if only this cause has it."""
    advice: str
    """May contain {user} and {database}."""


_CAUSES = (
    _Cause(
        "no password supplied",
        (),
        "The conninfo of the sink has no password: add password=…, or set PGPASSWORD on the driver and the executors.",
    ),
    _Cause(
        "password authentication failed|authentication failed for user",
        ("28P01",),
        "Correct user and password in the conninfo of the sink, or PGPASSWORD if it takes them from there.",
    ),
    _Cause(
        'database "[^"]*" does not exist',
        ("3D000",),
        "Create the database (CREATE DATABASE {database}), or correct dbname in the conninfo of the sink.",
    ),
    _Cause(
        'role "[^"]*" does not exist',
        (),
        "Create the role (CREATE ROLE {user} LOGIN PASSWORD '…'), or correct user in the conninfo of the sink.",
    ),
    _Cause(
        "is not permitted to log in",
        (),
        "Allow it (ALTER ROLE {user} LOGIN), or correct user in the conninfo of the sink.",
    ),
    _Cause(
        r"no pg_hba\.conf entry.*(no encryption|SSL off)",
        (),
        "The server does not let this user into this database from here without TLS: add sslmode=require to the conninfo of the "
        "sink, or have the server's pg_hba.conf allow it.",
    ),
    _Cause(
        r"no pg_hba\.conf entry|pg_hba\.conf rejects",
        (),
        "The server does not let this user into this database from here: have an entry added to its pg_hba.conf, also for the "
        "executors.",
    ),
    _Cause(
        "permission denied for database",
        ("42501",),
        "Allow it: GRANT CONNECT ON DATABASE {database} TO {user}.",
    ),
    _Cause(
        "does not support SSL, but SSL was required",
        (),
        "Remove sslmode from the conninfo of the sink, or write sslmode=prefer; or turn ssl on at the server.",
    ),
    _Cause(
        'certificate file "[^"]*" does not exist',
        (),
        "Correct sslrootcert, sslcert or sslkey in the conninfo of the sink: driver and executors need the file.",
    ),
    # Without a text in English: not allowed to log in, for one of several reasons.
    _Cause(
        "(?!)",
        ("28000",),
        "Check that the role exists and may log in, and that the server's pg_hba.conf lets it in from here.",
    ),
    _Cause("does not exist", (), "Create what is missing, or correct the conninfo of the sink."),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection was refused, in the words of the server, and what to do."""

    reason: str
    advice: str
    host: str = ""
    """Which host has refused, as `host:port`, if there are several."""

    @staticmethod
    def of(error: BaseException, state: str | None = None) -> Refusal | None:
        """Return the refusal of the first host that refused. None if the connection may succeed later.

        `state`: the SQLSTATE of the refusal, which says so in any language.
        """
        attempts = _attempts(str(error))
        state = state or getattr(error, "sqlstate", None)
        for host, text in attempts:
            for cause in _CAUSES:
                # With a SQLSTATE that is clear, the text does not matter: it is in the language of the server.
                if state in cause.states or (state in (None, *_UNCLEAR) and re.search(cause.pattern, text, re.DOTALL)):
                    return Refusal(_reason(text), cause.advice, host if len(attempts) > 1 else "")
        return None


_UNCLEAR = ("28000",)
"""The text says more than these."""


def _attempts(text: str) -> Sequence[tuple[str, str]]:
    """Split what psycopg says: it tries all hosts, and lists what each one said after the last one's words."""
    listed = list(_ATTEMPT.finditer(text))
    if not listed:
        return [("", text)]
    ends = [*(each.start() for each in listed[1:]), len(text)]
    return [(f"{each['host']}:{each['port']}", text[each.end() : end]) for each, end in zip(listed, ends)]


def _reason(text: str) -> str:
    """What was said last: libpq puts the address before it, and repeats that for each address that it tried."""
    said = text.strip().rpartition(" failed: ")[2]
    lines = [line.strip().rstrip(".") for line in said.removeprefix("FATAL:").splitlines()]
    return "; ".join(line for line in lines if line)
