"""Every option there is, one module for each family of keys. `SECTIONS` is what parser and documents walk through."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tidegate.config.declared import checkpointing, output, pipeline, recovery, restart, state, unaligned
from tidegate.config.option import Option


def _options(module: ModuleType) -> tuple[Option[Any], ...]:
    return tuple(value for value in vars(module).values() if isinstance(value, Option))


SECTIONS: tuple[tuple[str, str, tuple[Option[Any], ...]], ...] = tuple(
    (module.TITLE, (module.__doc__ or "").strip(), _options(module))
    for module in (checkpointing, unaligned, output, recovery, restart, state, pipeline)
)

ALL: tuple[Option[Any], ...] = tuple(option for _, _, options in SECTIONS for option in options)

HANDED_ON: tuple[str, ...] = ("state.backend.rocksdb.", "state.backend.hashmap.")
"""Keys under these belong to a state backend, which declares and checks them itself."""

FOREIGN: dict[str, str] = {
    "jobmanager.": "Flink's JobManager process is not there: the Spark driver coordinates the job.",
    "taskmanager.": "Flink's TaskManager processes are not there: give memory, cores and disks to Spark's executors.",
    "process.": "Flink's processes are not there: their working directories are Spark's.",
    "parallelism.": "Parallelism is given to the job, as `-p` or `tg.Job(name, parallelism=…)`.",
    "high-availability.": "The log in the checkpoint directory decides who owns a job; no other service is needed.",
    "blob.": "Code is distributed by Spark.",
    "kubernetes.": "Deployment is Spark's.",
    "yarn.": "Deployment is Spark's.",
    "env.": "The environment of processes is Spark's.",
    "io.tmp.dirs": "Local directories are Spark's, and execution.checkpointing.local-backup.dirs for state.",
    "state.backend.forst.": "The ForSt backend is not offered; `rocksdb` is the backend for state beyond memory.",
}
"""Families of Flink's keys that mean nothing here. They pass with the reason, so a configuration can be shared."""
