"""Tells a host that does not exist from one that does not answer."""

from __future__ import annotations

import socket
from collections.abc import Collection

# EAI_NODATA: the name exists and has no address. Not every system has the code.
_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def none_exists(names: Collection[str]) -> bool:
    """Whether all these names are said not to exist. A name server that does not answer says nothing about them."""
    return bool(names) and all(map(_does_not_exist, names))


def _does_not_exist(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror as error:
        return error.errno in _NO_SUCH_NAME
    except UnicodeError:
        return True  # too long for a name, or an empty part in it
    return False
