"""Something is broken in each folder of the source and each connector, and the tests that such a change selects notice it.

Most folders have recorded mutations (`tests/capabilities.toml`); `test_selection.py` sees to it that a change of their files
selects the tests that catch them. The faults planted here are in the folders that have none.
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

PROCESSORS = "tests/unit/runtime/task/spark_processor/test_stateful_processor.py"
PLANTED = {
    f"{PROCESSORS}::test_columns_of_emitted_rows_are_found_by_name": Replacement(
        "src/tidegate/runtime/task/spark_processor/processor_output.py",
        "[fields.index(n) if n in fields else -1 for n in self._names]",
        "list(range(len(self._names)))",
    ),
    "tests/unit/api/test_apply_in_pandas_with_state.py": Replacement(
        "src/tidegate/api/spark_functions/arguments.py",
        "if keyed.input.event_time is None:",
        "if keyed.input.event_time is not None:",
    ),
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
    "tests/unit/connectors/test_files.py::test_a_file_name_identifies_the_owner_of_its_output": Replacement(
        "src/tidegate/connectors/files/names.py", "Slot(int(slot))", "Slot(0)"
    ),
    "tests/contract/lakehouse/test_iceberg.py::test_a_table_is_created_only_on_demand": Replacement(
        "src/tidegate/connectors/lakehouse/iceberg/committer.py", "if not create:", "if create:"
    ),
    "tests/contract/sinks/test_repeating_sinks.py": Replacement(
        "src/tidegate/connectors/memory.py", "key=lambda r: (r.epoch, r.slot)", "key=lambda r: r.slot"
    ),
    "tests/unit/connectors/kafka/formats/test_types.py::test_a_column_that_would_lose_something_is_refused": Replacement(
        "src/tidegate/connectors/kafka/formats/column_match.py", "digits - scale <= most - places", "digits <= most"
    ),
    "tests/unit/control/rest/test_server.py::test_the_error_names_the_wrong_field": Replacement(
        "src/tidegate/control/messages/requests.py", "if body.get(name) is None:", "if name not in body:"
    ),
    "tests/unit/control/capacity/test_model.py::test_key_groups_have_flinks_bounds": Replacement(
        "src/tidegate/control/capacity/model.py",
        "max(FEWEST_KEY_GROUPS, min(MOST_KEY_GROUPS, wanted))",
        "min(MOST_KEY_GROUPS, wanted)",
    ),
    "tests/unit/control/explained/test_error_texts.py::test_a_text_agrees_with_its_class": Replacement(
        "src/tidegate/control/explained/error_texts.py", 'retryable=more == ["retryable"]', "retryable=False"
    ),
    "tests/unit/control/rest/test_addresses.py::test_an_ipv6_address_before_a_port_has_brackets": Replacement(
        "src/tidegate/control/rest/addresses.py",
        'f"[{name}]:{port}" if ":" in name else f"{name}:{port}"',
        'f"{name}:{port}"',
    ),
    "tests/unit/schema/test_schema.py::test_rows_are_the_same_whether_nullable_or_not": Replacement(
        "src/tidegate/schema/schema.py", "return self.names == other.names and all(", "return all("
    ),
    "tests/unit/control/spark_import/test_import_plan.py::test_several_sources_are_named_by_the_user": Replacement(
        "src/tidegate/control/spark_import/import_plan.py",
        "if len({match.source.uid for match in matches}) < len(matches):",
        "if len({match.source.uid for match in matches}) > len(matches):",
    ),
    "tests/integration/test_lineage.py::test_a_run_that_fails_says_why": Replacement(
        "src/tidegate/reporters/lineage/reporter.py", 'self._failure or "The job failed."', '"The job failed."'
    ),
    "tests/unit/reporters/test_span_export.py::test_a_time_is_the_same_whether_it_was_added_up_or_not": Replacement(
        "src/tidegate/reporters/otel/span_export.py", "round(ms * 1_000) * 1_000", "round(ms * 1_000_000)"
    ),
    "tests/unit/runtime/placement/test_permutation.py"
    "::test_a_host_needs_as_many_partitions_as_the_level_with_most_state_there": Replacement(
        "src/tidegate/runtime/placement/permutation.py", "wanted |= Counter(", "wanted += Counter("
    ),
    "tests/unit/testing/test_sink_contract.py": Replacement(
        "src/tidegate/testing/sink_contract/target.py", "assert counted == wanted,", "assert counted >= wanted,"
    ),
}
ELSEWHERE = "docs/guide/windows.md"
"""Changes together with each file: a change that reaches nothing would run everything, and so prove nothing."""


def broken_files() -> set[str]:
    recorded = {
        mutation.replacement.file for capability in report().capabilities.values() for mutation in capability.mutations
    }
    return recorded | {planted.file for planted in PLANTED.values()}


def rooms() -> list[str]:
    """Every folder of the source that has code, and the connectors that are a single file."""
    modules = [file for file in (ROOT / "src" / "tidegate").rglob("*.py") if file.name != "__init__.py"]
    folders = {str(file.parent.relative_to(ROOT)) + "/" for file in modules}
    return sorted({*folders, "src/tidegate/connectors/memory.py", "src/tidegate/connectors/write_ahead.py"})


@pytest.mark.parametrize("room", rooms())
def test_something_is_broken_in_every_room_and_connector(room: str):
    assert [file for file in broken_files() if file.startswith(room)]


@pytest.fixture(scope="module")
def reach() -> Reach:
    return Reach.of_project()


@pytest.mark.parametrize("test", PLANTED)
def test_a_planted_change_selects_a_test_that_notices_it(reach: Reach, test: str):
    change = Change("base", frozenset({PLANTED[test].file, ELSEWHERE}))
    assert unit_of(test) in selection_for(change, reach, turn=0, turns=0).chosen


@pytest.mark.slow
def test_planted_changes_are_noticed(tmp_path: Path):
    copy = ScratchCopy(tmp_path)
    outcomes = {}
    for test, planted in PLANTED.items():
        with copy.broken(planted):
            done = copy.python(400, "-m", "pytest", "-q", "-x", "-m", "", "--tb=short", test)
        outcomes[test] = judged(done.returncode, done.stdout)[0]
    assert outcomes == dict.fromkeys(PLANTED, "caught")
