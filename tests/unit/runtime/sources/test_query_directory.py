"""A batch runs once, and a query goes on from what a checkpoint kept of its directory."""

from __future__ import annotations

import pytest

from tidegate.core.errors import PreconditionFailed, ProtocolViolation
from tidegate.runtime.sources.query_directory import (
    Positions,
    RunBatch,
    SkipBatch,
    SourceNotes,
    check_commit_log,
    decide_batch,
    parse_offsets,
    read_positions,
    read_sources,
    rebuild,
)
from tidegate.runtime.spark_versions import IncompatibleSpark

A, B, C = (Positions((f'{{"at":{n}}}',)) for n in (1, 2, 3))


@pytest.mark.feature("J1")
@pytest.mark.parametrize(
    ("done", "start", "end", "expected"),
    [(None, None, A, RunBatch), (A, A, B, RunBatch), (B, A, B, SkipBatch), (A, A, A, RunBatch)],
)
@pytest.mark.feature("C16")
def test_decide_batch_table(done, start, end, expected):
    assert isinstance(decide_batch(done, start, end), expected)


@pytest.mark.feature("C16")
@pytest.mark.parametrize(("done", "start", "end"), [(A, B, C), (C, A, B), (B, None, A), (A, A, None), (None, A, B)])
def test_neither_next_nor_a_repeat_is_refused(done, start, end):
    with pytest.raises(ProtocolViolation):
        decide_batch(done, start, end)


@pytest.mark.feature("C6", "J11")
def test_positions_are_read_from_the_offset_log(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":4}\n7')
    assert read_positions(tmp_path, 4) == Positions(('{"logOffset":4}', "7"))
    assert read_positions(tmp_path, 3) is None


def test_a_restored_log_without_metadata_of_its_batch_is_read(tmp_path):
    rebuild(tmp_path / "q", [SourceNotes("10", {})], "", 10)
    assert read_positions(tmp_path / "q", 0) == Positions(("10",))


def test_positions_of_version_2_are_read_in_the_order_of_the_sources(tmp_path):
    """Spark writes them in any order."""
    (tmp_path / "offsets").mkdir()
    lines = [f'{place}:{{"at":{place}}}' for place in (10, 2, 0, 1, 3, 4, 5, 6, 7, 8)]
    (tmp_path / "offsets" / "4").write_text("\n".join(["v2", '{"batchWatermarkMs":0}', *lines, "9:-"]))
    expected = [f'{{"at":{place}}}' for place in range(9)] + ["-", '{"at":10}']
    assert read_positions(tmp_path, 4) == Positions(tuple(expected))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "v1\n{}",
        'v2\n{"batchWatermarkMs":0}\n{"0":"7"}',
        "v2\n{}\n7",
        "v2\n{}\norders:7",
        "v2\n{}\n0:7\n2:8",
        "v3\n{}\n0:7",
        "v10\n{}\n7",
        "v1\n7\n{}",
        "vast\n{}\n7",
    ],
)
def test_an_unknown_form_of_the_log_is_refused(tmp_path, text):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text(text)
    with pytest.raises(IncompatibleSpark, match="format that tidegate does not know"):
        read_positions(tmp_path, 4)


@pytest.mark.parametrize(
    "text", ['v1\n{"nextBatchWatermarkMs":0}', 'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}']
)
def test_both_versions_of_the_commit_log_are_accepted(tmp_path, text):
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "4").write_text(text)
    check_commit_log(tmp_path, 4)


@pytest.mark.parametrize("text", ["", "v1", "v3\n{}", "v1\n7", '{"version":1}'])
def test_an_unknown_form_of_the_commit_log_is_refused(tmp_path, text):
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "4").write_text(text)
    with pytest.raises(IncompatibleSpark, match=r"commit log .* tidegate does not know"):
        check_commit_log(tmp_path, 4)


def test_a_batch_without_a_note_that_it_is_done_is_no_fault(tmp_path):
    check_commit_log(tmp_path, 4)


def notes(directory, place, **files):
    folder = directory / "sources" / str(place)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.removeprefix("n").replace("_", ".")).write_text(text)


LISTED = 'v1\n{"path":"file:///in/a","timestamp":1,"batchId":0}'


@pytest.mark.feature("C6", "C16", "H3", "J11")
def test_a_log_of_files_is_kept_from_its_last_compaction_to_the_position(tmp_path):
    notes(tmp_path, 0, **{f"n{n}": LISTED for n in range(9)}, n9_compact=LISTED, n10=LISTED, n11=LISTED, n12=LISTED)
    (found,) = read_sources(tmp_path, Positions(('{"logOffset":11}',)), 1)
    assert sorted(found.notes) == ["10", "11", "9.compact"]
    (early,) = read_sources(tmp_path, Positions(('{"logOffset":3}',)), 1)
    assert sorted(early.notes) == ["0", "1", "2", "3"]


def test_sources_with_names_have_their_notes_in_folders_of_these_names(tmp_path):
    logged = parse_offsets('v2\n{"conf":{}}\nreturns:{"logOffset":0}\norders:25')
    assert list(logged.lines) == ["orders", "returns"]
    for name in logged.lines:
        (tmp_path / "sources" / name).mkdir(parents=True)
        (tmp_path / "sources" / name / "0").write_text(LISTED if name == "returns" else "v1\n17")
    orders, returns = read_sources(tmp_path, Positions(tuple(logged.lines.values())), 2, list(logged.lines))
    assert orders == SourceNotes("25", {"0": b"v1\n17"})
    assert returns == SourceNotes('{"logOffset":0}', {"0": LISTED.encode()})


@pytest.mark.feature("C6")
def test_a_log_of_files_with_a_gap_is_refused(tmp_path):
    notes(tmp_path, 0, n0=LISTED, n2=LISTED)
    with pytest.raises(ProtocolViolation, match="gaps"):
        read_sources(tmp_path, Positions(('{"logOffset":2}',)), 1)


@pytest.mark.feature("C6", "C16", "J11")
def test_where_a_source_begins_is_kept_before_its_first_batch_but_not_the_files_it_is_about_to_read(tmp_path):
    notes(tmp_path, 0, n0=LISTED)
    notes(tmp_path, 1, n0="v1\n1794723470315")
    files, rate = read_sources(tmp_path, None, 2)
    assert files == SourceNotes(None, {})
    assert rate == SourceNotes(None, {"0": b"v1\n1794723470315"})


@pytest.mark.feature("C16", "H3", "J11")
def test_a_rebuilt_directory_equals_the_original(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    notes(old, 0, n0=LISTED)
    notes(old, 1, n0="v1\n17")
    (old / "offsets").mkdir()
    (old / "offsets" / "7").write_text('v1\n{"conf":{}}\n{"logOffset":0}\n25')
    kept = read_sources(old, read_positions(old, 7), 2)
    assert rebuild(new, kept, '{"conf":{}}', 10) == read_positions(old, 7)
    assert read_sources(new, read_positions(new, 0), 2) == kept
    assert (new / "commits" / "0").exists()


@pytest.mark.feature("A35", "C16")
def test_a_source_added_to_a_job_has_no_position(tmp_path):
    rebuild(tmp_path / "q", [SourceNotes("25", {}), SourceNotes(None, {})], "{}", 10)
    assert read_positions(tmp_path / "q", 0) == Positions(("25", "-"))


@pytest.mark.feature("C4")
def test_streams_that_cannot_be_distinguished_are_refused(tmp_path):
    with pytest.raises(PreconditionFailed, match="2 streams for the 1 sources"):
        read_sources(tmp_path, Positions(("1", "2")), 1)
