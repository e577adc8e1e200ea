"""Every `_metadata` format ever written is readable for ever. The files in `metadata/` are never written again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.checkpoint.metadata import (
    NEWEST_FORMAT,
    CheckpointMetadata,
    CommittedMark,
    Distribution,
    ElementCount,
    FileList,
    InlineFile,
    OperatorInfo,
    QueryFile,
    SnapshotKind,
    SourcePosition,
    SplitTime,
    StateFile,
    StateInfo,
    StateNumber,
    StoredFileList,
    StoredOutput,
    TaskState,
    decode,
    encode,
)
from tidegate.checkpoint.metadata.stored_output import encode_output
from tidegate.connectors.sink import Committable
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid
from tidegate.state.version import VersionId

GOLDEN = Path(__file__).parent / "metadata"


def version(number: int, attempt: int, term: int = 3) -> VersionId:
    return VersionId(EpochId(Term(term), number), AttemptId(attempt))


def stored(name: str, path: str, size: int, origin: VersionId, since: int) -> StateFile:
    return StateFile(name, path, size, "sha256:" + f"{size:064x}", origin, since)


def expected() -> CheckpointMetadata:
    """What format-1.json was written from."""
    old, new = version(40, 7), version(44, 19)
    total = StateInfo(name="total", id=1, kind="value", value={"type": "float"}, ttl_ms=86_400_000)
    seen = StateInfo(
        name="seen", id=2, kind="map", value={"type": "int"}, map_key={"type": "str"}, namespace={"type": "window"}
    )
    rules = StateInfo(
        name="rules",
        id=3,
        kind="map",
        value={"type": "str"},
        map_key={"type": "str"},
        distribution=Distribution.BROADCAST,
    )
    offsets = StateInfo(name="offsets", id=4, kind="list", value={"type": "int"}, distribution=Distribution.SPLIT)
    epoch = EpochId(Term(3), 44)
    return CheckpointMetadata(
        job="orders",
        lineage=Lineage("f3b1"),
        checkpoint_id=12,
        term=Term(3),
        epoch=epoch,
        kind=SnapshotKind.CHECKPOINT,
        triggered_ms=1_767_225_600_000,
        completed_ms=1_767_225_601_250,
        tidegate_version="0.1.0",
        spark_version="4.3.0",
        max_parallelism=128,
        parallelism=2,
        clock_ms=1_767_225_599_990,
        watermark_ms=1_767_225_590_000,
        operators=(
            OperatorInfo(Uid("totals"), 1, 2, "rocksdb", {"type": "str"}, (total, seen)),
            OperatorInfo(Uid("größe"), 2, 2, "rocksdb", None, (rules, offsets)),
        ),
        state_numbers=(
            StateNumber(Uid("totals"), "total", 1),
            StateNumber(Uid("totals"), "seen", 2),
            StateNumber(Uid("größe"), "rules", 3),
            StateNumber(Uid("größe"), "offsets", 4),
            StateNumber(Uid("gone"), "count", 5),
        ),
        tasks=(
            TaskState(
                task=TaskId(1, Slot(0)),
                key_groups=(0, 63),
                backend="rocksdb",
                version=new,
                files=FileList(
                    [
                        stored("000012.sst", "shared/3/L1-S0/7/chk-11-a1", 67_108_864, old, 11),
                        stored("000015.sst", "shared/3/L1-S0/19/chk-12-b2", 4_096, new, 12),
                    ]
                ),
                inline=(InlineFile("MANIFEST", new, b"\x00\xffmanifest"),),
            ),
            TaskState(task=TaskId(1, Slot(1)), key_groups=(64, 127), backend="rocksdb", version=version(44, 20)),
            TaskState(
                task=TaskId(2, Slot(0)),
                key_groups=(0, 63),
                backend="rocksdb",
                version=version(44, 21),
                elements=(ElementCount(4, 3),),
            ),
            TaskState(
                task=TaskId(2, Slot(1)),
                key_groups=(64, 127),
                backend="rocksdb",
                version=version(44, 22),
                elements=(ElementCount(4, 2),),
            ),
        ),
        positions=(
            SourcePosition(Uid("clicks"), ('{"clicks":{"0":15,"1":9}}',)),
            SourcePosition(
                Uid("files"),
                ('{"logOffset":4}',),
                FileList([stored("sources/1/4", "chk-12/sources-1-4", 210, new, 12)]),
            ),
        ),
        query=(QueryFile("metadata", '{"id":"0d5e"}'), QueryFile("offsets/17", 'v1\n{"batchWatermarkMs":0}\n{}')),
        splits=(SplitTime(Uid("clicks"), "0", 1_767_225_595_000), SplitTime(Uid("clicks"), "1", 1_767_225_592_000)),
        committables=(
            Committable(lineage=Lineage("f3b1"), sink=Uid("out"), slot=0, epoch=EpochId(Term(2), 9), payload=b"part-0"),
            Committable(lineage=Lineage("f3b1"), sink=Uid("out"), slot=0, epoch=epoch, payload=b"\x00\x01"),
        ),
        committed=(CommittedMark(Lineage("f3b1"), Uid("out"), 1, EpochId(Term(3), 43)),),
    )


def with_stored_list() -> CheckpointMetadata:
    """What format-2.json was written from: the same, but the first task's list is an object of its own."""
    before = expected()
    first, *others = before.tasks
    assert isinstance(first.files, FileList)
    list_of_first = StoredFileList.of(first.files, "shared/3/L1-S0/19/chk-12-files-c3")
    return replace(before, tasks=(replace(first, files=list_of_first), *others))


def with_changes_only() -> CheckpointMetadata:
    """What format-3.json was written from: the changes of the first task's list are stored, and a note of a source in parts."""
    before = with_stored_list()
    first, *others = before.tasks
    assert isinstance(first.files, StoredFileList)
    changed = replace(first.files, path="shared/3/L1-S0/19/chk-12-files-d4", base="shared/3/L1-S0/7/chk-9-files-c3")
    clicks, files = before.positions
    origin = version(44, 0)
    parts = [
        stored("9.compact.part-0000", "chk-10/a1", 50_000, origin, 10),
        stored("9.compact.part-0001", "chk-12/b2", 20_000, origin, 12),
    ]
    positions = (clicks, replace(files, files=FileList(parts)))
    return replace(before, tasks=(replace(first, files=changed), *others), positions=positions)


def with_stored_output() -> CheckpointMetadata:
    """What format-4.json was written from: most of the output waits in objects, of one of them a part."""
    whole = StoredOutput(path="chk-10/output-3-0", size_bytes=70_000, checksum="sha256:" + "a1" * 32, count=200)
    part = StoredOutput(
        path="chk-11/output-3-0", size_bytes=400, checksum="sha256:" + "b2" * 32, count=10, waiting=b"\xfe\x01"
    )
    return replace(with_changes_only(), stored_output=(whole, part))


@pytest.mark.feature("I34", "I35")
def test_format_1_stays_readable() -> None:
    assert decode((GOLDEN / "format-1.json").read_bytes()) == expected()


@pytest.mark.feature("I34", "I35")
def test_format_2_stays_readable() -> None:
    assert decode((GOLDEN / "format-2.json").read_bytes()) == with_stored_list()


@pytest.mark.feature("I34", "I35")
def test_format_3_stays_readable() -> None:
    assert decode((GOLDEN / "format-3.json").read_bytes()) == with_changes_only()


@pytest.mark.feature("I34", "I35")
def test_format_4_stays_readable() -> None:
    found = decode((GOLDEN / "format-4.json").read_bytes())
    assert found == with_stored_output()
    assert found.waiting_count == 2 + 200 + 8


OUTPUT = expected().committables
"""What output.json was written from."""


@pytest.mark.feature("I34", "I35")
def test_objects_with_output_stay_readable() -> None:
    data = (GOLDEN / "output.json").read_bytes()
    assert StoredOutput.of("chk-10/output-3-0", data, len(OUTPUT)).read(data) == OUTPUT
    assert encode_output(OUTPUT) == data


def test_what_is_written_now_is_what_was_written_then() -> None:
    assert NEWEST_FORMAT == 4, "freeze format-4.json as it is and add a golden file of the new format beside it"
    assert encode(expected()) == (GOLDEN / "format-1.json").read_bytes(), "earlier versions read what they can"
    assert encode(with_stored_list()) == (GOLDEN / "format-2.json").read_bytes()
    assert encode(with_changes_only()) == (GOLDEN / "format-3.json").read_bytes()
    assert encode(with_stored_output()) == (GOLDEN / "format-4.json").read_bytes()
