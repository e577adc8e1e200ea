"""One name for one place, however its address is spelled: a log remembers where it is, so that a copy of it is noticed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FAMILIES = {
    "s3a": "s3",
    "s3n": "s3",
    "webhdfs": "hdfs",
    "swebhdfs": "hdfs",
    "abfs": "az",
    "abfss": "az",
    "azure": "az",
    "adl": "az",
}
"""Schemes that reach the same objects by another protocol."""


def place_of(url: str) -> str:
    """Return the place of a directory or prefix, from its address.

    A path is absolute, without symbolic links. The endpoint of an object store and the port of a NameNode are not part of it:
    one store answers under several. So a store of another machine with a bucket of the same name is taken for the same place.
    """
    scheme, remote, _ = url.partition("://")
    if not remote or scheme.lower() == "file":
        path = unquote(urlsplit(url).path) if remote else os.path.expanduser(url)
        return Path(os.path.realpath(path)).as_uri()
    parts = urlsplit(url)
    family = _FAMILIES.get(scheme.lower(), scheme.lower())
    # The port of HDFS depends on the protocol. Names of buckets have no port.
    host = (parts.hostname or "") if family == "hdfs" else parts.netloc
    path = re.sub("/+", "/", parts.path).rstrip("/")
    return f"{family}://{host}{path}"
