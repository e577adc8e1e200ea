"""The local disks of a simulated cluster."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tidegate.checkpoint.task import version_upload
from tidegate.core.ids import Lineage, TaskId
from tidegate.state.heap import table

HOSTS = 3
_SHORT_LIST_BYTES = 250
"""Of some seeds: longer lists of files are objects of their own."""
_MEMORY = Path("/dev/shm")


class SimHosts:
    """The disks of all hosts, as folders."""

    def __init__(self, rng: Random, events: Counter[str], unique_name: Callable[[], str]) -> None:
        self._rng, self._events, self._unique_name = rng, events, unique_name
        self._root = Path(tempfile.mkdtemp(prefix="tidegate-sim-", dir=_MEMORY if _MEMORY.is_dir() else None))
        self._places: dict[tuple[str, int], int] = {}
        self._stands = 0
        self.list_bytes = rng.choice((_SHORT_LIST_BYTES, version_upload.LONGEST_INSIDE_BYTES))
        self.deltas_per_list = rng.choice((0.0, 1.0, 9.0))

    def host_of(self, job: str, slot: int, move: bool = False) -> int:
        """Return the host of a task. It stays there until it moves."""
        if move or (job, slot) not in self._places:
            self._places[job, slot] = self._rng.randrange(HOSTS)
        return self._places[job, slot]

    def directory(self, host: int, job: str, lineage: Lineage, task: TaskId) -> Path:
        return self._root / f"host-{host}" / job / str(lineage) / str(task)

    def scratch(self) -> Path:
        self._stands += 1
        return self._root / f"scratch-{self._stands}"

    def lose_one(self) -> None:
        self._events["hosts lost"] += 1
        shutil.rmtree(self._root / f"host-{self._rng.randrange(HOSTS)}", ignore_errors=True)
        table.forget()

    def close(self) -> None:
        table.forget()
        shutil.rmtree(self._root, ignore_errors=True)

    @contextmanager
    def names(self) -> Iterator[None]:
        """While a seed runs: names that follow from it, and the length of lists that it wants."""
        before = version_upload.unique_name, version_upload.LONGEST_INSIDE_BYTES
        version_upload.unique_name = self._unique_name
        version_upload.LONGEST_INSIDE_BYTES = self.list_bytes
        deltas, version_upload.DELTAS_PER_LIST = version_upload.DELTAS_PER_LIST, self.deltas_per_list
        try:
            yield
        finally:
            version_upload.DELTAS_PER_LIST = deltas
            version_upload.unique_name, version_upload.LONGEST_INSIDE_BYTES = before
            self.close()
