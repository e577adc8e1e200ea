"""The programs on the pages of `docs/examples`: `python -m tests.example_pages` copies them there from `examples`.

A page has a comment with the name of a file, and below it a block with what is in the file:

    <!-- program: examples/word_count.py -->

A page with the whole program can be read anywhere, and a test sees to it that it is the program that runs.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.scratch import ROOT

PAGES = ROOT / "docs" / "examples"
_BLOCK = re.compile(r"^<!-- program: (?P<file>\S+) -->\n```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def programs_on(page: str) -> dict[str, str]:
    """The programs of a page, by the name of their file."""
    return {found["file"]: found["code"] for found in _BLOCK.finditer(page)}


def refreshed(page: str) -> str:
    """The page, with its programs as they are in their files."""
    return _BLOCK.sub(lambda found: f"<!-- program: {found['file']} -->\n```python\n{_code(found['file'])}```", page)


def pages() -> list[Path]:
    return sorted(PAGES.glob("*.md"))


def _code(file: str) -> str:
    return (ROOT / file).read_text()


if __name__ == "__main__":
    for each in pages():
        each.write_text(refreshed(each.read_text()))
