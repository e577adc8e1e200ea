"""Something is broken in each package and each connector, and the tests that such a change selects notice it.

Most packages have recorded mutations (`tests/capabilities.toml`); `test_selection.py` sees to it that a change of their files
selects the tests that catch them. The faults planted here are in the packages that have none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features import report
from tests.prove import judged
from tests.scratch import ROOT, Replacement, ScratchCopy
from tests.tiers.change import Change
from tests.tiers.reach import Reach, unit_of
from tests.tiers.selection import selection_for

PLANTED = {
    "tests/unit/autoscaler/test_decider.py::test_a_parallelism_is_fitted_to_the_key_groups": Replacement(
        "src/tidegate/autoscaler/decider.py", "if groups % each == 0 or is_lighter:", "if is_lighter:"
    ),
    "tests/unit/events/test_bus.py::test_drops_are_logged_at_powers_of_two_only": Replacement(
        "src/tidegate/events/bus.py", "if self._dropped.bit_count() == 1:", "if self._dropped:"
    ),
    "tests/unit/flink/test_row.py::test_fields_by_position_and_by_name": Replacement(
        "src/tidegate/flink/row.py", "list(fields.values() if names else values)", "list(values)"
    ),
    "tests/unit/metrics/test_exposition.py::test_values_come_in_base_units_with_their_labels": Replacement(
        "src/tidegate/metrics/exposition.py", "sample.value * metric.factor", "sample.value"
    ),
    "tests/unit/reporters/test_span_tree.py::test_a_failed_checkpoint_says_why": Replacement(
        "src/tidegate/reporters/span_tree.py",
        "error=None if event.completed else event.failure_message or event.status",
        "error=None",
    ),
    "tests/unit/testing/test_harness.py::test_wrong_use_is_reported": Replacement(
        "src/tidegate/testing/harness.py",
        "restore is not None and restore.max_parallelism != max_parallelism",
        "restore is not None and restore.max_parallelism > max_parallelism",
    ),
    "tests/unit/connectors/test_files.py::test_a_name_tells_whose_output_it_is": Replacement(
        "src/tidegate/connectors/files/names.py", "Slot(int(slot))", "Slot(0)"
    ),
    "tests/contract/lakehouse/test_iceberg.py::test_a_table_is_made_only_on_demand": Replacement(
        "src/tidegate/connectors/lakehouse/iceberg/committer.py", "if not create:", "if create:"
    ),
}
_SINGLE_FILES = {"__init__.py", "__init__.pyi", "errors.py", "errors.pyi", "py.typed", "__pycache__"}


def broken_files() -> set[str]:
    recorded = {
        mutation.replacement.file for capability in report().capabilities.values() for mutation in capability.mutations
    }
    return recorded | {planted.file for planted in PLANTED.values()}


def packages() -> list[str]:
    """The packages, and connectors one by one."""
    source = ROOT / "src" / "tidegate"
    places = [*source.iterdir(), *(source / "connectors").iterdir(), *(source / "connectors" / "lakehouse").iterdir()]
    folders = [place for place in places if place.is_dir() and place.name not in _SINGLE_FILES]
    return sorted(str(folder.relative_to(ROOT)) for folder in folders)


@pytest.mark.parametrize("package", packages())
def test_something_is_broken_in_every_package_and_connector(package: str):
    assert [file for file in broken_files() if file.startswith(f"{package}/")]


@pytest.mark.parametrize("test", PLANTED)
def test_a_planted_change_selects_a_test_that_notices_it(test: str):
    change = Change("base", frozenset({PLANTED[test].file}))
    assert unit_of(test) in selection_for(change, Reach.of_project(), turn=0, turns=0).chosen


@pytest.mark.slow
def test_planted_changes_are_noticed(tmp_path: Path):
    copy = ScratchCopy(tmp_path)
    outcomes = {}
    for test, planted in PLANTED.items():
        with copy.broken(planted):
            done = copy.python(400, "-m", "pytest", "-q", "-x", "-m", "", "--tb=short", test)
        outcomes[test] = judged(done.returncode, done.stdout)[0]
    assert outcomes == dict.fromkeys(PLANTED, "caught")
