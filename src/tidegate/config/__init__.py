"""Configuration of a job's history: options under Flink's keys, declared once, read from a mapping into frozen data."""

from tidegate.config.checkpoint_config import CheckpointConfig, RecoveryConfig, RestartConfig
from tidegate.config.choices import (
    BackendType,
    CheckpointingMode,
    ClaimMode,
    JobEnd,
    RestartType,
    Retention,
)
from tidegate.config.errors import OptionError, OptionNote
from tidegate.config.file import read_file
from tidegate.config.reading import Options, read_options
from tidegate.config.user import Checkpointing

__all__ = [
    "BackendType",
    "CheckpointConfig",
    "Checkpointing",
    "CheckpointingMode",
    "ClaimMode",
    "JobEnd",
    "OptionError",
    "OptionNote",
    "Options",
    "RecoveryConfig",
    "RestartConfig",
    "RestartType",
    "Retention",
    "read_file",
    "read_options",
]
