"""A sink needs no base class: what it offers beyond the required methods is found by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegate.connectors.sink import checks_target, cleans_up, closes, lists_markers, prepare, sweeps, takes_rows
from tidegate.schema.schema import Schema

OPTIONAL: list[tuple[str, Callable[[object], bool]]] = [
    ("write_rows", takes_rows),
    ("close", closes),
    ("sweep", sweeps),
    ("markers", lists_markers),
    ("check_target", checks_target),
    ("create_cleaner", cleans_up),
]


class Delegating:
    """Passes everything on, as a wrapper that counts or retries calls does."""

    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


@pytest.mark.parametrize(("name", "offers"), OPTIONAL)
def test_method_of_the_object_itself_is_found(name: str, offers: Callable[[object], bool]) -> None:
    assert offers(type("Offers", (), {name: lambda self: None})())
    assert not offers(object())


@pytest.mark.parametrize(("name", "offers"), OPTIONAL)
def test_method_of_a_wrapped_object_is_found(name: str, offers: Callable[[object], bool]) -> None:
    wrapped = type("Wrapped", (), {name: lambda self: None})()
    assert offers(Delegating(wrapped))
    assert not offers(Delegating(object()))


@pytest.mark.parametrize(("name", "offers"), OPTIONAL)
def test_an_attribute_that_is_not_callable_is_no_hook(name: str, offers: Callable[[object], bool]) -> None:
    assert not offers(type("HasAttribute", (), {name: None})())


def test_prepare_of_a_wrapped_sink_is_called_with_the_schema() -> None:
    schemas: list[Schema] = []

    class Sink:
        def prepare(self, schema: Schema) -> None:
            schemas.append(schema)

    schema = Schema.parse("user string")
    prepare(Delegating(Sink()), schema)
    assert schemas == [schema]
