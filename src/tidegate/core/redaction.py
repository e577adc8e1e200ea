"""Texts without the secrets that users put into them: for errors, logs, answers and whatever is stored for people.

With this module comes a filter of tidegate's log: its lines are redacted, whatever error or address they quote.
"""

from __future__ import annotations

import logging
import re

from tidegate.core.errors import GraphError

HIDDEN = "***"

# Up to the last @, since secrets of S3 have slashes in them; a port after the colon is not one.
_USERINFO = re.compile(r"""(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://[^/\s'"@:]*:(?!\d{1,5}(?:[/?#\s'"]|$))[^\s'"]*@""")
_USER = re.compile(r"""(?P<scheme>s3|s3a|s3n|gs)://[^/\s'"@]+@""", re.IGNORECASE)
"""In these a user's name is a key; in abfss://container@account it is not."""
_NAMED = re.compile(
    r"""(?P<name>[\w.-]*(?:password|passwd|secret|token|credential|signature|api[_-]?key|access[_-]?key|private[_-]?key)[\w.-]*)"""
    r"""(?P<sign>["']?\s*[=:]\s*)(?P<value>'[^']*'|"[^"]*"|[^\s,;&'"}]+)""",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """The text with passwords in URLs, and values of names such as `password` or `secret_key`, replaced by `***`."""
    text = _USERINFO.sub(rf"\g<scheme>://{HIDDEN}@", text)
    text = _USER.sub(rf"\g<scheme>://{HIDDEN}@", text)
    return _NAMED.sub(rf"\g<name>\g<sign>{HIDDEN}", text)


def has_credentials(url: str) -> bool:
    """Whether a URL carries a password or a key before its host."""
    return bool(_USERINFO.search(url) or _USER.search(url))


def refuse_credentials(url: str, what: str, instead: str) -> None:
    """Raises GraphError for an address with credentials in it: addresses are shown, in plans, logs and errors."""
    if has_credentials(url):
        raise GraphError(f"The address of {what}, {redacted(url)}, carries credentials. Give them as {instead}.")


def _redact(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    shown = redacted(text)
    if shown != text:
        record.msg, record.args = shown, ()
    return True


logging.getLogger("tidegate").addFilter(_redact)
