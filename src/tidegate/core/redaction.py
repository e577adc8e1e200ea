"""Removes secrets from user-supplied text, for errors, logs, API responses and everything stored for people to read.

Importing this module installs a filter on tidegate's logger, so log lines are redacted whatever error or address they
quote.
"""

from __future__ import annotations

import logging
import re

from tidegate.core.errors import GraphError

HIDDEN = "***"

# Match up to the last @, since S3 secrets contain slashes; a port after the colon is not a password.
_USERINFO = re.compile(r"""(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://[^/\s'"@:]*:(?!\d{1,5}(?:[/?#\s'"]|$))[^\s'"]*@""")
_USER = re.compile(r"""(?P<scheme>s3|s3a|s3n|gs)://[^/\s'"@]+@""", re.IGNORECASE)
"""In these schemes the user name is a key; in abfss://container@account it is not."""
_NAMED = re.compile(
    r"""(?P<name>[\w.-]*(?:password|passwd|secret|token|credential|signature|api[_-]?key|access[_-]?key|private[_-]?key)[\w.-]*)"""
    r"""(?P<sign>["']?\s*[=:]\s*)(?P<value>'[^']*'|"[^"]*"|[^\s,;&'"}]+)""",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """Return the text with passwords in URLs, and values of names such as `password` or `secret_key`, replaced by
    `***`."""
    # Addresses first: a password in one may contain the characters that end a named value.
    text = _USERINFO.sub(rf"\g<scheme>://{HIDDEN}@", text)
    text = _USER.sub(rf"\g<scheme>://{HIDDEN}@", text)
    return _NAMED.sub(rf"\g<name>\g<sign>{HIDDEN}", text)


def has_credentials(url: str) -> bool:
    """Return whether a URL carries a password or a key before its host."""
    return bool(_USERINFO.search(url) or _USER.search(url))


def refuse_credentials(url: str, what: str, instead: str) -> None:
    """Raise GraphError if an address contains credentials, since plans, logs and errors show addresses."""
    if has_credentials(url):
        raise GraphError(
            f"The address of {what}, {redacted(url)}, contains credentials. Pass them as {instead} instead."
        )


def _redact(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    shown = redacted(text)
    if shown != text:
        # The text is complete. Left in place, the arguments would be formatted into it a second time.
        record.msg, record.args = shown, ()
    return True


logging.getLogger("tidegate").addFilter(_redact)
