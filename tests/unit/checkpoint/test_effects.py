"""Effects on real storage."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from tidegate.checkpoint.effects import Delete, Steps, perform
from tidegate.core.errors import StorageError
from tidegate.storage.errors import StorageUnavailable
from tidegate.storage.local import LocalStorage


class MeetingStorage(LocalStorage):
    """Storage whose deletions wait until a given number of them are under way."""

    def __init__(self, root: Path, together: int) -> None:
        super().__init__(root)
        self._barrier = threading.Barrier(together)
        self.refused = ""

    def delete(self, paths: Iterable[str]) -> None:
        self._barrier.wait(60)
        names = list(paths)
        if self.refused in names:
            raise StorageUnavailable(self.url, self.refused, "refused")
        super().delete(names)


def _filled(storage: LocalStorage, count: int) -> tuple[str, ...]:
    names = tuple(f"job/file-{n:04}" for n in range(count))
    for name in names:
        storage.put(name, b"x")
    return names


def _delete(names: tuple[str, ...], parallel: bool) -> Steps[None]:
    yield Delete(names, parallel)


@pytest.mark.feature("D23")
def test_many_files_are_deleted_by_several_threads_at_once(tmp_path: Path) -> None:
    storage = MeetingStorage(tmp_path, together=4)
    names = _filled(storage, 350)

    perform(_delete(names, True), storage)

    assert list(storage.list("job")) == []


@pytest.mark.feature("D23")
def test_without_the_option_one_call_deletes_all(tmp_path: Path) -> None:
    storage = MeetingStorage(tmp_path, together=1)
    names = _filled(storage, 350)

    perform(_delete(names, False), storage)

    assert list(storage.list("job")) == []


def test_a_deletion_that_fails_leaves_only_its_own_files(tmp_path: Path) -> None:
    storage = MeetingStorage(tmp_path, together=4)
    names = _filled(storage, 350)
    storage.refused = names[0]

    with pytest.raises(StorageError):
        perform(_delete(names, True), storage)

    assert [found.path for found in storage.list("job")] == list(names[:100])
