"""How `python -m tests.prove` judges a run, and what a scratch copy is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove import judged, rotated
from tests.scratch import Replacement, ScratchCopy, StaleMutation


@pytest.mark.parametrize(
    ("code", "output", "outcome"),
    [
        (0, "1 passed", "survived"),
        (1, "E   AssertionError\nFAILED tests/x.py::test", "caught"),
        (1, "E   NameError: name 'x' is not defined\nFAILED tests/x.py::test", "invalid"),
        (2, "ERROR tests/x.py", "invalid"),
        (4, "ERROR: not found: tests/x.py::test", "invalid"),
        (5, "no tests ran", "invalid"),
    ],
)
def test_only_a_failing_test_catches_a_mutation(code, output, outcome):
    assert judged(code, output)[0] == outcome


def test_every_mutation_has_its_turn():
    trials = [(f"A{n}", 1, None) for n in range(10)]

    assert sorted(trial for turn in range(3) for trial in rotated(trials, 3, turn)) == sorted(trials)


def test_a_scratch_copy_is_broken_and_mended(tmp_path: Path):
    copy = ScratchCopy(tmp_path)
    with copy.broken(
        Replacement("src/tidegate/core/ids.py", "from __future__ import annotations", "raise KeyError(7)")
    ):
        broken = copy.python(60, "-c", "import tidegate.core.ids")
    whole = copy.python(60, "-c", "import tidegate.core.ids; print(tidegate.__file__)")

    assert "KeyError: 7" in broken.stderr
    assert Path(whole.stdout.strip()).is_relative_to(tmp_path)


def test_a_mutation_that_does_not_fit_is_refused(tmp_path: Path):
    with pytest.raises(StaleMutation, match="contains 0 times"):
        Replacement("src/tidegate/core/ids.py", "no such text", "").applied_to(Path(__file__).parents[2])
