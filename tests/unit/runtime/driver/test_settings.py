"""What a user chooses, read once."""

from __future__ import annotations

import pytest

from tidegate.config import Checkpointing, OptionError
from tidegate.config.restart_strategy import ExponentialDelay, NoRestart
from tidegate.runtime.driver.settings import read_settings

WHERE = Checkpointing(dir="/checkpoints", interval="10 s")
NONE = {"parallelism": None, "max_parallelism": None}


def test_without_checkpoints_nothing_is_durable() -> None:
    settings, durability = read_settings(2, **NONE)
    assert (settings.parallelism, settings.max_parallelism, settings.state_backend) == (4, 128, "hashmap")
    assert durability is None


@pytest.mark.feature("F23", "D31")
def test_a_job_chooses_its_backend_storage_and_local_directory() -> None:
    options = {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.dir": "s3://bucket/c",
        "execution.checkpointing.interval": "1 min",
        "taskmanager.state.local.root-dirs": "/fast",
        "s3.endpoint": "http://127.0.0.1:9000",
        "epoch_timeout_ms": 5,
    }
    settings, durability = read_settings(2, **NONE, options=options)
    assert (settings.state_backend, settings.local_dir, settings.epoch_timeout_ms) == ("rocksdb", "/fast", 5)
    assert durability is not None
    assert (durability.archive.url, durability.archive.options) == (
        "s3://bucket/c",
        {"endpoint": "http://127.0.0.1:9000"},
    )
    assert durability.checkpoints.interval_ms == 60_000


def test_with_checkpoints_a_failed_job_is_restarted_unless_it_is_told_otherwise() -> None:
    _, durability = read_settings(2, **NONE, checkpoint=WHERE)
    assert durability is not None
    assert isinstance(durability.restart, ExponentialDelay)
    _, durability = read_settings(2, **NONE, checkpoint=WHERE, options={"restart-strategy.type": "none"})
    assert durability is not None
    assert durability.restart == NoRestart()


def test_a_typing_mistake_is_told_with_what_was_meant() -> None:
    with pytest.raises(OptionError, match=r"execution\.checkpointing\.interval"):
        read_settings(2, **NONE, options={"execution.checkpointing.intervall": "1 s"})


def test_tuning_may_come_from_a_command_line_where_everything_is_text():
    settings, _ = read_settings(
        2, parallelism=None, max_parallelism=None, options={"host_timeout_ms": "12000", "max_tries": "3"}
    )
    assert (settings.host_timeout_ms, settings.max_tries) == (12_000, 3)
    with pytest.raises(OptionError, match="max_tries is 'many'; it must be a whole number"):
        read_settings(2, parallelism=None, max_parallelism=None, options={"max_tries": "many"})


@pytest.mark.parametrize(("job", "option", "wanted"), [(None, "512", 512), (256, "512", 256), (None, "-1", 128)])
def test_the_number_of_key_groups_may_be_an_option_that_the_job_overrides(job, option, wanted):
    settings, _ = read_settings(2, parallelism=None, max_parallelism=job, options={"pipeline.max-parallelism": option})
    assert settings.max_parallelism == wanted


def test_an_option_without_effect_is_told_in_the_log(caplog):
    read_settings(2, **NONE, options={"sink.committer.retries": "3"})
    assert "sink.committer.retries" in caplog.text
    assert "offered until its target takes it" in caplog.text
