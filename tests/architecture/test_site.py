"""The documentation site: its navigation, its reference of public names, and the commands that its pages show."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import click
import pytest

import tidegate
from tests.site import (
    CONFIG,
    DECISIONS,
    DOCS,
    broken_links,
    foreign_resources,
    pages,
    pages_of_nav,
    with_decisions,
    with_folders,
)
from tests.sparks import ROOT
from tidegate import errors, flink, testing
from tidegate.control.cli import main

API = sorted((DOCS / "reference" / "api").glob("*.md"))
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^ *```(console|bash|sh|)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_MODULES = {"tidegate": tidegate, "tidegate.flink": flink, "tidegate.testing": testing}
_THEMSELVES = {"errors", "flink", "testing"}
"""Public names of tidegate that are modules, with a page each."""


# -- navigation --------------------------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_once() -> None:
    listed = Counter(pages_of_nav(CONFIG.read_text()))

    assert [page for page, count in listed.items() if count > 1] == []
    assert sorted(listed) == pages()


def test_folders_that_are_listed_as_a_whole_are_complete() -> None:
    told = "run: python -m tests.site --nav"

    assert with_folders(CONFIG.read_text()) == CONFIG.read_text(), told
    assert with_decisions(DECISIONS.read_text()) == DECISIONS.read_text(), told


def test_a_page_without_a_line_in_the_navigation_is_noticed() -> None:
    config = "theme: x\nnav:\n  - README.md\n  - Guides:\n      - Title: guide/state.md\n      # - guide/time.md\n"

    assert pages_of_nav(config) == ["README.md", "guide/state.md"]


# -- the reference of the API ------------------------------------------------------------------------------------------


def names_used(code: str) -> set[str]:
    """Public names that a program uses: `tg.Job`, or imported from a module of tidegate."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tg":
            found.add(f"tidegate.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module in _MODULES:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def names_of(page: Path) -> set[str]:
    """Public names that a page documents, and shows in a program of its own."""
    text = page.read_text()
    documented = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    if page.stem == "flink":  # What is the same in both is documented once.
        documented |= {f"tidegate.flink.{name}" for name in re.findall(r"`(\w+)`", text)}
    shown = set().union(*(names_used(code) for code in _PYTHON.findall(text)))
    return documented & shown


def test_every_public_name_is_in_the_reference_with_an_example() -> None:
    public = {f"{module}.{name}" for module, found in _MODULES.items() for name in found.__all__}  # type: ignore[attr-defined]
    there = set().union(*(names_of(page) for page in API)) | {f"tidegate.{name}" for name in _THEMSELVES}

    assert sorted(public - there) == []


def test_every_error_is_in_the_reference() -> None:
    listed = re.findall(r"^::: tidegate\.errors\.(\w+)$", (DOCS / "reference/api/errors.md").read_text(), re.MULTILINE)

    assert sorted([*listed, "TidegateError"]) == sorted(errors.__all__)  # type: ignore[attr-defined]


# -- commands ----------------------------------------------------------------------------------------------------------


def commands_of(text: str) -> list[str]:
    """The lines of a page that call tidegate, with their continuations."""
    found: list[str] = []
    for _, block in _FENCED.findall(text):
        joined = re.sub(r"\\\n\s*", " ", block)
        found += re.findall(r"^ *(?:\$ )?(tidegate .*)$", joined, re.MULTILINE)
    return found


def options_of(command: click.Command) -> set[str]:
    return {"-h", "--help"} | {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


def unknown_in(line: str) -> list[str]:
    """Subcommands and options of one line that do not exist. Brackets, bars and dots of a synopsis are not read."""
    wrong = []
    for part in re.split(r"[;|&>](?=\s|&|$)|\s#", re.sub(r"(?<=\w)\|(?=\w)", "/", line)):
        words = re.sub(r"[\[\]()…]", " ", part).split()
        if not words or words[0] != "tidegate":
            continue
        command: click.Command = main
        options = options_of(main)
        for word in words[1:]:
            if word.startswith("-") and word != "-":
                name = "-D" if word.startswith("-D") else word.partition("=")[0]
                if name not in options:
                    wrong.append(f"{command.name} has no option {name}")
            elif isinstance(command, click.Group):
                try:
                    _, found, _ = command.resolve_command(click.Context(command), [word])
                except click.UsageError:
                    found = None
                if found is None:
                    wrong.append(f"there is no command {word}")
                    break
                command, options = found, options | options_of(found)
    return wrong


@pytest.mark.parametrize("page", [page for page in pages() if commands_of((DOCS / page).read_text())])
def test_the_commands_of_a_page_exist_with_their_options(page: str) -> None:
    wrong = {line: found for line in commands_of((DOCS / page).read_text()) if (found := unknown_in(line))}

    assert wrong == {}


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert unknown_in("tidegate run job.py [-s PATH] -Dkey=value | tee log") == []
    assert unknown_in("tidegate runn job.py") == ["there is no command runn"]
    assert unknown_in("tidegate run job.py --from-checkpoint PATH") == ["run has no option --from-checkpoint"]


# -- blocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [*pages(), "../README.md"])
def test_python_that_is_shown_but_not_run_uses_names_that_exist(page: str) -> None:
    blocks = re.findall(r"^```py\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)

    used = set().union(*(names_used(code) for code in blocks))
    assert sorted(name for name in used if not hasattr(tidegate, name.removeprefix("tidegate."))) == []


# -- checks of built pages ---------------------------------------------------------------------------------------------


def test_links_that_lead_nowhere_and_foreign_resources_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="other.html#there">1</a><a href="other.html#gone">2</a><a href="gone.html">3</a>'
        '<a href="https://example.org/">4</a><img src="https://example.org/x.png"><script src="//cdn.example.org/x.js"></script>'
    )
    (tmp_path / "other.html").write_text('<h2 id="there">x</h2>')
    (tmp_path / "site.css").write_text(
        '@import "https://example.org/font.css"; a { background: url(data:image/png;base64,x) }'
    )

    assert list(broken_links(tmp_path)) == [
        "index.html: other.html#gone has no such anchor",
        "index.html: gone.html does not exist",
    ]
    assert list(foreign_resources(tmp_path)) == [
        "index.html loads https://example.org/x.png",
        "index.html loads //cdn.example.org/x.js",
        "site.css loads https://example.org/font.css",
    ]


def test_both_generators_are_in_the_lock() -> None:
    locked = (ROOT / "uv.lock").read_text()

    assert [
        name for name in ("mkdocs-material", "mkdocstrings-python", "zensical") if f'name = "{name}"' not in locked
    ] == []
