"""The memory of an executor, divided among its tasks, and refused with the numbers where it cannot work."""

from __future__ import annotations

import re

import pytest

from tidegate.config import OptionError
from tidegate.runtime.epochs.executor_memory import WORKER_ADDRESSES, WORKER_BYTES, ExecutorMemory, describe_budget
from tidegate.runtime.epochs.run_options import RunOptions
from tidegate.runtime.epochs.settings import read_settings, within_memory

P = "state.backend.rocksdb.memory."
MB = 1 << 20


def settings(**given: str):
    found = {"spark." + key.replace("_", "."): value for key, value in given.items()}
    return lambda key, default: found.get(key, default)


def memory(**given: str) -> ExecutorMemory:
    return ExecutorMemory.read(settings(**given))


@pytest.mark.feature("F44")
@pytest.mark.parametrize(
    ("given", "slots"),
    [
        ({"master": "local[4]"}, 4),
        ({"master": "local[4,2]", "task_cpus": "2"}, 2),
        ({"master": "local"}, 1),
        ({"master": "spark://host:7077"}, None),
        ({"master": "spark://host:7077", "executor_cores": "8"}, 8),
        ({"master": "yarn", "executor_cores": "8", "task_cpus": "3"}, 2),
    ],
)
def test_an_executor_runs_as_many_tasks_at_once_as_its_cores_allow(given: dict[str, str], slots: int | None) -> None:
    assert memory(**given).slots == slots


@pytest.mark.feature("F44")
def test_the_memory_of_an_executor_is_divided_among_the_tasks_that_it_runs_at_once() -> None:
    executor = memory(executor_cores="8", task_cpus="2")
    assert executor.with_budget({P + "fixed-per-tm": "1 gb"}) == {P + "fixed-per-slot": 256 * MB}
    assert executor.with_budget({P + "fixed-per-slot": "64 mb", P + "fixed-per-tm": "1 gb"}) == {
        P + "fixed-per-slot": 64 * MB
    }


@pytest.mark.feature("F44")
def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(OptionError, match=re.escape("Set spark.executor.cores, or give the share of one task")):
        memory(master="spark://host:7077").with_budget({P + "fixed-per-tm": "1 gb"})
    small = (
        "64 MB for an executor with 16 tasks at once (spark.executor.cores / spark.task.cpus), gives a slot 4 MB: 1 MB"
    )
    with pytest.raises(OptionError, match=re.escape(small)):
        memory(executor_cores="16").with_budget({P + "fixed-per-tm": "64 mb"})


@pytest.mark.feature("F37")
@pytest.mark.parametrize(
    ("given", "slot_bytes"),
    [
        ({}, 256 * MB),
        ({"executor_memoryOverhead": "4g", "executor_cores": "4"}, int(0.4 * 1024 * MB)),
        ({"executor_memoryOverhead": "1000", "executor_cores": "4"}, 250 * MB - WORKER_BYTES),
        ({"executor_pyspark_memory": "8g", "executor_cores": "4"}, int(0.4 * 2048 * MB)),
        ({"executor_pyspark_memory": "2800m", "executor_cores": "4"}, 700 * MB - WORKER_ADDRESSES),
        (
            {"executor_memoryOverhead": "4g", "executor_pyspark_memory": "8g", "executor_cores": "4"},
            int(0.4 * 1024 * MB),
        ),
        ({"executor_memoryOverhead": "100m", "master": "local[4]"}, 256 * MB),
    ],
)
def test_managed_memory_is_a_share_of_what_spark_leaves_to_a_worker(given: dict[str, str], slot_bytes: int) -> None:
    assert memory(**given).with_budget({}) == {P + "fixed-per-slot": slot_bytes}


@pytest.mark.feature("F36", "F45")
def test_a_budget_that_spark_leaves_no_room_for_is_refused_with_the_numbers() -> None:
    wanted = (
        "fixed-per-slot gives the state of a task 256 MB. Its Python worker needs 160 MB besides. For an executor with 4 tasks "
        "at once (spark.executor.cores / spark.task.cpus) that makes 4 · (256 MB + 160 MB) = 1.625 GB, and "
        "spark.executor.memoryOverhead leaves 1 GB for all of them."
    )
    with pytest.raises(OptionError, match=re.escape(wanted)):
        memory(executor_memoryOverhead="1g", executor_cores="4").with_budget({P + "fixed-per-slot": "256 mb"})
    wanted = (
        "space besides, which makes 896 MB, and spark.executor.pyspark.memory / spark.executor.cores leaves it 512 MB"
    )
    with pytest.raises(OptionError, match=re.escape(wanted)):
        memory(executor_pyspark_memory="2g", executor_cores="4").with_budget({P + "fixed-per-slot": "256 mb"})


@pytest.mark.feature("F36")
def test_a_job_without_a_memory_size_starts_with_little_memory_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It may have run with these settings before there was a budget."""
    with caplog.at_level("WARNING", "tidegate"):
        chosen = memory(executor_memoryOverhead="384m", executor_cores="4").with_budget({})
    assert chosen == {P + "fixed-per-slot": 16 * MB}
    assert (
        "Spark leaves 96 MB to a Python worker (spark.executor.memoryOverhead; an executor with 4 tasks at once "
        "(spark.executor.cores / spark.task.cpus)). The worker needs 160 MB, and its state gets the rest, but at most 0.4 of "
        "the whole: 0 bytes. State gets 16 MB, so the executor may be killed."
    ) in caplog.text


@pytest.mark.feature("F43", "F45")
def test_memory_that_is_not_managed_is_the_users_own_affair() -> None:
    tight = memory(executor_memoryOverhead="1m", executor_cores="4")
    assert tight.with_budget({P + "managed": "false"}) == {P + "managed": "false"}
    assert "not managed" in describe_budget({P + "managed": "false"})


@pytest.mark.feature("F37", "F44")
def test_a_job_without_the_memory_of_a_slot_does_not_start() -> None:
    found, _ = read_settings(2, RunOptions(state_backend="rocksdb", options={P + "fixed-per-tm": "512 mb"}))
    divided = within_memory(found, settings(executor_cores="4"))
    assert divided.backend_options == {P + "fixed-per-slot": 128 * MB}
    with pytest.raises(OptionError, match="leaves 100 MB for all of them"):
        within_memory(found, settings(executor_cores="4", executor_memoryOverhead="100m"))
    heap, _ = read_settings(2, RunOptions())
    assert within_memory(heap, settings(executor_memoryOverhead="1m")) == heap


@pytest.mark.feature("B3")
def test_a_share_of_the_memory_leaves_the_other_options_of_the_backend_as_they_are() -> None:
    """Tasks would keep timers in RocksDB again although the job puts them on the heap."""
    chosen = {"state.backend.rocksdb.timer-service.factory": "heap", P + "fixed-per-tm": "512 mb"}
    divided = memory(executor_cores="4").with_budget(chosen)
    assert divided == {"state.backend.rocksdb.timer-service.factory": "heap", P + "fixed-per-slot": 128 * MB}


@pytest.mark.feature("F42")
def test_a_start_says_which_options_the_budget_overrides(caplog: pytest.LogCaptureFixture) -> None:
    given = {"state.backend.rocksdb.block.cache-size": "8 mb"}
    found, _ = read_settings(2, RunOptions(state_backend="rocksdb", options=given))
    with caplog.at_level("INFO", "tidegate"):
        within_memory(found, settings(master="local[2]"))
    assert "block.cache-size: Overridden by the memory budget of a slot, which makes it 160 MB" in caplog.text
    assert "memory of a slot: 256 MB = 64 MB write cache (25%) + 192 MB RocksDB (block cache 160 MB" in caplog.text
