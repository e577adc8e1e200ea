"""The page about the protocol lists every rule that `tests.recovery.mutations` breaks, and what finds it."""

from __future__ import annotations

import re

import pytest

from tests.recovery.mutations.rules import MUTATIONS, Mutation
from tests.sparks import ROOT

PAGE = ROOT / "docs" / "internals" / "protocol.md"
_ROW = re.compile(r"^\| (?P<rule>.+?) \| `(?P<id>[\w-]+)` \| (?P<found>.+) \|$", re.MULTILINE)


def rows() -> dict[str, re.Match[str]]:
    """The rows of the tables of rules that were broken once, by id."""
    text = PAGE.read_text()
    return {row["id"]: row for row in _ROW.finditer(text[text.index("## Each rule broken once") :])}


def found_by(mutation: Mutation) -> str:
    return f"`{mutation.test.rpartition('::')[2]}` fails"


def test_every_rule_is_on_the_page_and_no_other():
    assert sorted(rows()) == sorted(mutation.id for mutation in MUTATIONS)


@pytest.mark.parametrize("mutation", [pytest.param(each, id=each.id) for each in MUTATIONS])
def test_the_page_says_what_the_rule_is_and_what_finds_it(mutation):
    row = rows()[mutation.id]
    assert row["rule"] == mutation.rule
    if mutation.test:
        assert found_by(mutation) in row["found"]
    else:
        assert " fails" not in row["found"], "the simulation finds it"
