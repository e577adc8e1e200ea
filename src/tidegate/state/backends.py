"""Selects the backend of a job: by name, by Flink's configuration keys, or by the class name of a custom backend."""

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
WITH_CHANGELOG = "+changelog"
"""Follows the name of a backend whose attempts write change files, and of one whose stored state consists of files of the
backend and of later changes. Releases that cannot apply the changes do not know the name."""
_chosen: set[str] = set()
"""Names of custom backends that a job in this process is configured to use."""


class StateBackendFactory(Protocol):
    """The interface of a custom class named in `state.backend.type`. It is instantiated without arguments."""

    def create_from_config(self, configuration: Mapping[str, Any]) -> StateBackend:
        """Return the backend. It is pickled to the workers, so it must hold only configuration."""
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


def backend_named(name: str, configuration: Mapping[str, Any] | None = None) -> StateBackend:
    """Return the backend called `name`, with its options from `configuration`.

    Client libraries are imported only for the selected backend.
    """
    options = configuration or {}
    plain = name.strip()
    if plain.endswith(WITH_CHANGELOG):
        from tidegate.state.changelog import ChangelogBackend  # noqa: PLC0415 start-up time

        return ChangelogBackend(backend_named(plain.removesuffix(WITH_CHANGELOG), options))
    match plain:
        case "hashmap" | "jobmanager":
            from tidegate.state.heap import HashMapBackend  # noqa: PLC0415 start-up time

            return HashMapBackend.from_configuration(options)
        case "rocksdb":
            from tidegate.state.rocksdb import RocksDBBackend, RocksDBOptions  # noqa: PLC0415 start-up time

            return RocksDBBackend(RocksDBOptions.from_configuration(options))
        case other:
            made = _factory(other).create_from_config(options)
            # Both: files have the name that the backend gives itself, and a configuration that of the class.
            _chosen.update((other, made.name))
            return made


def plain_name(name: str) -> str:
    """Return the name of a backend without that of the changelog."""
    return name.removesuffix(WITH_CHANGELOG)


def is_known(name: str) -> bool:
    """Whether files may name this backend: it is built in, or a job in this process is configured to use it."""
    plain = plain_name(name)
    return plain in BUILT_IN or plain in _chosen


def built_in_backend(name: str, configuration: Mapping[str, Any] | None = None) -> StateBackend:
    """Return the built-in backend that a stored file names, without a changelog. Never imports code that a file names."""
    plain = plain_name(name)
    if plain not in BUILT_IN:
        # A file must never decide what code is imported.
        raise UnknownBackend(name, "is named by a file, and is not built into tidegate")
    return backend_named(plain, configuration)


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
