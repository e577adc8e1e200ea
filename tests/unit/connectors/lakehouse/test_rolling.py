"""Files of one attempt: closed in time, all told of, all removed when it fails."""

from __future__ import annotations

import pyarrow as pa

from tidegate.connectors.lakehouse.rolling import MAX_OPEN_FILES, RollingFiles

EIGHT_BYTES = pa.RecordBatch.from_arrays([pa.array([1], pa.int64())], names=["n"])


class File:
    """Remembers what happened to it."""

    def __init__(self, folder: Folder, partition, number: int) -> None:
        self.folder, self.name, self.rows = folder, f"{partition}-{number}", 0
        folder.open.add(self.name)

    def write(self, batch):
        self.rows += batch.num_rows

    def close(self):
        self.folder.open.discard(self.name)
        self.folder.files[self.name] = self.rows
        return self.name

    def remove(self):
        self.folder.open.discard(self.name)
        self.folder.files.pop(self.name, None)
        raise OSError("some stores complain")


class Folder:
    def __init__(self, target_bytes: int) -> None:
        self.open: set[str] = set()
        self.files: dict[str, int] = {}
        self.rolling = RollingFiles(lambda partition, number: File(self, partition[0], number), target_bytes)


def test_a_file_that_is_large_enough_is_closed_and_the_next_begun():
    folder = Folder(target_bytes=16)
    for _ in range(5):
        folder.rolling.write(("a",), EIGHT_BYTES)

    assert folder.rolling.close() == ["a-0", "a-1", "a-2"]
    assert folder.files == {"a-0": 2, "a-1": 2, "a-2": 1}


def test_rows_in_memory_are_bounded_over_all_partitions():
    folder = Folder(target_bytes=16)
    for partition in "abcdef":
        folder.rolling.write((partition,), EIGHT_BYTES)

    assert len(folder.open) <= 4


def test_open_files_are_bounded_and_a_partition_may_come_again():
    folder = Folder(target_bytes=1 << 20)
    for number in range(2 * MAX_OPEN_FILES):
        folder.rolling.write((number % (MAX_OPEN_FILES + 1),), EIGHT_BYTES)

    assert len(folder.open) <= MAX_OPEN_FILES
    folder.rolling.close()
    assert sum(folder.files.values()) == 2 * MAX_OPEN_FILES


def test_a_failed_attempt_removes_closed_files_and_open_ones_whatever_the_store_says():
    folder = Folder(target_bytes=8)
    folder.rolling.write(("a",), EIGHT_BYTES)
    folder.rolling.write(("b",), EIGHT_BYTES.slice(0, 0))

    folder.rolling.remove()
    assert (folder.open, folder.files) == (set(), {})
