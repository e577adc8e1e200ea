"""Names of staged files and markers: none is used twice, and all stores can hold them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.lakehouse.names import local_path, marker_number, segment
from tidegate.core.errors import TidegateError
from tidegate.core.ids import EpochId, Term

NUMBERS = st.integers(0, (1 << 40) - 1)
EPOCHS = st.builds(EpochId, st.integers(0, (1 << 23) - 1).map(Term), NUMBERS)


@given(EPOCHS, EPOCHS)
def test_markers_grow_as_epochs_do(one, other):
    assert (marker_number(one) < marker_number(other)) == (one < other)
    assert 0 <= marker_number(one) < 1 << 63


@pytest.mark.parametrize("epoch", [EpochId(Term(1 << 23), 0), EpochId(Term(0), 1 << 40)])
def test_an_epoch_past_the_end_is_refused(epoch):
    with pytest.raises(TidegateError, match="exceeds what"):
        marker_number(epoch)


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_names_are_plain_and_differ_as_their_texts_do(one, other):
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,100}", segment(one))
    assert (segment(one) == segment(other)) == (one == other)


def test_segments_that_look_alike_differ():
    assert len({segment("a b"), segment("a_b"), segment("a/b"), segment("é" * 90), segment("é" * 91)}) == 5


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b", Path("/a/b")),
        ("file:///a/b", Path("/a/b")),
        ("file:/a/b", Path("/a/b")),
        ("s3://bucket/a", None),
        ("abfss://c@d.e/f", None),
    ],
)
def test_local_locations_are_known(location, path):
    assert local_path(location) == path
