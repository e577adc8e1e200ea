"""Which files of a version go into the metadata of a checkpoint."""

from __future__ import annotations

import pytest

from tidegate.checkpoint.task.version_upload import _split
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.state.version import VersionFile, VersionId

SIZES = {"c": 20, "a": 10, "b": 15}


@pytest.mark.feature("D29")
@pytest.mark.parametrize(
    ("threshold", "total", "inline"), [(20, 45, "abc"), (20, 44, "ab"), (19, 45, "ab"), (20, 24, "a"), (9, 45, "")]
)
def test_the_smallest_files_are_inlined_up_to_the_threshold_and_the_total(
    threshold: int, total: int, inline: str
) -> None:
    origin = VersionId(EpochId(Term(1), 1), AttemptId(1))
    small, large = _split([VersionFile(name, size, origin) for name, size in SIZES.items()], threshold, total)
    assert "".join(file.name for file in small) == inline
    assert {file.name for file in large} == set(SIZES) - set(inline)
