"""A NameNode that allows 24 items in a directory, and jobs whose logs are longer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.servers.hdfs import Hdfs
from tests.unit.checkpoint.history_kit import LAYOUT, LINE, draft, signatures
from tests.unit.checkpoint.history_kit import idle as nothing_in_flight
from tidegate.checkpoint.completed.cleaner import Cleaner
from tidegate.checkpoint.completed.completed_store import CompletedCheckpointStore
from tidegate.checkpoint.effects import perform
from tidegate.checkpoint.files.contents import CheckpointContents
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.claim import claim
from tidegate.checkpoint.job_log.log import newest
from tidegate.checkpoint.job_log.start import Start
from tidegate.storage import Patience, Storage, StorageError, open_storage

LIMIT = 24


@pytest.fixture(scope="module")
def small_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    limit = {"dfs.namenode.fs-limits.max-directory-items": str(LIMIT)}
    servers = Hdfs(tmp_path_factory.mktemp("hdfs"), limit)
    addresses = servers.addresses
    yield open_storage(f"{addresses.url}/checkpoints", patience=Patience(attempts=2, first_ms=1), **addresses.options())
    servers.stop()


def start(storage: Storage, name: str) -> CompletedCheckpointStore:
    sign = signatures(name)
    mine = perform(claim(LAYOUT, Start(), lambda: next(sign), lambda: LINE, 1, force=True), storage)
    store = CompletedCheckpointStore(LAYOUT, mine, _read, lambda: next(sign))
    perform(store.recover(), storage)
    return store


def _read(path: str, metadata: bytes) -> CheckpointContents:
    assert "checksum" in json.loads(metadata)
    return CheckpointContents(frozenset(), frozenset(), ())


@pytest.mark.budget(240)
def test_a_log_grows_past_the_number_of_items_that_hdfs_allows_in_a_directory(
    small_directories: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = small_directories
    for n in range(LIMIT):
        storage.put(f"full/{n}", b"")
    with pytest.raises(StorageError, match="directory item limit"):
        storage.put(f"full/{LIMIT}", b"")
    monkeypatch.setattr(entries, "SLOTS_PER_FOLDER", LIMIT // 3)
    for run in range(2):
        store = start(storage, f"driver-{run}")
        cleaner = Cleaner(store)
        for _ in range(LIMIT):
            id = store.entry.last_id + 1
            perform(store.append_checkpoint(draft(store, id)), storage)
            perform(cleaner.clean(nothing_in_flight(id + 1)), storage)
            perform(cleaner.trim_log(), storage)
    end = perform(newest(LAYOUT), storage)
    assert end == store.entry
    assert end.slot == 2 * LIMIT + 2
    assert len(storage.list(LAYOUT.entries)) <= LIMIT
    assert len(storage.folders(LAYOUT.entries)) <= 3
    assert len(storage.folders(LAYOUT.root)) == 3  # log, entries, and the newest checkpoint
