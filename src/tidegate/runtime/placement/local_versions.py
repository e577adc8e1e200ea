"""The versions that a restore wants, and where hosts have them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from tidegate.checkpoint.task.version_restore import RestoreOrder
from tidegate.core.ids import Lineage, TaskId
from tidegate.state.disk import left_lineages
from tidegate.state.disk.local_root import LocalRoot
from tidegate.state.disk.version_directory import version_path
from tidegate.state.version import VersionId


@dataclass(frozen=True, slots=True)
class LocalVersions:
    """Of one lineage."""

    job: str
    lineage: Lineage
    wanted: Mapping[TaskId, VersionId]
    """The version of each task that it can use as it is."""

    @classmethod
    def of(cls, job: str, lineage: Lineage, orders: Mapping[TaskId, RestoreOrder]) -> LocalVersions:
        wanted = {task: version for task, order in orders.items() if (version := order.local_version()) is not None}
        return cls(job, lineage, wanted)

    def claim_on(self, root: LocalRoot) -> list[TaskId]:
        """Return the tasks whose version is on this host. Nobody removes them from now on."""
        # First: from here no other job removes what is looked for.
        left_lineages.take_back(root, self.job, self.lineage)
        with suppress(FileNotFoundError):
            # Of thousands of tasks, a host has had a few.
            here = set(os.listdir(root.lineage_directory(self.job, self.lineage)))
            return [task for task in sorted(self.wanted) if str(task) in here and self._has(root, task)]
        return []

    def _has(self, root: LocalRoot, task: TaskId) -> bool:
        return version_path(root.task_directory(self.job, self.lineage, task), self.wanted[task]).is_dir()
