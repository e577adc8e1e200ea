"""How `python -m tests.prove` judges a run, and what a scratch copy is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove import judged, rotated
from tests.recovery.mutations.__main__ import raised
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


@pytest.mark.parametrize(
    ("last", "found"),
    [
        ("tidegate.core.errors.RestoreError: a file is missing", "0"),
        ("KeyError: 7", "0"),
        ("NameError: name 'reusable' is not defined", None),
        ("UnboundLocalError: cannot access local variable 'replace'", None),
        ("ImportError: cannot import name 'Deleted' from 'tidegate.checkpoint.effects'", None),
        ("ModuleNotFoundError: No module named 'tidegate.effects'", None),
        ("SyntaxError: invalid syntax", None),
        ("AttributeError: 'SimDriver' object has no attribute '_known'", None),
    ],
)
def test_a_broken_rule_that_cannot_run_is_not_found_by_the_simulation(last, found):
    where, what = raised(f"Traceback (most recent call last):\n  File x\n{last}\n")

    assert where == found
    assert last in what


def test_an_error_that_hides_another_one_does_not_make_a_mutation_valid():
    chained = "\nDuring handling of the above exception, another exception occurred:\n\nRuntimeError: no result\n"

    assert raised(f"NameError: name 'x' is not defined\n{chained}")[0] is None


def test_every_mutation_is_tried_in_some_rotation():
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
