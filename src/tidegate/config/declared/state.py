"""Where state is kept."""

from __future__ import annotations

from tidegate.config.choices import BackendType
from tidegate.config.option import BOOL, DURATION, INT, Option, enum

TITLE = "State"

BACKEND: Option[BackendType] = Option(
    "state.backend.type",
    enum(
        BackendType,
        aliases={"jobmanager": BackendType.HASHMAP},
        hints={
            "forst": "ForSt keeps state remote; rocksdb is the backend for state beyond memory",
            "filesystem": "that named a checkpoint storage too; say hashmap, and set execution.checkpointing.dir",
        },
    ),
    BackendType.HASHMAP,
    "`hashmap` keeps state in the memory of Python workers, `rocksdb` on local disk.",
    old_keys=("state.backend",),
)
CHANGELOG: Option[bool] = Option(
    "state.changelog.enabled",
    BOOL,
    False,
    "A checkpoint uploads what changed since the last one, and no file that a compaction has rewritten. Needs one concurrent "
    "checkpoint, and CLAIM for a restore.",
    old_keys=("state.backend.changelog.enabled",),
)
PERIODIC_MATERIALIZE: Option[bool] = Option(
    "state.changelog.periodic-materialize.enabled",
    BOOL,
    True,
    "Upload whole versions periodically in the background, so that changes do not add up.",
)
MATERIALIZE_INTERVAL: Option[int] = Option(
    "state.changelog.periodic-materialize.interval",
    DURATION,
    600_000,
    "Time between two such uploads of a task. Tasks take turns. A restore applies the changes since.",
    old_keys=("state.backend.changelog.periodic-materialize.interval",),
)
MATERIALIZE_FAILURES: Option[int] = Option(
    "state.changelog.max-failures-allowed",
    INT,
    3,
    "Consecutive failures of such uploads that are tolerated. One more fails the job over.",
    old_keys=("state.backend.changelog.max-failures-allowed",),
)
