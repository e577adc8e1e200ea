"""A batch runs once."""

from __future__ import annotations

import pytest

from tidegate.core.errors import ProtocolViolation
from tidegate.runtime.positions import Positions, Run, Skip, decide_batch, read_positions

A, B, C = (Positions((f'{{"at":{n}}}',)) for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("done", "start", "end", "first", "expected"),
    [
        (None, None, A, True, Run),
        (A, A, B, False, Run),
        (B, A, B, False, Skip),
        (A, A, A, False, Run),
    ],
)
def test_the_table(done, start, end, first, expected):
    assert isinstance(decide_batch(done, start, end, first), expected)


@pytest.mark.parametrize(("done", "start", "end"), [(A, B, C), (C, A, B), (B, None, A), (A, A, None)])
def test_neither_next_nor_a_repeat_is_refused(done, start, end):
    with pytest.raises(ProtocolViolation):
        decide_batch(done, start, end, first=False)


def test_positions_are_read_from_the_offset_log(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":4}\n7')
    assert read_positions(tmp_path, 4) == Positions(('{"logOffset":4}', "7"))
    assert read_positions(tmp_path, 3) is None


def test_an_unknown_form_of_the_log_is_refused(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text("{}")
    with pytest.raises(ProtocolViolation, match="form that tidegate does not know"):
        read_positions(tmp_path, 4)
