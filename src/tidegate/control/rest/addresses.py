"""Hosts and ports as people write them. An IPv6 address has colons itself, so it is in brackets wherever a port may follow."""

from __future__ import annotations

import ipaddress

WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that a server listens on and nobody connects to, and the one by which this machine reaches such a server."""


def plain_host(host: str) -> str:
    """Return a host as sockets take it: without brackets, and an address in the one form by which it can be compared."""
    name = host.strip().lower()
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def host_and_port(host: str, port: int | str) -> str:
    """Return both as a part of a URL, and as `-m` takes them."""
    name = plain_host(host)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
