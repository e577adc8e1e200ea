"""Configuration of a job's history: options under Flink's keys, declared once, read from a mapping into frozen data."""

from tidegate.checkpoint.options.choices import (
    BackendType,
    CheckpointingMode,
    ClaimMode,
    JobEnd,
    RestartType,
    Retention,
)
from tidegate.checkpoint.options.config import CheckpointConfig, RecoveryConfig, RestartConfig
from tidegate.checkpoint.options.errors import OptionError, OptionNote
from tidegate.checkpoint.options.file import read_file
from tidegate.checkpoint.options.reading import Options, read_options
from tidegate.checkpoint.options.user import Checkpointing

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
