"""From metadata to names in storage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.checkpoint.history_kit import LINE, committable
from tidegate.checkpoint.files.contents import CheckpointContents, contents_of, reader
from tidegate.checkpoint.files.file_lists import objects_of
from tidegate.checkpoint.metadata import CheckpointMetadata, FileList, SnapshotKind, StateFile, TaskState, encode
from tidegate.core.ids import AttemptId, EpochId, Slot, TaskId, Term
from tidegate.state.version import VersionId
from tidegate.storage.handle import PART_BYTES

VERSION = VersionId(EpochId(Term(1), 2), AttemptId(3))


def file(name: str, size: int = 10) -> StateFile:
    return StateFile(name, f"shared/1/t/3/{name}", size, "sha256:00", VERSION, 1)


def metadata() -> CheckpointMetadata:
    files = FileList([file("a"), file("big", 2 * PART_BYTES + 1)])
    return CheckpointMetadata(
        job="job",
        lineage=LINE,
        checkpoint_id=1,
        term=Term(1),
        epoch=VERSION.epoch,
        kind=SnapshotKind.CHECKPOINT,
        triggered_ms=0,
        completed_ms=0,
        tidegate_version="0",
        spark_version="4",
        max_parallelism=8,
        parallelism=1,
        clock_ms=0,
        tasks=(TaskState(task=TaskId(1, Slot(0)), key_groups=(0, 7), backend="rocksdb", version=VERSION, files=files),),
        committables=(committable(1),),
    )


def names_in(contents: CheckpointContents) -> set[str]:
    lists = [each.files for each in contents.lists]
    assert all(isinstance(files, FileList) for files in lists)
    return {name for files in lists for name in objects_of(contents.root, files, files)} | contents.files


@pytest.mark.feature("E6", "F32")
def test_a_checkpoint_needs_every_object_of_every_file() -> None:
    found = reader(lambda c: [c.payload.decode()])("job/chk-1/_metadata", encode(metadata()))
    assert names_in(found) == {f"job/shared/1/t/3/{n}" for n in ("a", "big.00000", "big.00001", "big.00002")}
    assert found.staged == {"rows-1-1"}
    assert found.committables == (committable(1),)


@pytest.mark.feature("I7")
def test_names_in_a_savepoint_are_relative_to_it() -> None:
    savepoint = replace(metadata(), kind=SnapshotKind.SAVEPOINT)
    found = contents_of("savepoints/x/_metadata", savepoint, lambda c: ())
    assert "savepoints/x/shared/1/t/3/a" in names_in(found)
    assert found.lists_in("job") == ()
