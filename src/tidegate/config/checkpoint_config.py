"""The options as the rest of the code wants them: frozen, typed, with what depends on another already worked out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.config.choices import (
    BackendType,
    CheckpointingMode,
    ClaimMode,
    Publisher,
    RestartType,
    Retention,
)
from tidegate.config.declared import checkpointing as c
from tidegate.config.declared import output, recovery, restart, state, unaligned
from tidegate.config.measuring import read_prices
from tidegate.config.reading import Options
from tidegate.config.restart_strategy import ExponentialDelay, FailureRate, FixedDelay, NoRestart, RestartStrategy
from tidegate.core.storage_cost import LIST_PRICES, StoragePrices

_YEAR_MS = 365 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """How a job is checkpointed. `interval_ms` None: it is not, and then it delivers at most once."""

    interval_ms: int | None
    mode: CheckpointingMode
    timeout_ms: int
    min_pause_ms: int
    max_concurrent: int
    tolerable_failures: int
    retention: Retention
    num_retained: int
    dir: str | None
    savepoint_dir: str | None
    incremental: bool
    inline_threshold_bytes: int
    unaligned: bool
    aligned_timeout_ms: int
    backend: BackendType
    local_dirs: str | None
    stop_timeout_ms: int
    max_waiting_epochs: int
    max_waiting_bytes: int
    refuse_unpublished: bool
    publisher: Publisher
    changelog: bool = False
    materialize_interval_ms: int | None = None
    """With a changelog: how often whole versions are stored; None: never."""
    materialize_incrementally: bool = False
    materialize_failures: int = 3
    parallel_cleaning: bool = True
    local_retention_ms: int = 86_400_000
    """Versions on local disk that no run has used for longer are removed."""
    inline_output_bytes: int = 0
    """Staged rows of one task and epoch that wait in the metadata instead of storage …"""
    max_inline_output_bytes: int = 0
    """… up to this size for everything that waits."""
    prices: StoragePrices = LIST_PRICES
    """Of requests to an object store, for estimates."""

    @staticmethod
    def of(options: Options) -> CheckpointConfig:
        # Flink's rules for these three: a pause of at most a year, an interval no shorter than it, and with a pause one
        # checkpoint at a time (`rules.remarks` notes the last two).
        pause_ms = min(options[c.MIN_PAUSE], _YEAR_MS)
        interval_ms = options[c.INTERVAL]
        stop_timeout_ms = options[output.STOP_TIMEOUT]
        return CheckpointConfig(
            interval_ms=None if interval_ms is None else max(interval_ms, pause_ms),
            # Without checkpoints, output would wait for one that never comes.
            mode=CheckpointingMode.AT_LEAST_ONCE if interval_ms is None else options[c.MODE],
            timeout_ms=options[c.TIMEOUT],
            min_pause_ms=pause_ms,
            max_concurrent=1 if pause_ms else options[c.MAX_CONCURRENT],
            tolerable_failures=options[c.TOLERABLE_FAILURES],
            retention=options[c.RETENTION],
            num_retained=options[c.NUM_RETAINED],
            dir=_directory(options[c.DIR]),
            savepoint_dir=_directory(options[c.SAVEPOINT_DIR]),
            # With a changelog, every checkpoint uploads only what changed.
            incremental=options[c.INCREMENTAL] or options[state.CHANGELOG],
            inline_threshold_bytes=options[c.INLINE_THRESHOLD],
            unaligned=options[unaligned.UNALIGNED],
            aligned_timeout_ms=options[unaligned.ALIGNED_TIMEOUT],
            backend=options[state.BACKEND],
            local_dirs=options[c.LOCAL_DIRS],
            local_retention_ms=options[c.LOCAL_RETENTION],
            stop_timeout_ms=options[c.TIMEOUT] if stop_timeout_ms is None else stop_timeout_ms,
            max_waiting_epochs=options[output.MAX_WAITING_EPOCHS],
            max_waiting_bytes=options[output.MAX_WAITING_SIZE],
            refuse_unpublished=options[output.REFUSE_UNPUBLISHED],
            publisher=options[output.PUBLISHER],
            changelog=options[state.CHANGELOG],
            materialize_interval_ms=options[state.MATERIALIZE_INTERVAL]
            if options[state.CHANGELOG] and options[state.PERIODIC_MATERIALIZE]
            else None,
            materialize_incrementally=options[c.INCREMENTAL],
            materialize_failures=options[state.MATERIALIZE_FAILURES],
            parallel_cleaning=options[c.PARALLEL_CLEANING],
            inline_output_bytes=options[output.INLINE_THRESHOLD],
            max_inline_output_bytes=options[output.MAX_INLINE_SIZE],
            prices=read_prices(options),
        )

    @property
    def publishes_in_tasks(self) -> bool:
        return self.publisher is not Publisher.DRIVER and self.mode is CheckpointingMode.EXACTLY_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryConfig:
    """What a job starts from, and what it may leave behind."""

    path: str | None
    allow_non_restored_state: bool
    claim_mode: ClaimMode
    uids: Mapping[str, str] = field(default_factory=dict)
    """Old uid → new uid."""
    renamed_fields: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    """(uid, state) → old name of a field → new name."""
    dropped_states: frozenset[tuple[str, str]] = frozenset()
    """Uid and name of states that the job does without."""
    accept_foreign_output: bool = False
    """Whether a target may have output that the log does not know."""
    accept_moved_directory: bool = False
    """Whether the job's directory may be elsewhere than its last run used it."""

    @staticmethod
    def of(options: Options) -> RecoveryConfig:
        uids, renamed = options[recovery.MAP_UIDS], options[recovery.RENAMED_FIELDS]
        dropped = options[recovery.DROP_STATE]
        return RecoveryConfig(
            path=_directory(options[recovery.PATH]),
            allow_non_restored_state=options[recovery.IGNORE_UNCLAIMED],
            claim_mode=options[recovery.CLAIM_MODE],
            uids=uids or {},
            renamed_fields=dict(renamed or {}),
            dropped_states=frozenset(dropped or ()),
            accept_foreign_output=options[recovery.ACCEPT_FOREIGN_OUTPUT],
            accept_moved_directory=options[recovery.ACCEPT_MOVED_DIRECTORY],
        )


@dataclass(frozen=True, slots=True)
class RestartConfig:
    """The strategy after a failure."""

    strategy: RestartStrategy

    @staticmethod
    def of(options: Options) -> RestartConfig:
        chosen = options[restart.TYPE]
        if chosen is None:
            on = options[c.INTERVAL] is not None
            chosen = RestartType.EXPONENTIAL_DELAY if on else RestartType.NONE
        return RestartConfig(_strategy(chosen, options))


def _strategy(chosen: RestartType, options: Options) -> RestartStrategy:
    match chosen:
        case RestartType.FIXED_DELAY:
            return FixedDelay(options[restart.FIXED_ATTEMPTS], options[restart.FIXED_DELAY])
        case RestartType.FAILURE_RATE:
            return FailureRate(
                options[restart.RATE_MAX_FAILURES], options[restart.RATE_INTERVAL], options[restart.RATE_DELAY]
            )
        case RestartType.EXPONENTIAL_DELAY:
            return ExponentialDelay(
                initial_ms=options[restart.EXP_INITIAL],
                max_ms=options[restart.EXP_MAX],
                multiplier=options[restart.EXP_MULTIPLIER],
                reset_ms=options[restart.EXP_RESET],
                jitter=options[restart.EXP_JITTER],
                attempts=options[restart.EXP_ATTEMPTS],
            )
        case _:
            return NoRestart()


def _directory(text: str | None) -> str | None:
    """Without the slashes at the end, which would double in paths below it."""
    return (text.rstrip("/") or "/") if text else None
