"""Every error has one family, a code, a say on retries, a public name, and a line in the reference."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import tidegate
from tests.sparks import ROOT
from tidegate import errors
from tidegate.core.errors import TidegateError

PAGE = ROOT / "docs" / "reference" / "errors.md"

FAMILIES = {
    "CheckpointError", "ConfigurationError", "ConnectorError", "ControlError", "EpochFailed", "GraphError", "RestoreError",
    "StateError", "StorageError", "UserCodeError",
}  # fmt: skip

INTERNAL = {
    "BadRequest": "the REST server turns it into HTTP 400",
    "CommitFailed": "the publication of output catches it and tries again later",
    "CheckpointNotCompleted": "the checkpointer catches it and counts a failed checkpoint",
    "VersionMissing": "the task reports it as a fault, and the driver moves the task or rewinds the job",
}
"""Errors that are raised and caught inside tidegate, and who catches each."""

ErrorClass = type[TidegateError]


@cache
def error_classes() -> tuple[ErrorClass, ...]:
    """All errors that modules of tidegate define, except the root."""
    for module in pkgutil.walk_packages(tidegate.__path__, "tidegate."):
        importlib.import_module(module.name)
    found = {kind for kind in subclasses(TidegateError) if kind.__module__.startswith("tidegate.")}
    return tuple(sorted(found, key=lambda kind: kind.__name__))


def subclasses(kind: ErrorClass) -> Iterator[ErrorClass]:
    for sub in kind.__subclasses__():
        yield sub
        yield from subclasses(sub)


def public_errors() -> list[ErrorClass]:
    return [kind for kind in error_classes() if not kind.__name__.startswith("_") and kind.__name__ not in INTERNAL]


def families_of(kind: ErrorClass) -> list[str]:
    return [base.__name__ for base in kind.__mro__ if TidegateError in base.__bases__]


def rows_of_the_page() -> dict[str, list[str]]:
    """The cells after the code of each row of the reference."""
    rows = re.findall(r"^\| \[`([A-Z0-9_]+)`\]\(errors/\1\.md\) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert len({code for code, _ in rows}) == len(rows)
    return {code: cells.split(" | ") for code, cells in rows}


def test_the_direct_subclasses_of_the_root_are_the_families() -> None:
    direct = {kind.__name__ for kind in error_classes() if TidegateError in kind.__bases__}

    assert direct - set(INTERNAL) == FAMILIES


def test_families_are_defined_in_one_module() -> None:
    assert {getattr(errors, name).__module__ for name in FAMILIES} == {"tidegate.core.errors"}


def test_every_error_has_exactly_one_family() -> None:
    several = {kind.__name__: families_of(kind) for kind in error_classes() if len(families_of(kind)) != 1}

    assert several == {}


def test_every_error_has_its_own_code() -> None:
    codes = Counter(kind.code for kind in [TidegateError, *error_classes()])  # type: ignore[attr-defined]

    assert [code for code, count in codes.items() if count > 1] == []
    assert [code for code in codes if not re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", code)] == []


def test_every_error_says_whether_a_retry_may_help() -> None:
    assert [kind.__name__ for kind in error_classes() if not isinstance(kind.retryable, bool)] == []


def test_every_public_error_is_exported() -> None:
    assert {*errors.__all__} == {"TidegateError", *(kind.__name__ for kind in public_errors())}  # type: ignore[attr-defined]
    assert [kind.__name__ for kind in public_errors() if getattr(errors, kind.__name__) is not kind] == []


def test_internal_errors_exist_and_are_not_exported() -> None:
    assert set(INTERNAL) - {kind.__name__ for kind in error_classes()} == set()
    assert set(INTERNAL) & set(errors.__all__) == set()  # type: ignore[attr-defined]


def test_the_reference_has_every_public_error_and_no_other() -> None:
    stated = {code: cells[:3] for code, cells in rows_of_the_page().items()}

    assert stated == {
        kind.code: [f"`{kind.__name__}`", f"`{families_of(kind)[0]}`", "yes" if kind.retryable else "no"]
        for kind in public_errors()
    }


def test_the_reference_says_what_to_do_in_one_sentence() -> None:
    advice = {code: cells[-1] for code, cells in rows_of_the_page().items()}

    assert [code for code, text in advice.items() if not re.fullmatch(r"[A-Z].*[^. ]\.", text) or ". " in text] == []
