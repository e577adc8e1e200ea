"""How a job runs: everything a user may choose, read once into frozen objects."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tidegate.config import (
    CheckpointConfig,
    Checkpointing,
    OptionError,
    RecoveryConfig,
    RestartConfig,
    read_options,
)
from tidegate.config.autoscaler import AutoscalerConfig
from tidegate.config.choices import AggregatePhaseStrategy, MetricNaming
from tidegate.config.declared.checkpointing import DIR, INTERVAL
from tidegate.config.declared.metrics import NAMING
from tidegate.config.declared.pipeline import AGGREGATE_PHASES, MAX_PARALLELISM
from tidegate.config.declared.recovery import PATH
from tidegate.config.declared.waiting import PROGRESS_TIMEOUT, SLOT_TIMEOUT
from tidegate.config.effective import CommandLineOptions, EffectiveOption, effective
from tidegate.config.file import SERVER_KEYS, shared_options
from tidegate.config.measuring import read_measuring
from tidegate.config.reading import Options, current_key
from tidegate.config.reporting import ReportingConfig
from tidegate.config.restart_strategy import NoRestart, RestartStrategy
from tidegate.config.user import is_own_backend
from tidegate.core.measuring import MEASURING, Measuring
from tidegate.graph.parallelism import default_max_parallelism
from tidegate.runtime.epochs.run_options import RunOptions
from tidegate.runtime.exchange.assignment import Archive
from tidegate.state.backends import DEFAULT, OLDER_TYPE_KEY, TYPE_KEY, WITH_CHANGELOG, backend_named
from tidegate.storage.open import complete_options, complete_url, takes_option

log = logging.getLogger("tidegate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    parallelism: int
    max_parallelism: int
    state_backend: str = DEFAULT
    backend_options: Mapping[str, Any] = field(default_factory=dict)
    changelog: bool = False
    """Whether tasks write what they change to files, for checkpoints."""
    local_dir: str | None = None
    local_retention_ms: int = 86_400_000
    """Versions on local disk that no run has used for longer are removed."""
    epoch_timeout_ms: int = PROGRESS_TIMEOUT.default
    """If an epoch's Spark job makes no progress for this long, it is interrupted and the epoch repeated. 0: never."""
    slot_timeout_ms: int = SLOT_TIMEOUT.default
    """How long a starting job waits for the next of its tasks to be placed, and for the reader of a source."""
    host_timeout_ms: int = 60_000
    """How long a host with state may be unavailable before its versions count as lost."""
    max_tries: int = 10
    """How often one epoch is tried before the job fails."""
    reporting: ReportingConfig = field(default_factory=ReportingConfig)
    spread_ms: int = 100
    """How long each task of the anchor's first job waits, so that the executors share the tasks."""
    effective: tuple[EffectiveOption, ...] = ()
    """Every option with its value and where that comes from, for reports."""
    metric_naming: MetricNaming = MetricNaming.TIDEGATE
    autoscaler: AutoscalerConfig = field(default_factory=AutoscalerConfig)
    measuring: Measuring = MEASURING
    """What tasks measure of themselves."""
    two_stage: bool = True
    """Combine rows of built-in aggregates before the shuffle where possible."""

    @property
    def task_backend(self) -> str:
        """The backend that tasks open."""
        return self.state_backend + (WITH_CHANGELOG if self.changelog else "")


@dataclass(frozen=True, slots=True)
class Durability:
    """Where the history of a job is stored, and what happens when the job fails. Without it, nothing outlives the run."""

    archive: Archive
    checkpoints: CheckpointConfig
    recovery: RecoveryConfig
    restart: RestartStrategy
    fresh: bool = False
    """Abandon the existing history of the job, and start a new one."""
    force: bool = False
    """Take over the job even if its owner seems to be alive."""


_TUNING = {f.name for f in fields(Settings)} - {
    "parallelism",
    "max_parallelism",
    "state_backend",
    "backend_options",
    "changelog",
    "effective",
    "metric_naming",
    "reporting",
    "measuring",
    "autoscaler",
    "two_stage",
    "local_retention_ms",
}
_MAKES_DURABLE = (DIR.key, INTERVAL.key)
_STORE_KEYS = {
    "s3.endpoint": "endpoint",
    "s3.access-key": "access_key_id",
    "s3.access.key": "access_key_id",
    "s3.secret-key": "secret_access_key",
    "s3.secret.key": "secret_access_key",
    "s3.region": "region",
    "hdfs.web-address": "web_address",
    "hdfs.user": "user",
    "hdfs.delegation-token": "delegation_token",
    "hdfs.delegation-token-file": "delegation_token_file",
}
"""Flink's keys for its S3 file system, and tidegate's for HDFS → the names that `open_storage` takes."""


def read_settings(
    cores: int, chosen: RunOptions, *, bounded: bool = False, warns: bool = True
) -> tuple[Settings, Durability | None]:
    """Read all settings: the choices for a run, and under them the options for all jobs. Raises `OptionError` with every
    problem. The second result is None for a job without checkpoints.

    `cores` are those of the Spark session, from which the parallelism is derived. `warns`: log what deserves a look.
    A bounded job takes no checkpoints, so it ignores their directory and interval in the file for all jobs.
    """
    given = dict(chosen.options)
    tuning = {key: _tuned(key, given.pop(key)) for key in list(given) if key in _TUNING}

    checkpoint = chosen.checkpoint
    if isinstance(checkpoint, str):
        checkpoint = Checkpointing(dir=checkpoint)
    if checkpoint is not None:
        given = _with_checkpointing(given, checkpoint, command_line=isinstance(chosen.options, CommandLineOptions))

    shared = _shared(bounded)
    store, shared_store = _taken_store(given), _taken_store(shared)
    # Before `read_options`, which knows only the built-in ones.
    own_backend = _taken_backend(given, shared)

    read = read_options(given, shared)
    for note in read.notes if warns else ():
        log.warning("option %s", note)

    config = CheckpointConfig.of(read)
    backend = chosen.state_backend or own_backend or (str(config.backend) if TYPE_KEY in read.values else DEFAULT)
    _check_backend(backend, read.handed_on)

    if config.dir is not None and config.interval_ms is None:
        raise OptionError(
            (
                "Checkpoints have a directory but no interval, so none would be taken: set one, as in "
                "Checkpointing(dir=…, interval='10 s') or -Dexecution.checkpointing.interval='10 s'.",
            )
        )

    if config.dir is None and read[PATH]:
        raise OptionError(
            (
                f"{PATH.key} (-s) names a snapshot to start from, but a job without checkpoints restores nothing: add a "
                "directory and an interval, as in Checkpointing(dir=…, interval='10 s') or -Dexecution.checkpointing.dir=… "
                "-Dexecution.checkpointing.interval='10 s'.",
            )
        )

    p = chosen.parallelism or 2 * cores
    key_groups = read[MAX_PARALLELISM]
    settings = Settings(
        parallelism=p,
        max_parallelism=chosen.max_parallelism or (key_groups if key_groups > 0 else default_max_parallelism(p)),
        state_backend=backend,
        backend_options=dict(read.handed_on),
        # Without checkpoints nobody reads the changes.
        changelog=config.changelog and config.dir is not None,
        effective=effective(read, chosen.options, given, shared),
        metric_naming=read[NAMING],
        reporting=ReportingConfig.of(read),
        measuring=read_measuring(read),
        autoscaler=AutoscalerConfig.of(read),
        two_stage=read[AGGREGATE_PHASES] is not AggregatePhaseStrategy.ONE_PHASE,
        local_retention_ms=config.local_retention_ms,
        **({"local_dir": config.local_dirs} | _limits(read) | tuning),
    )

    if config.dir is None:
        return settings, None

    # Other jobs may keep their checkpoints in a store of another kind, whose options are in the file too.
    suitable = {key: value for key, value in shared_store.items() if takes_option(config.dir, key)}
    named = {_STORE_KEYS[key]: value for key, value in (suitable | store).items()}
    archive = Archive(complete_url(config.dir), complete_options(config.dir, named))
    strategy = RestartConfig.of(read).strategy
    return settings, Durability(
        archive=archive,
        checkpoints=config,
        recovery=RecoveryConfig.of(read),
        restart=strategy or NoRestart(),
        fresh=chosen.fresh,
        force=chosen.force,
    )


def _limits(read: Options) -> dict[str, Any]:
    """How long the job waits for Spark."""
    return {
        "epoch_timeout_ms": read[PROGRESS_TIMEOUT],
        "slot_timeout_ms": read[SLOT_TIMEOUT],
    }


def _with_checkpointing(given: dict[str, Any], checkpoint: Checkpointing, command_line: bool) -> dict[str, Any]:
    """Add what the code says about checkpoints. It wins over other options in code, and gives way to the command line."""
    code = checkpoint.to_options()
    if not command_line:
        return given | code
    asked = {current_key(key) for key in given}
    return {key: value for key, value in code.items() if current_key(key) not in asked} | given


def _taken_store(layer: dict[str, Any]) -> dict[str, Any]:
    """Take the options of the store out of a layer."""
    return {key: layer.pop(key) for key in list(layer) if key in _STORE_KEYS}


def _shared(bounded: bool) -> dict[str, Any]:
    """The options of the file for all jobs that concern this one."""
    found = {key: value for key, value in shared_options().items() if key not in SERVER_KEYS}
    if bounded:
        found = {key: value for key, value in found.items() if current_key(key) not in _MAKES_DURABLE}
    return found


def _taken_backend(*layers: dict[str, Any]) -> str | None:
    """Take backends of the user's own out of the layers: options know the built-in ones only. The first layer that names a
    backend decides; the result is None if that is a built-in one.
    """
    named = [str(layer.get(TYPE_KEY) or layer.get(OLDER_TYPE_KEY) or "") for layer in layers]
    chosen = next(filter(None, named), "")
    for layer in layers:
        for key in (TYPE_KEY, OLDER_TYPE_KEY):
            if is_own_backend(layer.get(key) or ""):
                del layer[key]
    return chosen if is_own_backend(chosen) else None


def _check_backend(name: str, options: Mapping[str, Any]) -> None:
    """Create the backend once in the driver: a wrong name or option is reported before the job starts, and snapshots of a
    user's own backend are known from here on."""
    try:
        backend_named(name, options)
    except ValueError as error:
        raise OptionError((str(error),)) from None


def check_outlives_driver(directory: str, spark_setting: Callable[[str, str | None], str | None]) -> None:
    """Raises `OptionError` for a directory of checkpoints that is gone with the driver's container."""
    in_container = spark_setting("spark.submit.deployMode", None) == "cluster"
    if in_container and "://" not in directory and not os.path.isabs(os.path.expanduser(directory)):
        raise OptionError(
            (
                f"{DIR.key} is {directory!r}, a path below the working directory of the driver, which is temporary in cluster "
                "mode: give a path or URL that every host has, such as hdfs:///checkpoints.",
            )
        )


def within_memory(settings: Settings, spark_setting: Callable[[str, str | None], str | None]) -> Settings:
    """Give every slot its share of the memory of an executor. Raises `OptionError` if it is too small, or larger than what Spark
    leaves to Python. `spark_setting(key, default)` reads a setting of Spark.
    """
    if settings.state_backend != "rocksdb":
        return settings
    from tidegate.runtime.epochs.executor_memory import ExecutorMemory, describe_budget  # noqa: PLC0415 start-up time
    from tidegate.state.rocksdb.options import option_notes  # noqa: PLC0415 start-up time

    divided = ExecutorMemory.read(spark_setting).with_budget(settings.backend_options)
    for key, note in option_notes({**settings.backend_options, **divided}):
        if key in settings.backend_options:
            log.warning("option %s: %s", key, note)
    log.info("%s", describe_budget(divided))
    return replace(settings, backend_options=divided)


def _tuned(key: str, value: Any) -> Any:
    """Parse a value as given in Python, or on a command line, where everything is text."""
    if key == "local_dir":
        return value
    try:
        return int(value)
    except (TypeError, ValueError):
        raise OptionError((f"{key} is {value!r}; it must be a whole number.",)) from None
