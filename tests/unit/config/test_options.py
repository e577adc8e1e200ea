"""Options: Flink's keys, types, defaults and rules, each from its one declaration."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages.options import render
from tidegate.config import (
    BackendType,
    CheckpointConfig,
    Checkpointing,
    CheckpointingMode,
    ClaimMode,
    JobEnd,
    OptionError,
    Options,
    RecoveryConfig,
    RestartConfig,
    Retention,
    read_file,
    read_options,
)
from tidegate.config.autoscaler import AutoscalerConfig
from tidegate.config.choices import Publisher
from tidegate.config.declared import ALL, autoscaler, checkpointing, pipeline, reporting, unaligned
from tidegate.config.file import shared_options
from tidegate.config.measuring import read_measuring
from tidegate.config.option import DURATION, Option
from tidegate.config.restart_strategy import FOREVER, ExponentialDelay, FailureRate, FixedDelay, NoRestart
from tidegate.config.user import FIELDS
from tidegate.config.without_effect import WITHOUT_EFFECT, WithoutEffect
from tidegate.core.measuring import Measuring, StateTracking
from tidegate.core.storage_cost import LIST_PRICES, StoragePrices

C = "execution.checkpointing."
ON = {C + "interval": "10 s", C + "dir": "s3://bucket/ckpt"}
DECLARED = {option.key for option in ALL}


def config(**given: object) -> CheckpointConfig:
    """With checkpointing on; keys are given without their prefix, `_` for `-`."""
    return CheckpointConfig.of(read_options(ON | {C + key.replace("_", "-"): value for key, value in given.items()}))


def notes(given: dict[str, object]) -> dict[str, str]:
    return {note.key: note.text for note in read_options(given).notes}


def problems(given: dict[str, object]) -> str:
    with pytest.raises(OptionError) as caught:
        read_options(given)
    return str(caught.value)


def test_prices_of_storage_are_list_prices_unless_given() -> None:
    assert CheckpointConfig.of(read_options()).prices == LIST_PRICES
    given = {"million-writes": 6.5, "million-reads": 0.5, "million-deletes": 0.1, "gb-month": 0.02}
    read = read_options({f"metrics.storage-price.{key}": price for key, price in given.items()})
    assert CheckpointConfig.of(read).prices == StoragePrices(
        per_million_writes=6.5, per_million_reads=0.5, per_million_deletes=0.1, per_gb_month=0.02
    )
    assert "at least 0" in problems({"metrics.storage-price.million-writes": "-1"})


@pytest.mark.feature("D1")
def test_checkpointing_is_off_unless_an_interval_is_set() -> None:
    off = CheckpointConfig.of(read_options())
    assert (off.interval_ms, off.mode) == (None, CheckpointingMode.AT_LEAST_ONCE)
    assert RestartConfig.of(read_options()).strategy == NoRestart()


@pytest.mark.feature("D4", "D5", "D7", "D11", "D14", "D20", "D27", "D28", "D29", "D31", "F4", "F25", "I9", "I17", "I20")
def test_defaults_are_flinks_except_retention() -> None:
    assert CheckpointConfig.of(read_options(ON)) == CheckpointConfig(
        interval_ms=10_000,
        mode=CheckpointingMode.EXACTLY_ONCE,
        timeout_ms=600_000,
        min_pause_ms=0,
        max_concurrent=1,
        tolerable_failures=0,
        retention=Retention.RETAIN_ON_CANCELLATION,
        num_retained=1,
        dir="s3://bucket/ckpt",
        savepoint_dir=None,
        incremental=False,
        inline_threshold_bytes=20 * 1024,
        unaligned=False,
        aligned_timeout_ms=0,
        backend=BackendType.HASHMAP,
        local_dirs=None,
        stop_timeout_ms=600_000,
        max_waiting_epochs=1_000,
        max_waiting_bytes=10 << 30,
        refuse_unpublished=False,
        publisher=Publisher.AUTO,
        inline_output_bytes=8 << 10,
        max_inline_output_bytes=8 << 20,
    )
    assert RecoveryConfig.of(read_options()) == RecoveryConfig(
        path=None,
        allow_non_restored_state=False,
        claim_mode=ClaimMode.NO_CLAIM,
    )
    over_http = [exporter.protocol.key for exporter in reporting.EXPORTERS.values()]
    assert [option.key for option in ALL if option.flink_default] == [
        checkpointing.RETENTION.key,
        *over_http,
        autoscaler.SCALING_ENABLED.key,
    ]


@pytest.mark.feature("D2", "D4", "N6")
def test_the_whole_configuration_of_the_documents_is_understood() -> None:
    given = {
        C + "interval": 1000,
        C + "dir": "hdfs:///checkpoints-data/",
        C + "mode": "exactly-once",
        C + "min-pause": "500",
        C + "timeout": timedelta(minutes=1),
        C + "tolerable-failed-checkpoints": 2,
        C + "max-concurrent-checkpoints": 1,
        C + "externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        C + "unaligned.enabled": True,
        C + "aligned-checkpoint-timeout": "30 s",
    }
    read = read_options(given)
    made = CheckpointConfig.of(read)
    assert (made.interval_ms, made.min_pause_ms, made.timeout_ms, made.tolerable_failures) == (1000, 500, 60_000, 2)
    assert (made.unaligned, made.aligned_timeout_ms, made.dir) == (True, 30_000, "hdfs:///checkpoints-data")
    assert (made.mode, made.max_concurrent) == (CheckpointingMode.EXACTLY_ONCE, 1)
    assert made.retention is Retention.RETAIN_ON_CANCELLATION
    # What does nothing here is said, and nothing else.
    assert {note.key for note in read.notes} == {C + "unaligned.enabled", C + "aligned-checkpoint-timeout"}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (C + "interval", "9 ms", "must be at least 10 ms"),
        (C + "interval", "soon", "must be a duration"),
        (C + "timeout", "9 ms", "must be at least 10 ms"),
        (C + "min-pause", "-1 s", "must be a duration"),
        (C + "max-concurrent-checkpoints", "0", "must be at least 1"),
        (C + "tolerable-failed-checkpoints", "-1", "must be at least 0"),
        (C + "tolerable-failed-checkpoints", "two", "must be a whole number"),
        (C + "num-retained", "0", "must be at least 1"),
        (C + "data-inline-threshold", "2 mb", "must be at most 1 mb"),
        (C + "incremental", "yes", "must be true or false"),
        (C + "mode", "TWICE", "must be one of EXACTLY_ONCE, AT_LEAST_ONCE"),
        ("execution.state-recovery.claim-mode", "LEGACY", "NO_CLAIM keeps them yours"),
        ("state.backend.type", "forst", "rocksdb is the backend for state beyond memory"),
        ("restart-strategy.type", "sometimes", "must be one of none, fixed-delay"),
        ("restart-strategy.exponential-delay.backoff-multiplier", "1.0", "must be greater than 1"),
        ("restart-strategy.exponential-delay.backoff-multiplier", "inf", "must be a number"),
        ("restart-strategy.exponential-delay.jitter-factor", "1.1", "must be between 0 and 1"),
        ("restart-strategy.exponential-delay.initial-backoff", "0", "must be at least 1 ms"),
        ("restart-strategy.exponential-delay.attempts-before-reset-backoff", "0", "must be at least 1"),
        ("restart-strategy.fixed-delay.attempts", "-1", "must be at least 0"),
        ("pipeline.max-parallelism", "32769", "must be -1 or between 1 and 32768"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_key(key: str, value: str, said: str) -> None:
    told = problems({key: value})
    assert f"{key} {said}" in told or (key in told and said in told)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (C + "interval", "10 ms"),
        (C + "data-inline-threshold", "1 mb"),
        (C + "data-inline-threshold", "0"),
        ("restart-strategy.exponential-delay.jitter-factor", "0"),
        ("restart-strategy.exponential-delay.jitter-factor", "1"),
        ("restart-strategy.exponential-delay.backoff-multiplier", "1.01"),
    ],
)
def test_a_value_on_the_bound_is_taken(key: str, value: str) -> None:
    read_options({C + "dir": "x", key: value})


@pytest.mark.feature("C39", "D29")
def test_at_most_a_megabyte_may_be_inlined() -> None:
    assert "must be at most 1 mb" in problems({C + "data-inline-threshold": "1025 kb"})
    assert config(data_inline_threshold="1 mb").inline_threshold_bytes == 1 << 20


@pytest.mark.feature("G14", "G15")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({C + "interval": "10 s"}, "set it to storage that outlives the driver"),
        (ON | {C + "interval-during-backlog": "5 s"}, "must be 0 or at least"),
        (
            ON | {C + "unaligned.enabled": True, C + "mode": "AT_LEAST_ONCE"},
            "needs execution.checkpointing.mode EXACTLY",
        ),
        (
            ON | {C + "unaligned": True, C + "max-concurrent-checkpoints": 2},
            "needs execution.checkpointing.max-concurrent",
        ),
        ({"state.changelog.enabled": True, C + "max-concurrent-checkpoints": 2}, "state.changelog.enabled needs"),
        ({"state.changelog.enabled": True, "execution.savepoint.path": "x"}, "cannot restore with NO_CLAIM"),
        ({C + "during-recovery.enabled": True}, "recover-output-on-downstream"),
        ({"restart-strategy.exponential-delay.initial-backoff": "2 min"}, "must be at most"),
    ],
)
def test_combinations_that_flink_refuses_are_refused(given: dict[str, object], said: str) -> None:
    assert said in problems(given)


@pytest.mark.feature("C39")
def test_unaligned_goes_with_exactly_once_and_one_at_a_time_only() -> None:
    assert config(**{"unaligned.enabled": True}).unaligned
    for breaks in ({C + "mode": "AT_LEAST_ONCE"}, {C + "max-concurrent-checkpoints": 2}):
        problems(ON | {C + "unaligned.enabled": True} | breaks)


@pytest.mark.feature("D26")
def test_checkpoints_need_storage() -> None:
    assert "execution.checkpointing.dir does not say where" in problems({C + "interval": "1 s"})


@pytest.mark.feature("D6", "D12")
def test_a_pause_raises_the_interval_and_forces_one_at_a_time() -> None:
    made = config(min_pause="15 s", max_concurrent_checkpoints=3)
    assert (made.interval_ms, made.min_pause_ms, made.max_concurrent) == (15_000, 15_000, 1)
    told = notes(ON | {C + "min-pause": "15 s", C + "max-concurrent-checkpoints": 3})
    assert "Raised to 15 s" in told[C + "interval"]
    assert "Lowered to 1" in told[C + "max-concurrent-checkpoints"]
    assert config(max_concurrent_checkpoints=3).max_concurrent == 3


def test_a_pause_is_a_year_at_most() -> None:
    assert config(min_pause="400 d").min_pause_ms == 365 * 86_400_000


@pytest.mark.feature("D14", "D15")
@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        ("NO_EXTERNALIZED_CHECKPOINTS", set()),
        ("DELETE_ON_CANCELLATION", {"FAILED"}),
        ("RETAIN_ON_CANCELLATION", {"CANCELED", "FAILED", "SUSPENDED"}),
    ],
)
def test_retention_keeps_what_flinks_table_says(retention: str, kept: set[str]) -> None:
    chosen = config(externalized_checkpoint_retention=retention).retention
    assert {end.value for end in JobEnd if chosen.keeps(end)} == kept


@pytest.mark.feature("D26", "D27", "D28", "D29", "D31", "E15", "F21", "F26", "I9", "I15", "I16")
@pytest.mark.parametrize(
    ("old", "value", "option", "read"),
    [
        ("state.checkpoints.dir", "s3://b", C + "dir", "s3://b"),
        ("state.savepoints.dir", "s3://sp", C + "savepoint-dir", "s3://sp"),
        ("state.checkpoints.num-retained", "3", C + "num-retained", 3),
        ("state.backend.incremental", "true", C + "incremental", True),
        ("state.storage.fs.memory-threshold", "30 kb", C + "data-inline-threshold", 30 * 1024),
        ("state.checkpoint.cleaner.parallel-mode", "false", C + "cleaner.parallel-mode", False),
        ("taskmanager.state.local.root-dirs", "/disk", C + "local-backup.dirs", "/disk"),
        ("execution.checkpointing.unaligned", "true", C + "unaligned.enabled", True),
        ("execution.savepoint.path", "s3://sp-1", "execution.state-recovery.path", "s3://sp-1"),
        ("execution.savepoint.ignore-unclaimed-state", "true", "execution.state-recovery.ignore-unclaimed-state", True),
        ("execution.savepoint-restore-mode", "claim", "execution.state-recovery.claim-mode", ClaimMode.CLAIM),
        ("state.backend.local-recovery", "true", "execution.state-recovery.from-local", "true"),
        ("state.backend", "rocksdb", "state.backend.type", BackendType.ROCKSDB),
        ("restart-strategy", "off", "restart-strategy.type", "none"),
    ],
)
def test_old_keys_are_still_read(old: str, value: str, option: str, read: object) -> None:
    options = read_options({old: value})
    assert options.values == {option: read}
    assert f"use {option}" in options.notes[0].text
    assert options.notes[0].key == old


@pytest.mark.feature("F21")
def test_todays_key_wins_over_its_old_name() -> None:
    options = read_options({"state.checkpoints.num-retained": 2, C + "num-retained": 5})
    assert options[checkpointing.NUM_RETAINED] == 5


@pytest.mark.feature("F26")
def test_the_job_overrides_the_cluster_key_by_key() -> None:
    cluster = {"state.checkpoints.dir": "s3://all", C + "interval": "1 min", C + "incremental": True}
    options = read_options(job={C + "interval": "5 s", "state.backend.incremental": "false"}, cluster=cluster)
    made = CheckpointConfig.of(options)
    assert (made.dir, made.interval_ms, made.incremental) == ("s3://all", 5_000, False)


@pytest.mark.feature("H8")
def test_a_job_may_fall_back_to_the_clusters_restart_strategy() -> None:
    cluster = {"restart-strategy.type": "fixed-delay"}
    job = ON | {"restart-strategy.type": "fallback"}
    assert RestartConfig.of(read_options(job, cluster)).strategy == FixedDelay()
    assert RestartConfig.of(read_options(ON | {"restart-strategy.type": "none"}, cluster)).strategy == NoRestart()
    assert RestartConfig.of(read_options(job)).strategy == ExponentialDelay()


@pytest.mark.feature("H7", "H9", "H10")
def test_restart_strategies_have_flinks_defaults() -> None:
    def strategy(**given: object) -> Any:
        return RestartConfig.of(read_options({f"restart-strategy.{k}": v for k, v in given.items()})).strategy

    assert RestartConfig.of(read_options(ON)).strategy == ExponentialDelay(1_000, 60_000, 1.5, 3_600_000, 0.1, FOREVER)
    assert strategy(type="fixed-delay") == FixedDelay(attempts=1, delay_ms=1_000)
    assert strategy(type="failure-rate") == FailureRate(max_failures=1, interval_ms=60_000, delay_ms=1_000)
    assert strategy(type="disable") == NoRestart()
    assert strategy(type="exponentialdelay", **{"exponential-delay.max-backoff": "5 min"}).max_ms == 300_000
    chosen = {"fixed-delay.attempts": 7, "fixed-delay.delay": "5 s"}
    assert strategy(type="fixed-delay", **chosen) == FixedDelay(attempts=7, delay_ms=5_000)
    chosen = {"max-failures-per-interval": 3, "failure-rate-interval": "5 min", "delay": "10 s"}
    rate = strategy(type="failure-rate", **{f"failure-rate.{name}": value for name, value in chosen.items()})
    assert rate == FailureRate(max_failures=3, interval_ms=300_000, delay_ms=10_000)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("state.checkpoints.create-subdir", "false", "two jobs in one directory would take each other's place"),
        ("state.checkpoint-storage", "jobmanager", "the failure they are for destroys them"),
        ("state.storage.fs.write-buffer-size", "8192", "no stream that needs a buffer"),
        (C + "checkpoints-after-tasks-finish", "false", "none finishes before the job does"),
        (C + "unaligned.max-subTasks-per-channel-state-file", "20", "holds no channel state"),
        (C + "interval-during-backlog", "1 min", "maxOffsetsPerTrigger"),
        ("pipeline.auto-generate-uids", "false", "nothing to make up"),
    ],
)
def test_options_without_meaning_on_spark_are_accepted_with_a_reason(key: str, value: str, why: str) -> None:
    told = [note.text for note in read_options(ON | {key: value}).notes]
    assert any("no effect on Spark" in text and why in text for text in told)


def test_options_not_implemented_yet_say_what_happens_until_then() -> None:
    told = notes({"state.changelog.dstl.dfs.compression.enabled": True})
    assert "not acted on yet" in told["state.changelog.dstl.dfs.compression.enabled"]
    assert "not compressed yet" in told["state.changelog.dstl.dfs.compression.enabled"]


def test_a_flink_configuration_passes_with_the_reasons() -> None:
    given = {
        "jobmanager.rpc.address": "host",
        "taskmanager.numberOfTaskSlots": 4,
        "state.backend.rocksdb.thread.num": 2,
    }
    options = read_options(given)
    assert {note.key for note in options.notes} == {"jobmanager.rpc.address", "taskmanager.numberOfTaskSlots"}
    assert options.handed_on == {"state.backend.rocksdb.thread.num": "2"}


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    told = problems({"execution.checkpointing.intervall": "10 s", "execution.checkpointing.max-concurrent": 2})
    assert "intervall is not an option. Did you mean execution.checkpointing.interval?" in told
    assert "Did you mean execution.checkpointing.max-concurrent-checkpoints?" in told
    assert "page Options (operations/options.md)" in problems({"zzz": 1})


def test_keys_may_be_nested_as_yaml_gives_them() -> None:
    nested = {"execution": {"checkpointing": {"interval": "10 s", "dir": "d", "unaligned": {"enabled": True}}}}
    options = read_options(nested)
    assert (options[checkpointing.INTERVAL], options[unaligned.UNALIGNED]) == (10_000, True)


def test_a_configuration_file_may_be_flat_or_nested() -> None:
    text = """\
    # of the cluster
    state.checkpoints.dir: "s3://b/#1"   # all jobs
    restart-strategy = none
    execution:
      checkpointing:
        interval: 10 s
        unaligned:
          enabled: true
      state-recovery:
        from-local: true
    """
    assert read_file("\n".join(line[4:] for line in text.splitlines())) == {
        "state.checkpoints.dir": "s3://b/#1",
        "restart-strategy": "none",
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.state-recovery.from-local": "true",
    }


@pytest.mark.parametrize("line", ["- item", "a: [1, 2]", "just words", "a: {b: 1}", "a: &anchor x"])
def test_a_line_that_cannot_be_read_is_named(line: str) -> None:
    with pytest.raises(OptionError, match="line 2"):
        read_file(f"k: v\n{line}")


@pytest.mark.parametrize("line", ["s3.secret-key: *hidden", "s3.secret-key 'hidden'", "  hidden"])
def test_a_line_that_cannot_be_read_is_not_quoted(line: str) -> None:
    with pytest.raises(OptionError) as raised:
        read_file(f"s3.access-key: me\n{line}")
    assert str(raised.value) == "line 2 is not 'key: value'."


@pytest.mark.feature("D32")
def test_the_file_for_all_jobs_is_in_the_directory_that_the_environment_names(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("TIDEGATE_CONF_DIR", raising=False)
    assert shared_options() == {}
    monkeypatch.setenv("TIDEGATE_CONF_DIR", str(tmp_path))
    with pytest.raises(
        OptionError, match=r"config\.yaml cannot be read \(No such file or directory\): create the file"
    ):
        shared_options()
    (tmp_path / "config.yaml").write_text("state:\n  backend.type: rocksdb\n")
    assert shared_options() == {"state.backend.type": "rocksdb"}
    (tmp_path / "config.yaml").write_text("state:\n  - rocksdb\n")
    with pytest.raises(OptionError, match=r"config\.yaml, line 2 is not 'key: value'"):
        shared_options()
    (tmp_path / "config.yaml").write_bytes(b"\xff")
    with pytest.raises(OptionError, match="it is not UTF-8"):
        shared_options()


def test_a_key_without_a_value_is_refused() -> None:
    with pytest.raises(OptionError, match=r"line 2 gives no value to execution\.checkpointing\.dir"):
        read_file("execution.checkpointing:\n  dir:\n  interval: 10 s\n")


def test_a_quote_inside_a_value_does_not_hide_a_comment() -> None:
    assert read_file("dir: /it's/x # isn't it") == {"dir": "/it's/x"}
    assert read_file("dir: '/a # b' # c") == {"dir": "/a # b"}


def test_a_key_set_twice_in_a_file_is_refused() -> None:
    with pytest.raises(OptionError, match=r"line 3 sets a\.b again"):
        read_file("a.b: 1\na:\n  b: 2\n")


@pytest.mark.feature("D2", "F26")
def test_checkpointing_in_code_is_the_same_mapping() -> None:
    given = Checkpointing(
        dir="s3://b", interval="10 s", min_pause=timedelta(seconds=2), timeout="1 min", incremental=True,
        retention="DELETE_ON_CANCELLATION", options={"restart-strategy.type": "none", "state.checkpoints.dir": "x"},
    )  # fmt: skip
    assert given.to_options() == {
        C + "dir": "s3://b",
        C + "interval": "10000 ms",
        C + "min-pause": "2000 ms",
        C + "timeout": "60000 ms",
        C + "incremental": "true",
        C + "externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
        "restart-strategy.type": "none",
    }
    assert CheckpointConfig.of(read_options(given.to_options())).timeout_ms == 60_000
    assert Checkpointing().to_options() == {}


@pytest.mark.feature(
    "D2", "D4", "D5", "D6", "D7", "D11", "D14", "D15", "D20", "D26", "D27", "D28", "D29", "D31", "E14", "F20", "F26", "I9", "I37",
    "I31",
)  # fmt: skip
def test_each_setting_in_code_is_found_where_the_driver_looks_for_it() -> None:
    given = Checkpointing(
        dir="s3://b/checkpoints/", interval="7 s", mode="AT_LEAST_ONCE", timeout="3 min", max_concurrent=4,
        tolerable_failures=5, retention="DELETE_ON_CANCELLATION", num_retained=6, savepoint_dir="s3://b/savepoints/",
        incremental=True, inline_threshold="30 kb", backend="rocksdb", map_uids={"a": "b"},
        renamed_fields={("b", "n"): {"x": "y"}}, options={C + "local-backup.dirs": "/fast"},
    )  # fmt: skip
    read = read_options(given.to_options())
    made = CheckpointConfig.of(read)
    assert (made.dir, made.savepoint_dir, made.local_dirs) == ("s3://b/checkpoints", "s3://b/savepoints", "/fast")
    assert (made.interval_ms, made.timeout_ms, made.min_pause_ms) == (7_000, 180_000, 0)
    assert (made.max_concurrent, made.tolerable_failures, made.num_retained) == (4, 5, 6)
    assert (made.mode, made.retention) == (CheckpointingMode.AT_LEAST_ONCE, Retention.DELETE_ON_CANCELLATION)
    assert not made.publishes_in_tasks, "each epoch publishes its own output"
    assert (made.incremental, made.inline_threshold_bytes, made.backend) == (True, 30 << 10, BackendType.ROCKSDB)
    paused = CheckpointConfig.of(read_options(Checkpointing(dir="d", interval="1 s", min_pause="200 ms").to_options()))
    assert (paused.interval_ms, paused.min_pause_ms) == (1_000, 200)
    renamed = RecoveryConfig.of(read)
    assert (renamed.uids, renamed.renamed_fields) == ({"a": "b"}, {("b", "n"): {"x": "y"}})


@pytest.mark.feature("D2")
@pytest.mark.parametrize("name", [name for name, option in FIELDS.items() if option.kind is DURATION])
def test_no_duration_in_code_is_a_number_without_a_unit(name: str) -> None:
    with pytest.raises(OptionError, match=rf"Checkpointing\({name}=30\): 30 has no unit"):
        Checkpointing(dir="d", **{name: 30})


@pytest.mark.feature("E15", "I15", "I16", "I20")
@pytest.mark.parametrize(
    "keys",
    [
        ("state-recovery.path", "state-recovery.ignore-unclaimed-state", "state-recovery.claim-mode"),
        ("savepoint.path", "savepoint.ignore-unclaimed-state", "savepoint-restore-mode"),
    ],
)
def test_what_a_job_starts_from_is_found_where_the_driver_looks_for_it(keys: tuple[str, ...]) -> None:
    given = dict(zip((f"execution.{key}" for key in keys), ("s3://b/chk-4/", True, "CLAIM")))
    made = RecoveryConfig.of(read_options(given))
    assert (made.path, made.allow_non_restored_state, made.claim_mode) == ("s3://b/chk-4", True, ClaimMode.CLAIM)


@pytest.mark.feature("F26")
def test_a_field_set_in_code_wins_over_its_key() -> None:
    for key in (C + "incremental", "state.backend.incremental"):
        given = Checkpointing(dir="d", incremental=True, options={key: "false"})
        assert CheckpointConfig.of(read_options(given.to_options())).incremental is True


@pytest.mark.feature("F26")
def test_a_field_that_switches_something_off_in_code_wins_over_the_file_for_all_jobs() -> None:
    """`False` and 0 are choices: only a field that is left out leaves it to the file."""
    shared = {C + "incremental": True, C + "tolerable-failed-checkpoints": 3, C + "min-pause": "5 s"}
    given = Checkpointing(dir="d", interval="1 s", incremental=False, tolerable_failures=0, min_pause=0)
    made = CheckpointConfig.of(read_options(given.to_options(), shared))
    assert (made.incremental, made.tolerable_failures, made.min_pause_ms) == (False, 0, 0)
    made = CheckpointConfig.of(read_options(Checkpointing(dir="d", interval="1 s").to_options(), shared))
    assert (made.incremental, made.tolerable_failures, made.min_pause_ms) == (True, 3, 5_000)


@pytest.mark.feature("G10")
@pytest.mark.parametrize("on", [True, False])
def test_an_option_that_is_set_in_code_wins_over_the_file_for_all_jobs_also_if_it_is_off(on: bool) -> None:
    given = Checkpointing(dir="d", interval="1 s", options={"state.changelog.enabled": on})
    read = read_options(given.to_options(), {"state.changelog.enabled": not on})
    assert CheckpointConfig.of(read).changelog is on


@pytest.mark.feature("D4")
@given(st.integers(10, 10**12), st.booleans(), st.sampled_from(CheckpointingMode))
def test_what_is_set_in_code_is_what_is_read(interval: int, incremental: bool, mode: CheckpointingMode) -> None:
    given = Checkpointing(dir="d", interval=timedelta(milliseconds=interval), incremental=incremental, mode=mode)
    made = CheckpointConfig.of(read_options(given.to_options()))
    assert (made.interval_ms, made.incremental, made.mode) == (interval, incremental, mode)


def test_every_field_of_checkpointing_has_an_option() -> None:
    assert set(FIELDS) == set(Checkpointing.__slots__) - {"options"}


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.key)
def test_every_option_parses_its_default_and_has_a_description(option: Option[Any]) -> None:
    if option.default is not None:
        assert option.parse(option.shown_default()) == option.default
    assert option.text.endswith(".")


@pytest.mark.parametrize("option", WITHOUT_EFFECT, ids=lambda option: option.key)
def test_every_option_without_effect_gives_its_reason_unless_it_has_flinks_default(option: WithoutEffect) -> None:
    assert option.text.endswith(".")
    assert option.reason.endswith(".")
    if option.default is not None:
        assert notes({option.key: option.default.upper()}) == {}


@pytest.mark.parametrize("option", [each for each in WITHOUT_EFFECT if each.key not in DECLARED], ids=lambda o: o.key)
def test_the_value_of_an_option_without_effect_is_not_checked(option: WithoutEffect) -> None:
    for key in (option.key, *option.old_keys):
        told = [note for note in read_options({key: "anything"}).notes if note.key == option.key]
        assert [note.text for note in told] == [option.note]


def test_options_without_effect_have_two_layers_too() -> None:
    key = "web.checkpoints.history"
    assert notes({key: 20}) == {key: "This is accepted and not acted on yet. Ten are kept."}
    assert read_options(job={key: 10}, cluster={key: 20}).notes == ()


@pytest.mark.parametrize("table", [ALL, WITHOUT_EFFECT], ids=["declared", "without effect"])
def test_no_key_is_declared_twice(table: tuple[Option[Any] | WithoutEffect, ...]) -> None:
    keys = [key for option in table for key in (option.key, *option.old_keys)]
    assert len(keys) == len(set(keys))


def test_only_options_whose_values_are_read_are_both_declared_and_without_effect() -> None:
    assert {each.key for each in WITHOUT_EFFECT} & DECLARED == {
        C + "interval-during-backlog",
        C + "snapshot-compression",
        C + "unaligned.enabled",
        C + "aligned-checkpoint-timeout",
        C + "unaligned.recover-output-on-downstream.enabled",
        C + "during-recovery.enabled",
    }


def test_every_option_of_flinks_tables_is_answered() -> None:
    wanted = Path(__file__).with_name("flink_options.txt").read_text().split()
    assert set(wanted) <= DECLARED | {each.key for each in WITHOUT_EFFECT}


def test_accesses_to_state_are_measured_only_if_asked() -> None:
    assert read_measuring(read_options()) == Measuring()
    given = {"state.latency-track.keyed-state-enabled": True, "state.latency-track.sample-interval": 10}
    assert read_measuring(read_options(given)) == Measuring(latencies=StateTracking(sample_interval=10))
    old = {"state.backend.latency-track.keyed-state-enabled": True, "state.size-track.keyed-state-enabled": True}
    assert read_measuring(read_options(old)) == Measuring(latencies=StateTracking(), sizes=StateTracking())
    assert read_measuring(
        read_options({"metrics.tasks.enabled": False, "metrics.hot-keys.enabled": False})
    ) == Measuring(tasks=False, hot_keys=False)


def test_an_unset_option_has_its_default() -> None:
    assert Options()[pipeline.MAX_PARALLELISM] == -1


def test_the_page_of_options_is_in_step() -> None:
    page = Path(__file__).parents[3] / "docs" / "operations" / "options.md"
    assert page.read_text() == render(), "run: python -m tests.pages.options > docs/operations/options.md"


def test_the_autoscaler_has_the_defaults_of_flinks_operator_and_only_recommends() -> None:
    read = AutoscalerConfig.of(read_options())
    assert read == AutoscalerConfig()
    assert (read.enabled, read.scaling_enabled) == (False, False)
    assert (read.target, read.min_utilization, read.max_utilization) == (0.7, pytest.approx(0.4), 1.0)
    minutes = (read.window_ms, read.stabilization_ms, read.restart_ms, read.catch_up_ms, read.scale_down_interval_ms)
    assert [ms // 60_000 for ms in minutes] == [15, 5, 5, 30, 60]


def test_the_boundaries_of_utilization_follow_its_target_unless_they_are_set() -> None:
    a = "job.autoscaler."
    moved = AutoscalerConfig.of(read_options({a + "target.utilization": 0.5, a + "target.utilization.boundary": 0.1}))
    assert (moved.target, moved.min_utilization, moved.max_utilization) == (0.5, pytest.approx(0.4), pytest.approx(0.6))
    given = AutoscalerConfig.of(read_options({a + "utilization.min": 0.2, a + "utilization.max": 0.8}))
    assert (given.min_utilization, given.max_utilization) == (0.2, 0.8)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"utilization.max": 0.6}, "utilization.max must be at least job.autoscaler.utilization.target, which is 0.7"),
        ({"utilization.min": 0.8}, "utilization.min must be at most"),
        ({"vertex.min-parallelism": 9, "vertex.max-parallelism": 8}, "vertex.min-parallelism must be at most"),
    ],
)
def test_limits_of_the_autoscaler_that_contradict_each_other_are_refused_if_it_is_on(
    given: dict[str, object], text: str
) -> None:
    options = {f"job.autoscaler.{key}": value for key, value in given.items()}
    read_options(options)
    assert text in problems(options | {"job.autoscaler.enabled": True})


def test_an_autoscaler_that_cannot_work_is_noted() -> None:
    assert "Unused" in notes({"job.autoscaler.scaling.enabled": True})["job.autoscaler.scaling.enabled"]
    blind = notes({"job.autoscaler.enabled": True, "metrics.tasks.enabled": False})
    assert "nothing is decided" in blind["job.autoscaler.enabled"]
