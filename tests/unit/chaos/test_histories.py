"""A walk through histories that come back sees what is wrong after one, and dies at steps that exist."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos import moved
from chaos.histories import Backup, Fork, Histories, Move, contents, history_cells, judge_fork, lineage_in
from chaos.tally import Counted, verify
from chaos.torment import Hang
from tests.sparks import ROOT

FED = [(i % 2, i, 10) for i in range(12)]
"""Two keys, and two buckets of the same numbers."""


def out(first: int = 0) -> list[dict[str, int]]:
    """What a job publishes that has read the rows before `first`."""
    rows = [{"k": k, "i": i, "n": i // 2 + 1, "b": k, "m": i // 2 + 1, "total": (i // 2 + 1) * 10} for k, i, _ in FED]
    return rows[first:]


START = Counted({0: 3, 1: 2}, {0: (3, 30), 1: (2, 20)})
"""After the rows 0 to 4."""


def fork(sent: int = 12) -> Fork:
    return Fork(Path("out"), "lineage", START, sent)


def test_counts_continue_from_a_checkpoint():
    assert verify(FED[5:], out(5), START).exact
    assert verify(FED, out()).exact
    assert not verify(FED[5:], out(5)).exact


def test_a_row_is_known_to_a_checkpoint_that_has_counted_it():
    assert [row["i"] for row in out() if START.has(row)] == [0, 1, 2, 3, 4]


def test_a_fork_has_every_row_since_its_checkpoint():
    assert judge_fork(fork(), FED, out(), out(5)).exact
    assert judge_fork(fork(), FED, out(), out(5)[:-1]).lost == 1
    assert judge_fork(fork(), FED, out(), [*out(5), out()[-1]]).duplicated == 1


def test_a_fork_may_lack_what_was_sent_when_it_was_stopped():
    assert judge_fork(fork(sent=11), FED, out(), out(5)[:-1]).exact
    assert judge_fork(fork(sent=11), FED, out(), out(5)).exact


def test_a_fork_that_publishes_rows_of_its_original_is_wrong():
    assert judge_fork(fork(), FED, out(), out(4)).wrong


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Histories:
    """After all rows were sent, and before any was published."""
    monkeypatch.setenv(moved.MASTER, "")
    monkeypatch.setenv(moved.FOLDER, "")
    (tmp_path / "out").mkdir()
    options = argparse.Namespace(seed=1, function=None)
    walk = Histories(SimpleNamespace(url="spark://nowhere"), None, tmp_path, options)
    walk.feed.rows += FED
    return walk


def publish(walk: Histories, rows: list[dict[str, int]], term: int, lineage: str = "own") -> Path:
    path = walk.folder / "out" / f"part-{lineage}~out~{term}.1~00000~000.json"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def lost(walk: Histories) -> Path:
    """A history has published all rows, and the backup has those before row 5."""
    publish(walk, out()[:5], term=1)
    path = publish(walk, out(5), term=2)
    walk._note_lost(Backup(walk.folder, Path("counted/chk-1"), START, frozenset()))
    return path


def test_a_walk_waits_for_rows_before_the_first_backup(walk: Histories, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("chaos.histories.RECOVERY_S", 0.0)
    with pytest.raises(Hang, match="60 rows"):
        walk._await_known_rows()
    publish(walk, out() * 5, term=1)
    walk._await_known_rows()


def test_a_restored_job_publishes_again_what_the_lost_history_has_published(walk: Histories):
    lost(walk)
    assert walk.visible() == 5
    assert walk.verdict().lost == 7
    publish(walk, out(5), term=3)
    assert walk.verdict().exact
    assert walk.findings()["rows_of_lost_histories"] == 7


def test_a_row_that_only_the_lost_history_has_published_is_lost(walk: Histories):
    lost(walk)
    publish(walk, out(6), term=3)
    verdict = walk.verdict()
    assert verdict.lost == 1
    assert verdict.wrong


def test_a_row_of_the_backup_that_is_published_again_is_doubled(walk: Histories):
    lost(walk)
    publish(walk, out(4), term=3)
    assert walk.verdict().duplicated == 1


def test_a_file_of_the_lost_history_that_changes_or_vanishes_is_reported(walk: Histories):
    path = lost(walk)
    publish(walk, out(5), term=3)
    path.write_text("")
    assert path.name in " ".join(walk.verdict().wrong)
    path.unlink()
    assert path.name in " ".join(walk.verdict().wrong)


def test_a_file_with_rows_of_before_and_after_the_backup_is_reported(walk: Histories):
    path = publish(walk, out(), term=1)
    walk._note_lost(Backup(walk.folder, Path("counted/chk-1"), START, frozenset()))
    assert f"{path.name} has rows of before and after a backup" in walk.verdict().wrong


def test_rows_of_a_fork_in_the_same_target_are_not_those_of_the_original(walk: Histories):
    publish(walk, out(), term=1)
    publish(walk, out(5), term=2, lineage="fork")
    assert walk.verdict().duplicated == 7
    walk._forks.append(Fork(walk.folder / "out", "fork", START, len(FED)))
    assert walk.verdict().exact
    publish(walk, out(6), term=2, lineage="fork")
    walk._rows.clear()
    assert walk.verdict().lost == 1


def test_the_name_of_a_file_says_who_wrote_it():
    assert lineage_in(Path("out/part-abc~out~4294967297.3~00001~000.json")) == "abc"


def test_contents_show_what_has_changed(tmp_path: Path):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "1").write_text("a")
    before = contents(tmp_path)
    assert list(before) == ["log/1"]
    (tmp_path / "log" / "1").write_text("b")
    assert contents(tmp_path) != before


@pytest.mark.parametrize("move", Move)
def test_every_move_dies_at_steps_that_exist(move: Move):
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    points = {cell.point for cell in history_cells() if cell.move is move}
    assert len(points) >= 6
    assert points <= set(re.findall(r"[\"']([a-z-]+\.\d+-[a-z-]+)[\"']", source))
