"""How code is written, as far as a program can tell: sizes, arguments, and imports without circles."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import tidegate
from tests.sparks import ROOT

SOURCE = ROOT / "src"
MOST_POSITIONAL = 4
MANY_FIELDS = 7
MOST_ATTRIBUTES = 25
MOST_METHODS = 25
LEADING = {"DataType": 1, "Ending": 2, "KafkaSink": 2, "Option": 4}
"""Dataclasses with many fields of which the first ones read well without a name: `KafkaSink("host:9092", "orders")`."""


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE), ast.parse(path.read_text())


def test_no_constructor_is_called_with_more_than_four_positional_arguments() -> None:
    classes = {node.name for _, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = [
        f"{path}:{node.lineno} {node.func.id}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {*classes, "cls"}
        if len(node.args) > MOST_POSITIONAL
    ]

    assert found == []


def test_dataclasses_with_many_fields_are_keyword_only() -> None:
    wide = {}
    for module in pkgutil.walk_packages(tidegate.__path__, "tidegate."):
        for name, found in vars(importlib.import_module(module.name)).items():
            if not dataclasses.is_dataclass(found) or not inspect.isclass(found) or found.__module__ != module.name:
                continue
            fields = [field for field in dataclasses.fields(found) if field.init]
            positional = sum(not field.kw_only for field in fields)
            if len(fields) >= MANY_FIELDS and positional > LEADING.get(name, 0):
                wide[f"{module.name}.{name}"] = positional

    assert wide == {}


def test_no_class_has_more_than_25_attributes_or_25_methods() -> None:
    """Not lines: a limit on them is kept by putting several thoughts on one."""
    found = {
        node.name: str(path)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        if attributes_of(node) > MOST_ATTRIBUTES or methods_of(node) > MOST_METHODS
    }

    assert found == {}


def attributes_of(node: ast.ClassDef) -> int:
    """Those that the constructor sets."""
    constructors = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    return len(
        {
            place.attr
            for constructor in constructors
            for place in ast.walk(constructor)
            if isinstance(place, ast.Attribute) and isinstance(place.ctx, ast.Store)
            if isinstance(place.value, ast.Name) and place.value.id == "self"
        }
    )


def methods_of(node: ast.ClassDef) -> int:
    return sum(isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) for member in node.body)
