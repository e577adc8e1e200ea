"""Positions of sources in the metadata of a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind, codec
from tidegate.core.ids import EpochId, Lineage, Term, Uid
from tidegate.runtime.sources.query_directory import SourceNotes
from tidegate.runtime.sources.source_notes import UnclaimedPositions, load_notes, store_notes
from tidegate.storage import LocalStorage

ORDERS = SourceNotes('{"orders":{"0":15,"1":7}}', {})
FILES = SourceNotes('{"logOffset":3}', {"3": b"a short note", "2.compact": b"x" * 100_000})
EPOCH = EpochId(Term(1), 9)
EMPTY = CheckpointMetadata(
    job="job",
    lineage=Lineage("l"),
    checkpoint_id=4,
    term=Term(1),
    epoch=EPOCH,
    kind=SnapshotKind.CHECKPOINT,
    triggered_ms=0,
    completed_ms=0,
    tidegate_version="",
    spark_version="",
    max_parallelism=128,
    parallelism=1,
    clock_ms=0,
)


@pytest.mark.feature("A35", "B2")
def test_every_source_finds_its_position_by_its_uid(tmp_path):
    storage, uids = LocalStorage(tmp_path), [Uid("orders"), Uid("files")]
    positions, query = store_notes(storage, "job", "job/chk-4", 4, EPOCH, uids, [ORDERS, FILES], '{"batch":8}')
    stored = codec.decode(codec.encode(replace(EMPTY, positions=positions, query=query)))
    found, batch = load_notes(storage, "job", stored, [Uid("new"), Uid("files"), Uid("orders")], False)
    assert found == (SourceNotes(None, {}), FILES, ORDERS)
    assert batch == '{"batch":8}'
    with pytest.raises(UnclaimedPositions, match="'orders'"):
        load_notes(storage, "job", stored, [Uid("files")], False)
