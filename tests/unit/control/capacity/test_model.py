"""The capacity model: examples computed by hand, and properties."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.capacity.constants import DEFAULTS, BadConstant, Constants, read_constants
from tidegate.control.capacity.model import Capacity, FunctionKind, KeyDistribution, Workload, capacity

PLAIN = {"task_cpu": 1e-9, "utilization": 0.5, "large_state_factor": 1, "key_cpu": 1e-9}
"""Constants that leave one effect at a time."""
SMALL = Workload(rows_per_s=1e5, keys=1e6, state_bytes_per_key=100, cores_per_executor=4, staged_sinks=0)


def plan(work: Workload = SMALL, constants: dict[str, float] | None = None, **changes: object) -> Capacity:
    return capacity(replace(work, **changes), Constants(constants))


def test_cores_are_row_time_divided_by_utilization() -> None:
    found = plan(SMALL, {**PLAIN, "row_function_cpu": 10}, rows_per_s=1e6)
    assert found.cores == pytest.approx(1e6 * 10e-6 / 0.5)
    assert (found.executors, found.parallelism) == (6, 24), "a little more than 20 cores, four in an executor"


def test_each_key_costs_once_per_epoch() -> None:
    found = plan(SMALL, {**PLAIN, "row_function_cpu": 1e-9, "key_cpu": 10}, changed_keys_per_s=1e5, epoch_s=10)
    assert found.cores == pytest.approx(1e5 * 10e-6 / 0.5, rel=1e-3)


def test_tasks_cost_a_share_of_every_core() -> None:
    constants = {**PLAIN, "row_function_cpu": 10, "task_cpu": 0.1}
    found = plan(SMALL, constants, epoch_s=1, rows_per_s=1e5)
    assert found.cores == pytest.approx(1.0 / (0.5 - 0.1))


def test_an_epoch_that_is_too_short_for_its_tasks_cannot_work() -> None:
    (text,) = plan(SMALL, {**PLAIN, "task_cpu": 0.2}, epoch_s=0.4, interval_s=60).impossible
    assert "longer than 0.4 s" in text


def test_large_state_decides_the_number_of_slots() -> None:
    found = plan(SMALL, {"state_per_slot": 20}, keys=1e9, state_bytes_per_key=1000)
    assert found.parallelism == 52, "1 TB in slots of 20 GB are 50, on executors of 4 cores"
    assert found.max_parallelism == 256, "the next power of two above 4 * 52"


def test_key_groups_have_flinks_bounds() -> None:
    assert plan(parallelism=1, rows_per_s=10).max_parallelism == 128
    assert plan(parallelism=20_000).max_parallelism == 32_768


def test_distinct_keys_of_uniform_rows() -> None:
    assert SMALL.touched(10) == pytest.approx(1e6 * (1 - math.exp(-1)))
    assert replace(SMALL, changed_keys_per_s=5).touched(10) == 50
    assert replace(SMALL, changed_keys_per_s=5).touched(1e9) == SMALL.keys


def test_distinct_keys_of_skewed_rows_are_fewer() -> None:
    skewed = replace(SMALL, distribution=KeyDistribution.SKEWED)
    expected = 2e5 * (1 - math.exp(-8e5 / 2e5)) + 8e5 * (1 - math.exp(-2e5 / 8e5))
    assert skewed.touched(10) == pytest.approx(expected)
    assert skewed.touched(10) < SMALL.touched(10)


def test_an_incremental_checkpoint_uploads_five_bytes_per_changed_byte_and_at_most_the_state() -> None:
    found = plan(changed_keys_per_s=100, interval_s=60)
    assert found.changed_bytes == 100 * 60 * 100
    assert found.upload_bytes == pytest.approx(5.3 * 600_000)
    assert plan(changed_keys_per_s=1e6).upload_bytes == SMALL.state_bytes


def test_a_changelog_uploads_what_each_epoch_changed_and_whole_versions_besides() -> None:
    found = plan(changed_keys_per_s=100, interval_s=60, changelog=True, materialize_s=600)
    assert found.upload_bytes == pytest.approx(1.04 * 600_000)
    assert found.background_bytes_per_s == pytest.approx(5.3 * 100 * 600 * 100 / 600)
    assert found.upload_bytes_per_s == pytest.approx(1.04 * 10_000 + 5.3 * 10_000)


def test_requests_of_a_checkpoint_by_hand() -> None:
    work = replace(SMALL, changed_keys_per_s=10_000, interval_s=60, parallelism=2, epoch_s=1)
    found = capacity(work, Constants({"part_size": 10, "incremental_upload": 1}))
    assert found.upload_bytes == 60e6
    assert found.requests.writes == 6 + 2, "six parts of 10 MB, the metadata and the log entry"
    assert found.requests.lists == 3
    assert found.requests.reads == 0
    assert found.requests.deletes == 2
    per_month = 30 * 86_400 / 60
    assert found.requests_per_month == 13 * per_month
    assert found.request_cost_per_month == pytest.approx(11 * 5e-6 * per_month)


def test_tasks_of_slow_epochs_store_their_acknowledgements() -> None:
    quick, slow = (plan(epoch_s=seconds, parallelism=100) for seconds in (2, 3))
    assert (quick.requests.reads, slow.requests.reads) == (0, 100)


def test_small_changes_are_in_the_metadata() -> None:
    assert plan(changed_keys_per_s=0.01, epoch_s=1).requests.writes == 2


def test_a_directory_has_no_request_cost() -> None:
    found = plan(priced=False)
    assert (found.request_cost_per_month, found.storage_cost_per_month) == (0, 0)


def test_the_driver_needs_what_was_measured_at_the_measured_size() -> None:
    found = plan(parallelism=10_000)
    assert found.driver_cpu_s == pytest.approx(0.81)
    assert found.metadata_bytes == pytest.approx(3.6e6)
    assert found.driver_memory == pytest.approx(4e9 + 251e6, rel=0.01)


def test_a_slow_line_is_reported_as_impossible_and_the_advice_helps() -> None:
    heavy = replace(SMALL, keys=1e9, changed_keys_per_s=1e6, uplink_bytes_per_s=1e6)
    assert any("its line carries 1" in text for text in capacity(heavy).impossible)
    assert capacity(replace(heavy, uplink_bytes_per_s=1e10)).impossible == ()


def test_restore_time_is_the_state_of_an_executor_divided_by_its_bandwidth() -> None:
    found = plan(keys=1e8, state_bytes_per_key=100, parallelism=8, uplink_bytes_per_s=1e8)
    assert found.restore_host_s == pytest.approx(10 + 5e9 / 1e8)
    assert found.restore_all_s == pytest.approx(25.2 + 5e9 / 1e8)


@pytest.mark.parametrize(("epoch_s", "interval_s", "p50", "p99"), [(0.93, 10, 6.08, 11.0), (1.09, 1, 2.16, 4.01)])
def test_the_model_is_close_to_the_measured_latency(epoch_s: float, interval_s: float, p50: float, p99: float) -> None:
    """Epochs that follow each other take as long as they collect: the model's share of 0.6 is replaced."""
    work = Workload(rows_per_s=1_000, keys=1_000, state_bytes_per_key=20, epoch_s=epoch_s, interval_s=interval_s)
    found = capacity(replace(work, cores_per_executor=2, parallelism=4), Constants({"utilization": 0.99}))
    assert found.latency_s == pytest.approx(p50, rel=0.2)
    assert found.longest_latency_s == pytest.approx(p99, rel=0.2)


def test_everything_beyond_the_measurements_is_named() -> None:
    assert plan(parallelism=4, keys=1e6, rows_per_s=1e5).warnings == ()
    named = " ".join(plan(parallelism=20_000, keys=1e12, rows_per_s=1e6, state_bytes_per_key=1000).warnings)
    for part in ("executors", "rows/s", "slots", "tasks", "objects", "keys in a slot", "GB of state"):
        assert part in named


positive = st.floats(1, 1e7)


@given(rows=positive, keys=positive, factor=st.floats(1, 100))
def test_more_rows_never_need_less(rows: float, keys: float, factor: float) -> None:
    one, more = (plan(rows_per_s=rows * times, keys=keys) for times in (1, factor))
    for name in ("cores", "executors", "changed_bytes", "upload_bytes", "memory_per_executor", "max_parallelism"):
        if name != "memory_per_executor" or one.parallelism == more.parallelism:
            assert getattr(more, name) >= getattr(one, name) * (1 - 1e-9), name


@given(size=st.floats(1, 1e6), factor=st.floats(1, 100))
def test_bytes_are_proportional_to_the_state_of_a_key(size: float, factor: float) -> None:
    one, more = (plan(state_bytes_per_key=size * times, parallelism=8) for times in (1, factor))
    for name in ("changed_bytes", "upload_bytes", "state_bytes", "stored_bytes", "disk_per_executor"):
        assert getattr(more, name) == pytest.approx(getattr(one, name) * factor, rel=1e-6), name


@given(interval=st.floats(1, 3600), factor=st.floats(1, 10))
def test_a_longer_interval_uploads_no_more_per_second(interval: float, factor: float) -> None:
    one, more = (plan(interval_s=interval * times, parallelism=8) for times in (1, factor))
    assert more.upload_bytes_per_s <= one.upload_bytes_per_s * (1 + 1e-9)


@given(kind=st.sampled_from(FunctionKind), levels=st.integers(1, 5))
def test_a_further_level_costs_more(kind: FunctionKind, levels: int) -> None:
    one, more = (plan(function=kind, levels=number) for number in (levels, levels + 1))
    assert more.cores > one.cores


def test_every_constant_has_a_unit_and_a_source() -> None:
    assert all(
        each.unit and each.source and each.value > 0 for each in DEFAULTS if each.name != "price_million_deletes"
    )
    assert len({each.name for each in DEFAULTS}) == len(DEFAULTS)
    assert {each.is_measured for each in DEFAULTS} == {True, False}


def test_constants_come_from_a_file_and_from_the_command_line_which_wins() -> None:
    assert read_constants(["key_cpu = 9"], "key_cpu = 7\ntask_cpu = 0.2\n") == {"key_cpu": 9, "task_cpu": 0.2}
    assert Constants({"key_cpu": 9}).key_cpu == 9


@pytest.mark.parametrize(
    ("texts", "toml"), [(["key_cpu"], None), (["key_cpu=fast"], None), ([], "key_cpu ="), ([], "key_cpu = [1]")]
)
def test_an_argument_that_is_no_constant_is_refused(texts: list[str], toml: str | None) -> None:
    with pytest.raises(BadConstant, match="name=number"):
        read_constants(texts, toml)


def test_an_unknown_constant_or_one_below_zero_is_refused() -> None:
    with pytest.raises(BadConstant, match="Did you mean key_cpu"):
        Constants({"key_cpus": 1})
    for value in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(BadConstant, match="above 0"):
            Constants({"key_cpu": value})
    assert Constants({"price_million_writes": 0}).prices.per_million_writes == 0


def test_staged_output_is_counted_by_task_epoch_and_sink() -> None:
    """A thousand slots with epochs of 0.864 s: 100,000 epochs a day, and more rows than fit into metadata."""
    work = replace(SMALL, rows_per_s=1e6, row_bytes=200, parallelism=1_000, epoch_s=0.864, interval_s=8.64)
    none, one, two = (plan(work, PLAIN, staged_sinks=sinks) for sinks in (0, 1, 2))
    assert (one.staged_objects, one.inline_share) == (pytest.approx(10_000), 0)
    assert two.staged_objects == pytest.approx(20_000)
    assert one.requests.writes - none.requests.writes == 10_000
    assert one.requests.reads - none.requests.reads == 10_000
    a_day = (one.request_cost_per_month - none.request_cost_per_month) / 30
    assert a_day == pytest.approx(500 + 40, rel=0.01)


def test_few_rows_of_output_need_no_request() -> None:
    work = replace(SMALL, rows_per_s=1e6, parallelism=1_000, epoch_s=1, interval_s=3)
    work = replace(work, output_rows_per_s=3_000, staged_sinks=1)
    found = plan(work, PLAIN)
    assert (found.staged_objects, found.inline_share) == (0, 1)
    assert found.metadata_bytes < 16e6
    assert found.requests == plan(work, PLAIN, staged_sinks=0).requests
    longer = plan(work, PLAIN, interval_s=60)
    assert 0 < longer.inline_share < 1, "the bound on everything that waits"
    assert longer.metadata_bytes < 16e6
