"""Names of processes by which another process on the same machine can check whether they are still alive."""

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
    """Return the name of the process that started this one. That of a Python worker of Spark lives as long as the executor."""
    try:
        return f"{_machine()}/{os.getppid()}/{_begun(os.getppid())}"
    except OSError:
        return ""


def is_running(process: str) -> bool:
    """Return whether a process of this machine and namespace is certainly running. False if this process cannot know."""
    machine, _, pid = process.rpartition("/")[0].rpartition("/")
    try:
        return pid.isdecimal() and machine == _machine() and _begun(int(pid)) == process.rpartition("/")[2]
    except OSError:
        return False


def has_died(process: str) -> bool:
    """Return whether a process of this machine and namespace has certainly ended. False if this process cannot know."""
    machine, _, rest = process.rpartition("/")[0].rpartition("/")
    begun = process.rpartition("/")[2]
    try:
        # Of another machine or namespace nothing is known here, and an empty name says nothing at all.
        if not rest.isdecimal() or machine != _machine():
            return False
        return _begun(int(rest)) != begun
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _machine() -> str:
    # Process numbers are those of a namespace: the boot id alone would confuse two containers of one host.
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.readlink(_PROC / 'self/ns/pid')}"


def _begun(pid: int) -> str:
    """Return the start time of a process in ticks since boot. A zombie counts as gone."""
    # proc(5): the command, in parentheses, may contain spaces and parentheses itself. Behind the last one begins field 3, so
    # the start time, field 22, is the 20th of these.
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        raise FileNotFoundError(f"process {pid} is dead")
    return fields[22 - 3]
