"""Every option whose value is read, one module for each family of keys. `SECTIONS` is what parser and documents walk through.

Flink's other options are in `tidegate.config.without_effect`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tidegate.config.declared import (
    autoscaler,
    checkpointing,
    measuring,
    metrics,
    output,
    pipeline,
    recovery,
    reporting,
    restart,
    state,
    unaligned,
    waiting,
)
from tidegate.config.option import Option


def _options(module: ModuleType) -> tuple[Option[Any], ...]:
    listed: tuple[Option[Any], ...] | None = getattr(module, "OPTIONS", None)
    return listed or tuple(value for value in vars(module).values() if isinstance(value, Option))


SECTIONS: tuple[tuple[str, str, tuple[Option[Any], ...]], ...] = tuple(
    (module.TITLE, (module.__doc__ or "").strip(), _options(module))
    for module in (
        checkpointing,
        unaligned,
        output,
        recovery,
        restart,
        waiting,
        state,
        measuring,
        metrics,
        pipeline,
        reporting,
        autoscaler,
    )
)

ALL: tuple[Option[Any], ...] = tuple(option for _, _, options in SECTIONS for option in options)

HANDED_ON: tuple[str, ...] = ("state.backend.rocksdb.", "state.backend.hashmap.")
"""Keys under these belong to a state backend, which declares and checks them itself."""
