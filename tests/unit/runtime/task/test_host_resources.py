"""Memory and disk where a task runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tidegate.runtime.task import host_resources as measured
from tidegate.runtime.task.host_resources import host_resources, measure


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with 1000 kB of memory, 400 of them in use, whose /proc and cgroups are files of the test."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\n")
    monkeypatch.setattr(measured, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(measured, "_CGROUPS", tmp_path / "cgroups")
    measured._limited_cgroups.cache_clear()
    yield tmp_path
    measured._limited_cgroups.cache_clear()


def cgroup(host: Path, path: str, limit: str, used: int, cached: int) -> None:
    folder = host / "cgroups" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")


def test_the_disk_is_that_of_the_state(tmp_path: Path) -> None:
    found = measure(tmp_path)
    assert found.disk_size_bytes == pytest.approx(shutil.disk_usage(tmp_path).total, rel=0.01)
    assert 0 < found.disk_free_bytes <= found.disk_size_bytes
    assert 0 < found.memory_used_bytes < found.memory_budget_bytes


def test_without_limits_the_host_is_the_limit(host: Path) -> None:
    found = measure(host)
    assert (found.memory_used_bytes, found.memory_budget_bytes) == (400 * 1024, 1000 * 1024)


def test_a_container_that_is_fuller_than_the_host_is_the_limit(host: Path) -> None:
    (host / "proc" / "self" / "cgroup").write_text("0::/pod/worker\n")
    cgroup(host, "pod/worker", "max", 90, 0)
    cgroup(host, "pod", "100", 90, 20)
    found = measure(host)
    assert (found.memory_used_bytes, found.memory_budget_bytes) == (70, 100)


def test_an_older_kernel_has_its_limits_elsewhere(host: Path) -> None:
    (host / "proc" / "self" / "cgroup").write_text("7:cpu,cpuacct:/x\n5:memory:/\n")
    folder = host / "cgroups" / "memory"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("200\n")
    (folder / "memory.usage_in_bytes").write_text("180\n")
    assert measure(host).memory_budget_bytes == 200


def test_a_host_without_proc_reports_nothing(host: Path) -> None:
    (host / "proc" / "meminfo").unlink()
    assert measure(host / "missing").memory_budget_bytes == 0


def test_tasks_that_follow_each_other_share_a_measurement(host: Path) -> None:
    first = host_resources(host)
    (host / "proc" / "meminfo").write_text("MemTotal: 10 kB\nMemAvailable: 5 kB\n")
    assert host_resources(host) is first
    assert measure(host).memory_budget_bytes == 10 * 1024
