"""Names of processes that tell, on the same machine, whether a process of that name still lives."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_PROC = Path("/proc")


@cache
def this_process() -> str:
    """`machine's boot / process namespace / pid / when it began`; empty where the system does not tell."""
    try:
        return f"{_machine()}/{os.getpid()}/{_begun(os.getpid())}"
    except OSError:
        return ""


def has_died(process: str) -> bool:
    """Whether a process of this machine and namespace is certainly gone. False where nobody here can know."""
    machine, _, rest = process.rpartition("/")[0].rpartition("/")
    begun = process.rpartition("/")[2]
    try:
        if not rest.isdecimal() or machine != _machine():
            return False
        return _begun(int(rest)) != begun
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _machine() -> str:
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.readlink(_PROC / 'self/ns/pid')}"


def _begun(pid: int) -> str:
    """When a process began, in ticks since the boot; a dead one that nobody has waited for counts as gone."""
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        raise FileNotFoundError(f"process {pid} is dead")
    return fields[19]
