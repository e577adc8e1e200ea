"""The schema registry: its client, one for each process and address, and its errors in our words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from tidegate.connectors.kafka.client import library
from tidegate.connectors.kafka.errors import RegistryClientMissing, RegistryRefused, RegistryUnavailable
from tidegate.core.errors import TidegateError

_PACKAGE = "confluent_kafka.schema_registry"
_BUSY = (408, 429)
_NOT_FOUND = 404


def serdes(module: str = "") -> Any:
    """Return the registry's part of the client library, or one of its modules."""
    try:
        return library(_PACKAGE + module)
    except (ImportError, TidegateError) as error:
        raise RegistryClientMissing from error


def registry_client(url: str, config: str) -> Any:
    """Return the client of this process. `config` is the JSON of its other settings."""
    return _clients(url, config)


@lru_cache(maxsize=16)
def _clients(url: str, config: str) -> Any:
    with registry_errors(url, "be addressed"):
        return serdes().SchemaRegistryClient({"url": url, **json.loads(config)})


@contextmanager
def registry_errors(url: str, doing: str) -> Iterator[None]:
    """Translate errors of the registry's client. `doing` completes the sentence "The schema registry could not …"."""
    try:
        yield
    except Exception as error:
        raise translate_registry(error, url, doing) from error


def translate_registry(error: Exception, url: str, doing: str) -> Exception:
    """Return what an error means: a registry that refuses, one that cannot be reached, or something else, unchanged."""
    said = f"The schema registry at {url} could not {doing}: {' '.join(str(error).split())}"
    status = getattr(error, "http_status_code", None)
    if isinstance(status, int):
        if status >= 500 or status in _BUSY:
            return RegistryUnavailable(f"{said}. The operation will be retried.")
        return RegistryRefused(f"{said}. {_advice(status)}")
    if _is_transport(error):
        return RegistryUnavailable(f"{said}. The operation will be retried; check that the registry is reachable.")
    if isinstance(error, ValueError | TypeError):
        return RegistryRefused(f"{said}. Correct the config of the format.")
    return error


def knows_schema(client: Any, schema_id: int, subject: str, url: str) -> bool:
    """Whether the registry has a schema. Raises if it cannot tell."""
    try:
        client.get_schema(schema_id, subject)
    except Exception as error:
        if is_not_found(error):
            return False
        raise translate_registry(error, url, f"return schema {schema_id}") from error
    return True


def is_not_found(error: Exception) -> bool:
    return getattr(error, "http_status_code", None) == _NOT_FOUND


def is_of_registry(error: Exception) -> bool:
    """Whether an error of a serializer comes from the registry, not from the row or the record."""
    return isinstance(getattr(error, "http_status_code", None), int) or _is_transport(error)


def _is_transport(error: Exception) -> bool:
    return (
        isinstance(error, OSError)
        or type(error).__module__.split(".")[0].startswith("http")
        # By name: its class is in an optional part of the library.
        or type(error).__name__ == "OAuthTokenError"
    )


def _advice(status: int) -> str:
    if status in (401, 403):
        return "Correct `basic.auth.user.info` or the token in the format's config, or allow the user this subject."
    if status == _NOT_FOUND:
        return (
            "Register the schema first, or correct the subject; auto_register_schemas=True lets the sink register it."
        )
    if status == 409:
        return "The schema is not compatible with earlier versions of the subject; change it, or the subject's compatibility."
    return "Correct the schema or the subject."
