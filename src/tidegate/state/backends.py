"""Which backend a job uses: by name, by Flink's configuration keys, or by the class name of a user's own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol

from tidegate.core.errors import ConfigurationError
from tidegate.state.port import StateBackend

TYPE_KEY = "state.backend.type"
OLDER_TYPE_KEY = "state.backend"
DEFAULT = "hashmap"
BUILT_IN = frozenset({"hashmap", "rocksdb"})
_chosen: set[str] = set()
"""Names of backends of the user's own that a job of this process was told to use."""


class StateBackendFactory(Protocol):
    """What a user's class must offer to be named in `state.backend.type`. It is made without arguments."""

    def create_from_config(self, configuration: Mapping[str, Any]) -> StateBackend:
        """The backend. It is pickled to the workers, so it holds configuration only."""
        ...


class UnknownBackend(ConfigurationError):
    """The named backend does not exist, or is not one."""

    code = "UNKNOWN_BACKEND"

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(
            f"The state backend {name!r} {why}. Use 'hashmap', 'rocksdb', or the full name of a class with "
            "create_from_config(configuration), importable on the driver and on every executor."
        )


def backend_from_configuration(configuration: Mapping[str, Any]) -> StateBackend:
    """The backend that `state.backend.type`, or the older `state.backend`, asks for; without both, `hashmap`."""
    name = configuration.get(TYPE_KEY) or configuration.get(OLDER_TYPE_KEY) or DEFAULT
    return backend_named(str(name), configuration)


def backend_named(name: str, configuration: Mapping[str, Any] | None = None) -> StateBackend:
    """The backend called `name`, with its options out of `configuration`.

    Client libraries are imported only for the backend that is asked for.
    """
    options = configuration or {}
    match name.strip():
        case "hashmap" | "jobmanager":
            from tidegate.state.heap import HashMapBackend  # noqa: PLC0415 start-up time

            return HashMapBackend.from_configuration(options)
        case "rocksdb":
            from tidegate.state.rocksdb import RocksDBBackend, RocksDBOptions  # noqa: PLC0415 start-up time

            return RocksDBBackend(RocksDBOptions.from_configuration(options))
        case other:
            made = _factory(other).create_from_config(options)
            _chosen.update((other, made.name))
            return made


def is_known(name: str) -> bool:
    """Whether files may name this backend: it is one of tidegate's own, or a job here was told to use it."""
    return name in BUILT_IN or name in _chosen


def built_in_backend(name: str, configuration: Mapping[str, Any] | None = None) -> StateBackend:
    """One of tidegate's own backends, by the name that a stored file gives. It never imports what a file names."""
    if name not in BUILT_IN:
        raise UnknownBackend(name, "is named by a file, and is not one of tidegate's own")
    return backend_named(name, configuration)


def _factory(name: str) -> StateBackendFactory:
    module_name, _, class_name = name.rpartition(".")
    if not module_name:
        raise UnknownBackend(name, "is not known")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise UnknownBackend(name, f"cannot be imported ({error})") from error
    if not (isinstance(found, type) and hasattr(found, "create_from_config")):
        raise UnknownBackend(name, "has no method create_from_config")
    factory: StateBackendFactory = found()
    return factory
