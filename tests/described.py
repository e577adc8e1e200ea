"""What the generated reference says about parameters: which of them no docstring describes, and which functions have an example.

`python -m tests.described` prints the counts, and the parameters that are still open.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import yaml

from tests.scratch import ROOT

PAGES = ROOT / "docs" / "reference" / "api"
_ENTRY = re.compile(r"^::: (?P<name>\S+)\n(?P<options>(?:    .*\n)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documented:
    """A function or a constructor of the reference, with its docstrings."""

    name: str
    module: str
    parameters: tuple[str, ...]
    text: str
    """All docstrings in which the reference may describe the parameters."""

    def undescribed(self) -> list[str]:
        return [parameter for parameter in self.parameters if not _describes(self.text, parameter)]

    @property
    def has_example(self) -> bool:
        return ">>> " in self.text


def reference() -> list[Documented]:
    """Every function, method and constructor on the pages of the reference, once."""
    found: dict[str, Documented] = {}
    for page in sorted(PAGES.glob("*.md")):
        if page.stem == "errors":  # Users catch errors; tidegate makes them.
            continue
        for entry in _ENTRY.finditer(page.read_text()):
            options = (yaml.safe_load(entry["options"]) or {}).get("options", {})
            for each in _documented(_loaded(entry["name"]), options):
                found.setdefault(each.name, each)
    return list(found.values())


def _loaded(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def _documented(found: Any, options: dict[str, Any]) -> Iterator[Documented]:
    if not inspect.isclass(found):
        yield _function(found, found.__name__)
        return
    if options.get("merge_init_into_class", True):
        yield _constructor(found)
    chosen = options.get("members", True)
    if chosen is False:
        return
    names = [name for name in vars(found) if not name.startswith("_")] if chosen is True else chosen
    for name in [*names, *options.get("inherited_members", [])]:
        method = inspect.getattr_static(found, name, None)  # None: an attribute of instances
        if isinstance(method, staticmethod | classmethod):
            method = method.__func__
        if inspect.isfunction(method):
            overridden = [vars(base)[name] for base in found.__mro__ if name in vars(base)]
            text = "\n".join(getattr(each, "__doc__", None) or "" for each in overridden)
            yield _function(method, f"{found.__name__}.{name}", text)


def _function(function: Callable[..., object], name: str, text: str | None = None) -> Documented:
    plain = inspect.unwrap(function)
    return Documented(
        name=name,
        module=plain.__module__,
        parameters=_parameters(plain),
        text=text or inspect.getdoc(plain) or "",
    )


def _constructor(found: type) -> Documented:
    texts = [inspect.getdoc(found) or ""]
    parameters: tuple[str, ...] = ()
    if dataclasses.is_dataclass(found) and found.__dataclass_params__.init:  # type: ignore[attr-defined]
        parameters = tuple(field.name for field in dataclasses.fields(found) if field.init)
        texts += [f"`{name}`" for base in found.__mro__ for name in _described_fields(base)]
    elif "__init__" in {name for base in found.__mro__ if _is_ours(base) for name in vars(base)}:
        parameters = _parameters(found.__init__)  # type: ignore[misc]
        texts.append(found.__init__.__doc__ or "")  # type: ignore[misc]
    return Documented(
        name=found.__name__,
        module=found.__module__,
        parameters=tuple(name for name in parameters if not name.startswith("_")),
        text="\n".join(texts),
    )


def _is_ours(found: type) -> bool:
    # A protocol gets its constructor from `typing`, and nobody calls it.
    return found.__module__.startswith("tidegate") and not getattr(found, "_is_protocol", False)


def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    return tuple(
        name
        for name in inspect.signature(function).parameters
        if name not in ("self", "cls") and not name.startswith("_")
    )


def _describes(text: str, parameter: str) -> bool:
    """Whether a text names the parameter, in backticks or as an entry of `Args:`."""
    quoted = rf"`\*{{0,2}}{parameter}\b[^`]*`"
    listed = rf"^ +\*{{0,2}}{parameter}( \([^)]*\))?:"
    return re.search(f"{quoted}|{listed}", text, re.MULTILINE) is not None


@functools.cache
def _described_fields(found: type) -> frozenset[str]:
    """The fields of a class that have a docstring of their own."""
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    except (OSError, TypeError):
        return frozenset()
    if not isinstance(node, ast.ClassDef):
        return frozenset()
    return frozenset(
        field.target.id
        for field, after in zip(node.body, node.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
    )


if __name__ == "__main__":
    everything = reference()
    for each in sorted(everything, key=lambda each: (each.module, each.name)):
        if each.undescribed():
            print(f"{each.module}: {each.name}({', '.join(each.undescribed())})")
    total = sum(len(each.parameters) for each in everything)
    still_open = sum(len(each.undescribed()) for each in everything)
    print(f"{total - still_open} of {total} parameters are described")
    print(f"{sum(each.has_example for each in everything)} of {len(everything)} functions have an example")
