"""What a user chooses, read once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.config import Checkpointing, OptionError
from tidegate.config.effective import CommandLineOptions
from tidegate.config.restart_strategy import ExponentialDelay, FailureRate, NoRestart
from tidegate.runtime.epochs.run_options import RunOptions
from tidegate.runtime.epochs.settings import check_outlives_driver, read_settings
from tidegate.state.backends import UnknownBackend, backend_named
from tidegate.state.heap import HashMapBackend

WHERE = Checkpointing(dir="/checkpoints", interval="10 s")
OWN = "tests.unit.runtime.task.test_task.OwnFactory"


@pytest.mark.feature("D1")
def test_without_checkpoints_nothing_is_durable() -> None:
    settings, durability = read_settings(2, RunOptions())
    assert (settings.parallelism, settings.max_parallelism, settings.state_backend) == (4, 128, "hashmap")
    assert durability is None


@pytest.mark.feature("F4", "F20", "F21")
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "hashmap"),
        ({"state.backend.type": "hashmap"}, "hashmap"),
        ({"state.backend.type": "jobmanager"}, "hashmap"),
        ({"state.backend.type": "rocksdb"}, "rocksdb"),
        ({"state.backend": "rocksdb"}, "rocksdb"),
        ({"state.backend": "hashmap", "state.backend.type": "rocksdb"}, "rocksdb"),
        ({"state.backend.type": OWN}, OWN),
        ({"state.backend": OWN}, OWN),
        ({"state.backend": OWN, "state.backend.type": "rocksdb"}, "rocksdb"),
        ({"state.backend": "rocksdb", "state.backend.type": OWN}, OWN),
        ({"state.backend": "no_such.Factory", "state.backend.type": OWN}, OWN),
    ],
)
def test_options_choose_the_backend(options: dict[str, str], name: str) -> None:
    settings, _ = read_settings(2, RunOptions(options=options))
    assert settings.state_backend == name


@pytest.mark.feature("F20", "F21")
@pytest.mark.parametrize("key", ["state.backend.type", "state.backend"])
@pytest.mark.parametrize("name", ["rocksdb", OWN])
def test_the_options_of_checkpoints_choose_the_backend_too(name: str, key: str) -> None:
    settings, _ = read_settings(2, RunOptions(checkpoint=replace(WHERE, options={key: name})))
    assert settings.state_backend == name


@pytest.mark.parametrize("directory", ["checkpoints", "./checkpoints"])
def test_in_cluster_mode_checkpoints_must_not_be_in_the_directory_of_the_driver(directory: str) -> None:
    """YARN and Kubernetes remove it when the driver ends."""

    def cluster(key: str, default: str | None) -> str | None:
        return {"spark.submit.deployMode": "cluster"}.get(key, default)

    with pytest.raises(OptionError, match="temporary"):
        check_outlives_driver(directory, cluster)
    check_outlives_driver("/mnt/checkpoints", cluster)
    check_outlives_driver("s3://bucket/checkpoints", cluster)
    check_outlives_driver(directory, lambda key, default: default)


def with_file(folder, monkeypatch, text: str) -> None:
    (folder / "config.yaml").write_text(text)
    monkeypatch.setenv("TIDEGATE_CONF_DIR", str(folder))


@pytest.mark.feature("H8")
def test_a_job_that_falls_back_is_restarted_as_the_file_for_all_jobs_says(tmp_path, monkeypatch) -> None:
    """If that falls back, too, the default applies."""
    for named, strategy in (("failure-rate", FailureRate), ("fallback", ExponentialDelay)):
        with_file(tmp_path, monkeypatch, f"restart-strategy.type: {named}\n")
        for key in ("restart-strategy.type", "restart-strategy"):
            _, durability = read_settings(2, RunOptions(checkpoint=WHERE, options={key: "fallback"}))
            assert durability is not None
            assert isinstance(durability.restart, strategy)


@pytest.mark.feature("D32")
def test_the_file_for_all_jobs_sets_what_the_job_does_not(tmp_path, monkeypatch) -> None:
    with_file(
        tmp_path,
        monkeypatch,
        """
        execution.checkpointing:
          dir: s3://all/checkpoints
          interval: 1 min
          timeout: 3 min
        state.backend: rocksdb
        s3.region: eu-west-1
        s3.endpoint: https://elsewhere
        rest.port: 8082
        """,
    )
    choices = {"execution.checkpointing.timeout": "5 min", "s3.endpoint": "https://here"}
    settings, durability = read_settings(2, RunOptions(checkpoint=Checkpointing(interval="10 s"), options=choices))
    assert durability is not None
    config = durability.checkpoints
    assert (config.dir, config.interval_ms, config.timeout_ms) == ("s3://all/checkpoints", 10_000, 300_000)
    assert settings.state_backend == "rocksdb"
    assert durability.archive.options["region"] == "eu-west-1"
    assert durability.archive.options["endpoint"] == "https://here"
    origins = {option.key: option.origin for option in settings.effective}
    assert origins["execution.checkpointing.dir"] == origins["state.backend.type"] == "file"
    assert origins["execution.checkpointing.interval"] == origins["execution.checkpointing.timeout"] == "code"
    assert origins["execution.checkpointing.mode"] == "default"


CHECKPOINTS_FOR_ALL = (
    "state.checkpoints.dir: s3://all\nexecution.checkpointing.interval: 1 min\nstate.backend: rocksdb\n"
)


@pytest.mark.feature("D32")
def test_a_bounded_job_ignores_checkpoints_of_the_file_and_not_its_own(tmp_path, monkeypatch) -> None:
    with_file(tmp_path, monkeypatch, CHECKPOINTS_FOR_ALL + "execution.checkpointing.local-backup.dirs: /fast\n")
    settings, durability = read_settings(2, RunOptions(), bounded=True)
    assert (settings.state_backend, settings.local_dir, durability) == ("rocksdb", "/fast", None)
    assert read_settings(2, RunOptions(checkpoint=WHERE), bounded=True)[1] is not None
    assert read_settings(2, RunOptions())[1] is not None


@pytest.mark.feature("D32")
def test_options_of_the_file_for_another_kind_of_store_are_ignored(tmp_path, monkeypatch) -> None:
    with_file(tmp_path, monkeypatch, "s3.endpoint: https://elsewhere\nhdfs.user: tide\n")
    _, durability = read_settings(2, RunOptions(checkpoint=WHERE))
    assert durability is not None
    assert durability.archive.options == {}
    _, durability = read_settings(2, RunOptions(checkpoint=replace(WHERE, dir="s3://bucket/checkpoints")))
    assert durability is not None
    assert durability.archive.options == {"endpoint": "https://elsewhere"}


@pytest.mark.feature("D32")
@pytest.mark.parametrize(
    ("file", "job", "name"),
    [(OWN, {}, OWN), (OWN, {"state.backend.type": "hashmap"}, "hashmap"), ("rocksdb", {"state.backend": OWN}, OWN)],
)
def test_the_backend_of_a_job_wins_over_that_of_the_file(file, job, name, tmp_path, monkeypatch) -> None:
    with_file(tmp_path, monkeypatch, f"state.backend.type: {file}")
    settings, _ = read_settings(2, RunOptions(options=job))
    assert settings.state_backend == name


@pytest.mark.feature("F20", "F23")
def test_the_argument_of_a_job_wins_over_the_option() -> None:
    for option in ("rocksdb", OWN):
        settings, _ = read_settings(2, RunOptions(state_backend="hashmap", options={"state.backend.type": option}))
        assert settings.state_backend == "hashmap"


@pytest.mark.feature("D2", "F20", "F26")
def test_what_is_set_in_code_wins_over_the_same_option() -> None:
    given = replace(WHERE, incremental=True, backend="rocksdb")
    keys = ("execution.checkpointing.interval", "execution.checkpointing.incremental", "state.backend.type")
    settings, durability = read_settings(
        2, RunOptions(checkpoint=given, options=dict(zip(keys, ("1 min", False, "hashmap"))))
    )
    assert durability is not None
    assert (durability.checkpoints.interval_ms, durability.checkpoints.incremental) == (10_000, True)
    assert settings.state_backend == "rocksdb"


@pytest.mark.parametrize("key", ["execution.checkpointing.dir", "state.checkpoints.dir"])
def test_the_command_line_wins_over_what_is_set_in_code(key: str) -> None:
    """Also under an old name of the option."""
    given = CommandLineOptions({key: "/elsewhere"})
    settings, durability = read_settings(2, RunOptions(checkpoint=replace(WHERE, backend="rocksdb"), options=given))
    assert durability is not None
    assert (durability.checkpoints.dir, durability.checkpoints.interval_ms) == ("/elsewhere", 10_000)
    assert settings.state_backend == "rocksdb"
    origins = {option.key: option.origin for option in settings.effective}
    assert (origins["execution.checkpointing.dir"], origins["execution.checkpointing.interval"]) == ("-D", "code")


@pytest.mark.feature("D2", "D26")
def test_a_directory_alone_switches_nothing_on_and_is_refused() -> None:
    with pytest.raises(OptionError, match="a directory but no interval, so none would be taken"):
        read_settings(2, RunOptions(checkpoint="/checkpoints"))


@pytest.mark.feature("F22")
def test_a_custom_backend_that_does_not_exist_is_reported_before_the_job_starts() -> None:
    with pytest.raises(UnknownBackend, match=r"no_such_module\.Factory"):
        read_settings(2, RunOptions(options={"state.backend.type": "no_such_module.Factory"}))


@pytest.mark.parametrize("key", ["memory.manged", "block.cache-sise"])
def test_an_option_that_the_backend_does_not_have_is_reported_before_the_job_starts(key: str) -> None:
    with pytest.raises(OptionError, match=f"{key} is not an option of the rocksdb backend"):
        read_settings(2, RunOptions(state_backend="rocksdb", options={f"state.backend.rocksdb.{key}": "true"}))


@pytest.mark.feature("F23")
def test_options_of_a_backend_are_passed_on() -> None:
    settings, _ = read_settings(2, RunOptions(options={"state.backend.hashmap.cache-size": "1 mb"}))
    assert backend_named(settings.state_backend, settings.backend_options) == HashMapBackend(cache_size=1 << 20)


@pytest.mark.feature("F23", "D31")
def test_a_job_chooses_its_backend_storage_and_local_directory() -> None:
    options = {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.dir": "s3://bucket/c",
        "execution.checkpointing.interval": "1 min",
        "taskmanager.state.local.root-dirs": "/fast",
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.access-key": "me",
        "s3.secret-key": "mine",
        "epoch_timeout_ms": 5,
    }
    settings, durability = read_settings(2, RunOptions(options=options))
    assert (settings.state_backend, settings.local_dir, settings.epoch_timeout_ms) == ("rocksdb", "/fast", 5)
    assert durability is not None
    assert (durability.archive.url, durability.archive.options) == (
        "s3://bucket/c",
        {"endpoint": "http://127.0.0.1:9000", "access_key_id": "me", "secret_access_key": "mine"},
    )
    assert durability.checkpoints.interval_ms == 60_000


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("checkpoints", "{here}/checkpoints"),
        ("../checkpoints", "{above}/checkpoints"),
        ("~/checkpoints", "{home}/checkpoints"),
        ("/checkpoints", "/checkpoints"),
        ("file:///checkpoints", "file:///checkpoints"),
    ],
)
def test_tasks_in_another_directory_open_the_checkpoints_of_the_driver(given, meant, tmp_path, monkeypatch) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    _, durability = read_settings(2, RunOptions(checkpoint=replace(WHERE, dir=given)))
    assert durability is not None
    assert durability.archive.url == meant.format(here=here, above=tmp_path, home=home)


@pytest.mark.feature("N20")
def test_a_job_is_configured_with_rocksdb_and_hdfs_or_with_the_hashmap_backend_only() -> None:
    options = {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": "hdfs://namenode:40010/flink/checkpoints",
        "execution.checkpointing.interval": "1 min",
        "hdfs.user": "ann",
    }
    settings, durability = read_settings(2, RunOptions(options=options))
    assert durability is not None
    assert (settings.state_backend, durability.archive.url) == ("rocksdb", "hdfs://namenode:40010/flink/checkpoints")
    assert durability.archive.options["web_address"] == "http://namenode:9870"
    settings, durability = read_settings(2, RunOptions(options={"state.backend.type": "hashmap"}))
    assert (settings.state_backend, durability) == ("hashmap", None)


@pytest.mark.feature("E5")
def test_a_job_keeps_its_checkpoints_in_hdfs() -> None:
    store = {"hdfs.web-address": "one:9870,two:9870", "hdfs.user": "ann", "hdfs.delegation-token": "t"}
    where = "hdfs://bank/checkpoints"
    chosen = Checkpointing(dir=where, interval="1 s", options=store)
    by_key = {"execution.checkpointing.dir": where, "execution.checkpointing.interval": "1 s", **store}
    for given in ({"checkpoint": chosen}, {"checkpoint": None, "options": by_key}):
        _, durability = read_settings(2, RunOptions(**given))
        assert durability is not None
        assert durability.archive.url == where
        assert durability.archive.options == {
            "web_address": "http://one:9870,http://two:9870", "user": "ann", "delegation_token": "t",
            "timeout_ms": 60_000, "connect_timeout_ms": 10_000,
        }  # fmt: skip


@pytest.mark.feature("H7")
def test_with_checkpoints_a_failed_job_is_restarted_unless_configured_otherwise() -> None:
    _, durability = read_settings(2, RunOptions(checkpoint=WHERE))
    assert durability is not None
    assert isinstance(durability.restart, ExponentialDelay)
    _, durability = read_settings(2, RunOptions(checkpoint=WHERE, options={"restart-strategy.type": "none"}))
    assert durability is not None
    assert durability.restart == NoRestart()


def test_a_typing_mistake_is_reported_with_the_likely_intention() -> None:
    with pytest.raises(OptionError, match=r"execution\.checkpointing\.interval"):
        read_settings(2, RunOptions(options={"execution.checkpointing.intervall": "1 s"}))


def test_tuning_may_come_from_a_command_line_where_everything_is_text():
    settings, _ = read_settings(2, RunOptions(options={"host_timeout_ms": "12000", "max_tries": "3"}))
    assert (settings.host_timeout_ms, settings.max_tries) == (12_000, 3)
    with pytest.raises(OptionError, match="max_tries is 'many'; it must be a whole number"):
        read_settings(2, RunOptions(options={"max_tries": "many"}))


@pytest.mark.feature("B4")
def test_options_of_the_backend_are_handed_on_to_it() -> None:
    options = {"state.backend.rocksdb.timer-service.factory": "heap"}
    settings, _ = read_settings(2, RunOptions(state_backend="rocksdb", options=options))
    store_options = backend_named(settings.state_backend, settings.backend_options).options  # type: ignore[attr-defined]
    assert store_options.timer_service == "HEAP"


@pytest.mark.feature("A13")
@pytest.mark.parametrize(("job", "option", "wanted"), [(None, "512", 512), (256, "512", 256), (None, "-1", 128)])
def test_the_number_of_key_groups_may_be_an_option_that_the_job_overrides(job, option, wanted):
    settings, _ = read_settings(2, RunOptions(max_parallelism=job, options={"pipeline.max-parallelism": option}))
    assert settings.max_parallelism == wanted


def test_an_option_without_effect_is_logged(caplog):
    read_settings(2, RunOptions(options={"sink.committer.retries": "3"}))
    assert "sink.committer.retries" in caplog.text
    assert "offered until its target takes it" in caplog.text
