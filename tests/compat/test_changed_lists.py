"""A list of files of which only the changes were stored is read for ever. Its checksum covers the list in its packed form, so
that form may not change either. The files in `metadata/` are never written again."""

from __future__ import annotations

from pathlib import Path

from tests.compat.test_metadata_formats import stored, version
from tidegate.checkpoint.files.file_lists import list_in
from tidegate.checkpoint.files.list_delta import delta_from, encode_delta
from tidegate.checkpoint.metadata import FileList, StoredFileList

GOLDEN = Path(__file__).parent / "metadata"
BASE_PATH, CHANGE_PATH = "shared/3/L1-S0/7/chk-9-files-c3", "shared/3/L1-S0/19/chk-12-files-d4"
OLD, NEW = version(40, 7), version(44, 19)

KEPT = stored("000007.sst", "shared/3/L1-S0/7/chk-9-a1", 4096, OLD, 9)
BEFORE = FileList([KEPT, stored("000009.sst", "shared/3/L1-S0/7/chk-9-b2", 512, OLD, 9)])
AFTER = FileList([KEPT, stored("000012.sst", "shared/3/L1-S0/19/chk-12-c3", 2048, NEW, 12)])


def changed() -> bytes:
    change = delta_from(StoredFileList.of(BEFORE, BASE_PATH), BEFORE, AFTER, None)
    assert change is not None
    return encode_delta(change)


def test_a_changed_list_stays_readable() -> None:
    base, change = (GOLDEN / "list.json").read_bytes(), (GOLDEN / "list-change.json").read_bytes()
    reference = StoredFileList.to(AFTER, CHANGE_PATH, change, BASE_PATH)
    assert list_in(reference, [change, base]) == AFTER


def test_what_is_written_now_is_what_was_written_then() -> None:
    assert BEFORE.packed == (GOLDEN / "list.json").read_bytes()
    assert changed() == (GOLDEN / "list-change.json").read_bytes()
