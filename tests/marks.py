"""The marks that say which capability a test proves, `@pytest.mark.feature("A13")`.

They are read from the source, without importing anything, so a report takes no time and needs no Java. Ids must be literals:
one that is computed could not be found by a reader either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mark:
    """One id on one test, and its place."""

    feature: str
    path: str
    line: int
    test: str
    """The test's id, `path::Class::function`; without the function if a whole class or module carries the mark."""
    slow: bool

    def covers(self, test: str) -> bool:
        """Whether a test, or one case of it, carries this mark."""
        return test == self.test or test.startswith((f"{self.test}::", f"{self.test}["))


class UnreadableMark(Exception):
    """A mark whose ids are not literals, or that has none."""


def marks_in(source: str, path: str) -> list[Mark]:
    """Every feature mark of a module: on functions and classes, in `pytestmark`, and in `pytest.param(..., marks=…)`.

    Marks of a skipped function or class prove nothing and are left out.
    """
    return sorted(_marks(ast.parse(source), path, path, slow=False), key=lambda mark: mark.line)


def collect(folder: Path) -> list[Mark]:
    """The marks of all Python files below a folder."""
    paths = sorted(folder.rglob("*.py"))
    return [mark for path in paths for mark in marks_in(path.read_text(), str(path.relative_to(folder.parent)))]


def _marks(node: ast.AST, path: str, test: str, *, slow: bool) -> Iterator[Mark]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        test = f"{test}::{node.name}"
    decorators = getattr(node, "decorator_list", [])
    if any(_named(decorator, "skip") for decorator in decorators):
        return
    slow = slow or any(_named(decorator, "slow") for decorator in decorators)
    if isinstance(node, ast.Call) and _named(node, "feature"):
        if not node.args or node.keywords:
            raise UnreadableMark(f"{path}:{node.lineno}: a feature mark takes ids, as in feature('A13', 'A14')")
        for argument in node.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise UnreadableMark(f"{path}:{node.lineno}: write each id of a feature mark as a literal string")
            yield Mark(argument.value, path, node.lineno, test, slow)
    for child in ast.iter_child_nodes(node):
        yield from _marks(child, path, test, slow=slow)


def _named(node: ast.expr, name: str) -> bool:
    """Whether an expression is `pytest.mark.<name>`, called or not."""
    target = node.func if isinstance(node, ast.Call) else node
    return (
        isinstance(target, ast.Attribute)
        and target.attr == name
        and isinstance(target.value, ast.Attribute)
        and target.value.attr == "mark"
    )
