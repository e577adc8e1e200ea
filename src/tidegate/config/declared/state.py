"""Where state is kept."""

from __future__ import annotations

from tidegate.config.choices import BackendType
from tidegate.config.option import BOOL, Option, enum

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
    "Make each epoch's changes durable at its end. Needs one concurrent checkpoint, and CLAIM for a restore.",
    old_keys=("state.backend.changelog.enabled",),
)
