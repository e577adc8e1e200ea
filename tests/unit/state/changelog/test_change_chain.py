"""Change files are found by going back from a version, also if some of them are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.state.changelog.chain import changes_between, changes_path
from tidegate.state.changelog.change_file import ChangeHeader, ChangeWriter
from tidegate.state.version import VersionId


def version(number: int, attempt: int = 1) -> VersionId:
    return VersionId(EpochId(Term(1), number), AttemptId(attempt))


def write(directory: Path, of: VersionId, base: VersionId) -> None:
    path = changes_path(directory, of)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = ChangeWriter(path, ChangeHeader(of, base))
    writer.write([(b"key", b"value")])
    writer.finish()


def test_changes_are_in_the_order_of_versions(tmp_path: Path) -> None:
    for number in range(2, 12):
        write(tmp_path, version(number), version(number - 1))
    found = changes_between(tmp_path, version(1), version(11))
    assert found is not None
    assert [each.version for each in found] == [version(number) for number in range(2, 12)]


@pytest.mark.parametrize("base", [version(5), version(5, attempt=2), version(6)], ids=["itself", "its epoch", "later"])
def test_a_file_that_does_not_lead_back_ends_the_search(base: VersionId, tmp_path: Path) -> None:
    write(tmp_path, version(5), base)
    for of in {version(5, attempt=2), version(6)}:
        write(tmp_path, of, version(5))
    assert changes_between(tmp_path, version(1), version(5)) is None
