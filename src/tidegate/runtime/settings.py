"""How a job is run, in one frozen place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    parallelism: int
    max_parallelism: int
    state_backend: str = "rocksdb"
    backend_options: Mapping[str, Any] = field(default_factory=dict)
    local_dir: str | None = None
    epoch_timeout_ms: int = 600_000
    """An epoch's Spark job is ended and the epoch repeated when it takes longer."""
    host_timeout_ms: int = 60_000
    """How long a host with state may stay away before its versions count as lost."""
    max_tries: int = 10
    """How often one epoch is tried before the job gives up."""
    spread_ms: int = 100
    """How long each task of the anchor's first job waits, so that the executors share them."""
