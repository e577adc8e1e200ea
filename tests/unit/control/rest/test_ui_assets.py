"""The files of the web UI, as they are in the wheel."""

from __future__ import annotations

import re
from pathlib import Path

from tests.sparks import ROOT

UI = ROOT / "src" / "tidegate" / "control" / "ui"
MOST_BYTES = 300_000
_ADDRESS = re.compile(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", re.IGNORECASE)
_IMPORT = re.compile(r'^(?:import|export) [^;]*?from "([^"]+)";', re.MULTILINE)


def files() -> list[Path]:
    return [each for each in UI.rglob("*") if each.is_file()]


def own(*endings: str) -> list[Path]:
    return [each for each in files() if each.suffix in endings and "vendor" not in each.parts]


def test_all_files_together_are_below_300_kb():
    assert 0 < sum(each.stat().st_size for each in files()) < MOST_BYTES


def test_the_licence_of_every_vendored_module_is_listed():
    listed = (UI / "vendor" / "LICENSES.md").read_text()
    vendored = [each.name for each in (UI / "vendor").iterdir() if each.suffix != ".md"]
    assert len(vendored) == 3
    for name in vendored:
        assert f"`{name}`" in listed
    assert listed.count("Copyright (c)") >= 2
    assert "Apache License" in listed


def test_nothing_refers_to_another_host():
    found = {each.name: _ADDRESS.findall(each.read_text()) for each in own(".js", ".css", ".html")}
    assert {name: addresses for name, addresses in found.items() if addresses} == {}


def test_no_page_sets_markup_or_evaluates_text():
    """All data is text to preact, so a key or an error message cannot become markup."""
    forbidden = re.compile(r"dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacent|eval\(|new Function")
    assert [each.name for each in own(".js") if forbidden.search(each.read_text())] == []


def test_the_page_has_no_inline_scripts_or_styles():
    """The server's policy forbids both."""
    page = (UI / "index.html").read_text()
    assert not re.search(r"<script>|<script type=\"module\">|<style|\sstyle=|\son[a-z]+=", page)


def test_every_import_is_a_file_of_the_package():
    for each in own(".js"):
        for name in _IMPORT.findall(each.read_text()):
            assert (each.parent / name).is_file(), f"{each}: {name}"
