"""A nightly run can be interrupted and resumed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.tiers import nightly
from tests.tiers.nightly import NightlyPart


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three parts that write their names to a file; the second fails while `broken` exists."""
    ran = tmp_path / "ran"
    ran.write_text("")

    def part(name: str) -> NightlyPart:
        code = (
            f"import os, sys; open({str(ran)!r}, 'a').write({name!r} + ' ');"
            f"sys.exit({name == 'two'} and os.path.exists({str(tmp_path / 'broken')!r}))"
        )
        return NightlyPart(name, "nothing", lambda size, report: [sys.executable, "-c", code])

    monkeypatch.setattr(nightly, "PARTS", (part("one"), part("two"), part("three")))
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setattr(nightly, "_commit", lambda: "abc")
    return ran


def test_the_next_call_runs_only_what_has_not_passed(ran: Path, tmp_path: Path):
    (tmp_path / "broken").touch()
    assert nightly.main([]) == 1
    (tmp_path / "broken").unlink()
    assert nightly.main([]) == 0
    assert ran.read_text().split() == ["one", "two", "three", "two"]
    parts = json.loads((tmp_path / "artifacts/nightly/abc/nightly.json").read_text())["parts"]
    assert {name: part["ok"] for name, part in parts.items()} == {"one": True, "two": True, "three": True}


def test_a_part_can_be_run_alone_and_again(ran: Path):
    assert nightly.main(["two"]) == 0
    assert nightly.main(["two"]) == 0
    assert nightly.main(["two", "--again"]) == 0
    assert ran.read_text().split() == ["two", "two"]


def test_a_larger_size_is_not_taken_as_passed(ran: Path):
    assert nightly.main(["one", "--size", "0.1"]) == 0
    assert nightly.main(["one"]) == 0
    assert ran.read_text().split() == ["one", "one"]


def test_every_part_has_a_command_at_any_size(tmp_path: Path):
    assert len({part.name for part in nightly.PARTS}) == len(nightly.PARTS)
    for part in nightly.PARTS:
        assert part.command(0.01, tmp_path / "none.json")[0] == sys.executable


def test_every_test_of_ci_runs_at_night(tmp_path: Path):
    """Of what a change does not reach, each commit runs one quarter; when several land at once, some quarters are never run."""
    commands = [part.command(1, tmp_path / "none.json")[1:] for part in nightly.PARTS]
    assert ["-m", "tests.tiers", "ci", "--all"] in commands
