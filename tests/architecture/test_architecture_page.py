"""What the architecture page, its diagrams and the recipes of CONTRIBUTING.md name exists: files, classes, functions, options."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.sparks import ROOT
from tidegate.config.declared import ALL

PACKAGE = ROOT / "src" / "tidegate"
PAGE = ROOT / "docs" / "internals" / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
DIAGRAMS = ("one-row.svg", "one-checkpoint.svg")

_BACKTICKED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
_FILE = re.compile(r"(?<![\w./-])[\w./-]+\.(?:py|svg|toml)(?!\w)")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_POINT = re.compile(r"[a-z-]+(?:\.[a-z-]+)*\.(?:[a-z]+-)?\d-[a-z-]+")
_NAMED_IN = re.compile(r"`([\w./-]+\.py)`:\s+(`[^`]+`(?:,\s+`[^`]+`)*)")
_LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")


def recipes() -> str:
    text = CONTRIBUTING.read_text()
    return text[text.index("## Common changes") : text.index("## Tests")]


TEXTS = {"architecture.md": PAGE.read_text(), "CONTRIBUTING.md": recipes()}


def inner(tree: ast.AST) -> Iterator[str]:
    """Names that a class or a module defines itself, and the attributes that the methods of a class set."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    if isinstance(tree, ast.ClassDef):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node.attr


@cache
def modules() -> dict[Path, ast.Module]:
    """The package, and the files of tests and walks that the texts name."""
    named = (file_of(path) for text in TEXTS.values() for path in _FILE.findall(text) if path.endswith(".py"))
    paths = {*PACKAGE.rglob("*.py"), *(path for path in named if path is not None)}
    return {path: ast.parse(path.read_text()) for path in sorted(paths)}


@cache
def code() -> tuple[dict[str, list[ast.ClassDef]], frozenset[str]]:
    """Classes by name, and every identifier of the code: defined, passed by name, or used as an attribute."""
    classes: dict[str, list[ast.ClassDef]] = {}
    words: set[str] = {path.stem for path in modules()} | {path.parent.name for path in modules()}
    for node in (node for tree in modules().values() for node in ast.walk(tree)):
        match node:
            case ast.ClassDef(name=name):
                classes.setdefault(name, []).append(node)
                words.add(name)
            case ast.FunctionDef(name=name) | ast.Attribute(attr=name) | ast.Name(id=name) | ast.arg(arg=name):
                words.add(name)
    return classes, frozenset(words)


@cache
def members(name: str) -> frozenset[str]:
    """Of all classes of this name, with what they inherit."""
    found: set[str] = set()
    for node in code()[0].get(name, ()):
        found.update(inner(node))
        found.update(*(members(base.id) for base in node.bases if isinstance(base, ast.Name) and base.id != name))
    return frozenset(found)


@cache
def fault_points() -> frozenset[str]:
    calls = re.compile(r'reach\("([^"]+)"')
    return frozenset(point for path in PACKAGE.rglob("*.py") for point in calls.findall(path.read_text()))


def file_of(path: str) -> Path | None:
    """A file or folder, named from the root of the repository or from `src/tidegate`."""
    return next((at for at in (ROOT / path, PACKAGE / path) if at.exists()), None)


def defines(path: Path, name: str) -> bool:
    """Whether the file defines a function, class, method or constant of this name."""
    first, _, rest = name.partition(".")
    tree = modules()[path]
    if first not in set(inner(tree)):
        return False
    return not rest or (first in {n.name for n in tree.body if isinstance(n, ast.ClassDef)} and rest in members(first))


def is_dotted_name(name: str) -> bool:
    """`Class.member`, `module.name`, or a module by its full name."""
    if name in {option.key for option in ALL}:
        return True
    first, _, rest = name.partition(".")
    if first == "tidegate":
        path = ROOT / "src" / name.replace(".", "/")
        return path.is_dir() or path.with_suffix(".py").is_file()
    if first in code()[0]:
        return rest in members(first)
    return any(path.stem == first and defines(path, rest) for path in modules())


def exists(token: str) -> bool:
    if "/" in token or token.endswith((".py", ".md", ".svg", ".toml")):
        return bool(_PATH.fullmatch(token)) and file_of(token) is not None
    if _POINT.fullmatch(token):
        return token in fault_points()
    if _NAME.fullmatch(token):
        return is_dotted_name(token) if "." in token else token in code()[1]
    return token in {option.key for option in ALL}


def is_a_command(token: str) -> bool:
    return token.startswith(("make ", "python -m ", "uv "))


@pytest.mark.parametrize("text", TEXTS)
def test_every_name_in_backticks_exists(text: str) -> None:
    tokens = {token for token in _BACKTICKED.findall(TEXTS[text]) if not is_a_command(token)}

    assert len(tokens) > 40
    assert sorted(token for token in tokens if not exists(token)) == []


@pytest.mark.parametrize("text", TEXTS)
def test_every_file_that_is_named_exists(text: str) -> None:
    assert [path for path in _FILE.findall(_LINK.sub("", TEXTS[text])) if file_of(path) is None] == []


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_named_after_a_file_is_defined_in_it(text: str) -> None:
    found = [
        (path, name) for path, names in _NAMED_IN.findall(TEXTS[text]) for name in _BACKTICKED.findall(names)
    ]  # fmt: skip
    wrong = [f"{path}: {name}" for path, name in found if not (at := file_of(path)) or not defines(at, name)]

    assert len(found) > 10
    assert wrong == []


@pytest.mark.parametrize("page", [PAGE, CONTRIBUTING])
def test_every_link_leads_to_a_file(page: Path) -> None:
    assert [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("diagram", DIAGRAMS)
def test_every_name_in_a_diagram_exists(diagram: str) -> None:
    drawn = (ROOT / "docs" / "images" / diagram).read_text()
    names = re.findall(r'<text [^>]*class="code"[^>]*>([^<]+)</text>', drawn)

    assert len(names) > 10
    assert [name for line in names for name in line.split(", ") if not exists(name)] == []
    assert f"../images/{diagram}" in PAGE.read_text()


def test_the_tables_of_packages_have_the_levels_of_the_import_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    for contract in (each for each in contracts if each["type"] == "layers"):
        layers = [layer.split(" | ") for layer in reversed(contract["layers"])]
        expected = {
            name.removeprefix("tidegate.").replace(".", "/"): n for n, layer in enumerate(layers) for name in layer
        }
        shown = {name: int(level) for name, level in re.findall(r"^\| `([\w/]+)/` \| (\d+) \|", PAGE.read_text(), re.M)}

        assert {name: shown.get(name) for name in expected} == expected
