"""Positions of sources in the metadata of a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint.files.contents import contents_of
from tidegate.checkpoint.files.shared import SharedRegistry
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind, codec
from tidegate.core.ids import EpochId, Lineage, Term, Uid
from tidegate.runtime.sources.query_directory import SourceNotes
from tidegate.runtime.sources.source_notes import UnclaimedPositions, load_notes, store_notes
from tidegate.storage import LocalStorage
from tidegate.testing.storage import MemoryStorage

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


UIDS = [Uid("files")]


class Checkpoints:
    """Checkpoints of one source, of which the last few are retained, as the store and the cleaner do it."""

    def __init__(self, storage, retained: int) -> None:
        self.storage, self._retained = storage, retained
        self._registry = SharedRegistry()
        self.completed: dict[str, CheckpointMetadata] = {}

    def take(self, notes: dict[str, bytes], *, shares: bool = True) -> int:
        """Take a checkpoint, and return how many bytes it stored."""
        number = 1 + max((each.checkpoint_id for each in self.completed.values()), default=0)
        before = list(self.completed.values())[-1] if self.completed and shares else None
        there = {each.path for each in self.storage.list()}
        source = SourceNotes('{"logOffset":3}', notes)
        positions, query = store_notes(
            self.storage, "job", f"job/chk-{number}", number, EPOCH, UIDS, [source], "{}", before
        )
        written = sum(each.size_bytes for each in self.storage.list() if each.path not in there)
        made = replace(EMPTY, checkpoint_id=number, positions=positions, query=query)
        made = codec.decode(codec.encode(made))
        name = f"job/chk-{number}/_metadata"
        self._registry.register(name, contents_of(name, made, lambda c: ()).files)
        self.completed[name] = made
        while len(self.completed) > self._retained:
            oldest = next(iter(self.completed))
            del self.completed[oldest]
            self.storage.delete(list(self._registry.drop(oldest)))
        return written

    def notes(self, checkpoint: CheckpointMetadata) -> dict[str, bytes]:
        (found,), _ = load_notes(self.storage, "job", checkpoint, UIDS, False)
        return dict(found.notes)


@given(
    st.lists(
        st.tuples(st.sampled_from(["grow", "same", "rewrite", "shrink", "full"]), st.integers(1, 60)), max_size=25
    ),
    st.integers(1, 3),
)
def test_every_retained_checkpoint_has_its_notes_whatever_became_of_the_others(moves, retained):
    checkpoints = Checkpoints(MemoryStorage(), retained)
    content, number = b"v1" * 10_000, 9
    model: dict[str, dict[str, bytes]] = {}
    for move, size in moves:
        if move in ("grow", "full"):
            content += bytes([size]) * size * 500
            number += 10
        elif move == "rewrite":
            content = bytes([size]) * max(len(content), 1)
        elif move == "shrink":
            content = content[: 16_385 + size]
        notes = {f"{number}.compact": content, f"{number + 1}": b"few"}
        checkpoints.take(notes, shares=move != "full")
        name = list(checkpoints.completed)[-1]
        model = {each: model.get(each, notes) for each in checkpoints.completed if each in model or each == name}
        for each, made in checkpoints.completed.items():
            assert checkpoints.notes(made) == model[each]
            assert len(made.positions[0].files) <= 20
        needed = {
            name for path, made in checkpoints.completed.items() for name in contents_of(path, made, lambda c: ()).files
        }
        assert {each.path for each in checkpoints.storage.list()} == needed


def test_a_checkpoint_stores_what_the_source_has_read_since_the_last_one():
    """A file a minute for 100 days, compacted after every tenth. A checkpoint follows each batch."""
    checkpoints = Checkpoints(MemoryStorage(), retained=1)
    content, written = b"v1" + b'\n{"path":"file:///a/directory/of/files"}' * 144_000, []
    whole = checkpoints.take({"143999.compact": content})
    for batch in range(144_000, 144_200):
        if batch % 10 == 9:
            content += b'\n{"path":"file:///a/directory/of/files"}' * 10
        written.append(checkpoints.take({f"{batch // 10 * 10 - 1}.compact": content}))
    assert whole == pytest.approx(len(content), rel=0.01)
    assert sum(written) < 20 * 400 * 5, "each line a few times, not all lines each time"
    assert max(written) < whole / 100
