"""Memory and disk that are left where a task runs. A few small files are read, at most once a second."""

from __future__ import annotations

import os
import resource
import time
from functools import cache
from pathlib import Path

from tidegate.runtime.exchange.messages import HostResources

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""What cgroups of version 1 say if there is no limit is a little below 2**63."""


_EVERY_S = 1.0
_measured: dict[Path, tuple[float, HostResources]] = {}


def host_resources(directory: Path) -> HostResources:
    """Return the resources as they were at most a second ago: many tasks of many short epochs ask."""
    now, found = time.monotonic(), _measured.get(directory)
    if found is None or now - found[0] >= _EVERY_S:
        found = _measured[directory] = now, measure(directory)
    return found[1]


def measure(directory: Path) -> HostResources:
    """Measure memory within its tightest limit, and the disk that holds `directory`."""
    # Whichever limit is reached first ends the process.
    used, budget = max((_of_worker(), _of_container(), _of_host()), key=_share)
    try:
        disk = os.statvfs(directory)
    except OSError:
        return HostResources(memory_used_bytes=used, memory_budget_bytes=budget)
    return HostResources(
        memory_used_bytes=used,
        memory_budget_bytes=budget,
        disk_free_bytes=disk.f_bavail * disk.f_frsize,
        disk_size_bytes=disk.f_blocks * disk.f_frsize,
    )


def _share(memory: tuple[int, int]) -> float:
    used, budget = memory
    return used / budget if budget else -1.0


def _of_worker() -> tuple[int, int]:
    """Spark limits the address space of a worker to spark.executor.pyspark.memory."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return 0, 0
    return int((_text(_PROC / "self" / "statm") or "0").split()[0]) * _PAGE_BYTES, limit


def _of_container() -> tuple[int, int]:
    """The cgroup with the tightest limit. The page cache, which the kernel gives back, does not count as used."""
    return max((_of_cgroup(folder, *names) for folder, names in _limited_cgroups()), key=_share, default=(0, 0))


def _of_cgroup(folder: Path, limit_name: str, used_name: str, cache_name: str) -> tuple[int, int]:
    limit, used = _text(folder / limit_name), _text(folder / used_name)
    if limit is None or used is None or not limit.strip().isdigit() or int(limit) >= _NO_LIMIT:
        return 0, 0
    for line in (_text(folder / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == cache_name:
            # The cache counts as used in the cgroup, but the kernel drops it before it kills anybody.
            return max(0, int(used) - int(value)), int(limit)
    return int(used), int(limit)


_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@cache
def _limited_cgroups() -> tuple[tuple[Path, tuple[str, str, str]], ...]:
    """The cgroups of this process, from its own to the root, that have a file for a limit."""
    found: list[tuple[Path, tuple[str, str, str]]] = []
    for line in (_text(_PROC / "self" / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = _CGROUPS, _V2
        elif "memory" in controllers.split(","):
            root, names = _CGROUPS / "memory", _V1
        else:
            continue
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            if (folder / names[0]).exists():
                found.append((folder, names))
            if folder == root:
                break
    return tuple(found)


def _of_host() -> tuple[int, int]:
    values = {}
    for line in (_text(_PROC / "meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        values[name] = int(value.split()[0]) * 1024
        if "MemTotal" in values and "MemAvailable" in values:
            return values["MemTotal"] - values["MemAvailable"], values["MemTotal"]
    return 0, 0


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except OSError:
        return None
