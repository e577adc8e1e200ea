"""Process names from which another process on the same machine can tell whether the process is still alive."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_PROC = Path("/proc")


@cache
def this_process() -> str:
    """`boot id of the machine / pid namespace / pid / start time`; empty if the system does not provide these."""
    try:
        return f"{_machine()}/{os.getpid()}/{_begun(os.getpid())}"
    except OSError:
        return ""


@cache
def parent_process() -> str:
    """The same for the process that started this one. Of a Python worker of Spark, it lives as long as the executor."""
    try:
        return f"{_machine()}/{os.getppid()}/{_begun(os.getppid())}"
    except OSError:
        return ""


def is_running(process: str) -> bool:
    """Whether a process of this machine and namespace is certainly running. False if this process cannot know."""
    machine, _, pid = process.rpartition("/")[0].rpartition("/")
    try:
        return pid.isdecimal() and machine == _machine() and _begun(int(pid)) == process.rpartition("/")[2]
    except OSError:
        return False


def has_died(process: str) -> bool:
    """Whether a process of this machine and namespace has certainly ended. False if this process cannot know."""
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
    """Return the start time of a process in ticks since boot. A zombie counts as gone."""
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        raise FileNotFoundError(f"process {pid} is dead")
    return fields[19]
