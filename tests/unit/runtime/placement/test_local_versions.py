"""What a host reports of the versions that a restore looks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.core.ids import AttemptId, EpochId, HostId, Lineage, Slot, TaskId, Term
from tidegate.runtime.epochs.slot_placement import SlotHomes
from tidegate.runtime.placement.anchor import Anchor, Probe
from tidegate.runtime.placement.local_versions import LocalVersions
from tidegate.state.disk import left_lineages
from tidegate.state.disk.local_root import VARIABLE, LocalRoot
from tidegate.state.disk.version_directory import version_path
from tidegate.state.version import VersionId

JOB, LINEAGE = "counts", Lineage("one")
TASKS = [TaskId(1, Slot(slot)) for slot in range(3)]
WANTED = VersionId(EpochId(Term(2), 7), AttemptId(1))
OLDER = VersionId(EpochId(Term(2), 6), AttemptId(1))
VERSIONS = LocalVersions(JOB, LINEAGE, dict.fromkeys(TASKS, WANTED))


def host_with(folder: Path, *versions: tuple[TaskId, VersionId]) -> LocalRoot:
    root = LocalRoot.open(folder)
    for task, version in versions:
        version_path(root.task_directory(JOB, LINEAGE, task), version).mkdir(parents=True)
    return root


def test_a_host_reports_the_tasks_whose_expected_version_it_has(tmp_path: Path) -> None:
    root = host_with(tmp_path, (TASKS[2], WANTED), (TASKS[0], WANTED), (TASKS[1], OLDER))
    assert Probe(versions=VERSIONS, local_dir=str(tmp_path), spread_ms=0).run() == (root.host, [TASKS[0], TASKS[2]])


def test_versions_are_found_in_a_directory_that_has_moved(tmp_path: Path) -> None:
    """As a volume does that another pod mounts."""
    host = host_with(tmp_path / "old", (TASKS[0], WANTED)).host
    (tmp_path / "old").rename(tmp_path / "new")
    assert Probe(versions=VERSIONS, local_dir=str(tmp_path / "new"), spread_ms=0).run() == (host, [TASKS[0]])


def test_what_is_reported_is_not_swept(tmp_path: Path) -> None:
    root = host_with(tmp_path, (TASKS[0], WANTED))
    left_lineages.leave(root, JOB, LINEAGE)
    Probe(versions=VERSIONS, local_dir=str(tmp_path), spread_ms=0).run()
    left_lineages.sweep(root, older_than_s=-1)
    assert VERSIONS.claim_on(root) == [TASKS[0]]


@pytest.mark.feature("H11")
def test_a_slot_that_may_be_anywhere_goes_where_its_version_was_found() -> None:
    a, b = HostId("a"), HostId("b")
    homes = SlotHomes(levels=((a, None, None),), required=False)
    found = homes.or_where({TASKS[0]: b, TASKS[1]: b})
    assert found == SlotHomes(levels=((a, b, None),), required=False)
    (placed,) = found.place((b, a, b))
    assert placed.partitions[0] == 1, "the host of the run before comes first"


def test_a_lineage_is_in_use_also_if_none_of_its_versions_is_looked_for(tmp_path: Path) -> None:
    """As after a run that ended before its first checkpoint with state."""
    root = host_with(tmp_path, (TASKS[0], WANTED))
    left_lineages.leave(root, JOB, LINEAGE)
    assert Probe(versions=LocalVersions(JOB, LINEAGE, {}), local_dir=str(tmp_path), spread_ms=0).run() == (
        root.host,
        [],
    )
    left_lineages.sweep(root, older_than_s=-1)
    assert VERSIONS.claim_on(root) == [TASKS[0]]


def test_a_slot_whose_host_has_no_free_core_goes_elsewhere() -> None:
    a, b = HostId("a"), HostId("b")
    homes = SlotHomes(levels=((None, None),), required=False).or_where({TASKS[0]: a, TASKS[1]: a})
    (placed,) = homes.place((a, b))
    assert sorted(placed.partitions) == [0, 1]


class Hosts:
    """A cached frame, whose partitions are all on this host."""

    def mapInArrow(self, work: Callable[[Any], Any], schema: str) -> SimpleNamespace:
        return SimpleNamespace(toArrow=lambda: list(work(iter(()))))


@pytest.mark.feature("D31")
def test_an_ended_run_leaves_nothing_in_the_local_directory_of_its_job(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    root = host_with(tmp_path, (TASKS[0], WANTED))
    anchor = Anchor(Hosts(), (root.host,), (7,))  # type: ignore[arg-type]
    anchor.forget(JOB, Lineage("another"), str(tmp_path))
    assert VERSIONS.claim_on(root) == [TASKS[0]]
    anchor.forget(JOB, LINEAGE, str(tmp_path))
    assert VERSIONS.claim_on(root) == []
