"""Which lines of the specification are proven: `python -m tests.features [--json]`.

A test that proves a line carries its id, `@pytest.mark.feature("A13")`. The marks are read from the source, without
importing anything, so the report takes no time and needs no Java. Ids must be written as literals: one that is computed
could not be found by a reader either.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPECIFICATION = ROOT / "tests" / "features.txt"
ANSWERS = ROOT / "docs" / "features-answered.md"

_SECTION = re.compile(r"\[([A-Z])\] (\* )?(.+)")
_ANSWER = re.compile(r"- ([A-Z][0-9]+) — (.+)")


@dataclass(frozen=True, slots=True)
class Section:
    """A chapter of the specification. Programs and claims are no capabilities: they are counted apart."""

    letter: str
    title: str
    capabilities: bool
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """One id on one test, and where it stands."""

    feature: str
    path: str
    line: int
    slow: bool


class UnreadableMark(Exception):
    """A mark whose ids are not literals, or that has none."""


def sections(text: str) -> list[Section]:
    """The chapters of the specification's list of ids."""
    found: list[tuple[str, str, bool, list[str]]] = []
    for line in text.splitlines():
        if head := _SECTION.fullmatch(line):
            found.append((head[1], head[3], head[2] is None, []))
        elif line and not line.startswith("#"):
            found[-1][3].extend(line.split())
    return [Section(letter, title, capabilities, tuple(ids)) for letter, title, capabilities, ids in found]


def answers(text: str) -> dict[str, str]:
    """Id → the sentence that answers it."""
    return {match[1]: match[2] for line in text.splitlines() if (match := _ANSWER.fullmatch(line))}


def marks_in(source: str, path: str) -> list[Mark]:
    """Every feature mark of a module: on functions and classes, in `pytestmark`, and in `pytest.param(..., marks=…)`.

    What a skipped function or class carries proves nothing and is left out.
    """
    return sorted(_marks(ast.parse(source), path, slow=False), key=lambda mark: mark.line)


def collect(folder: Path) -> list[Mark]:
    """The marks of all Python files below a folder."""
    paths = sorted(folder.rglob("*.py"))
    return [mark for path in paths for mark in marks_in(path.read_text(), str(path.relative_to(folder.parent)))]


def _marks(node: ast.AST, path: str, *, slow: bool) -> Iterator[Mark]:
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
            yield Mark(argument.value, path, node.lineno, slow)
    for child in ast.iter_child_nodes(node):
        yield from _marks(child, path, slow=slow)


def _named(node: ast.expr, name: str) -> bool:
    """Whether an expression is `pytest.mark.<name>`, called or not."""
    target = node.func if isinstance(node, ast.Call) else node
    return (
        isinstance(target, ast.Attribute)
        and target.attr == name
        and isinstance(target.value, ast.Attribute)
        and target.value.attr == "mark"
    )


@dataclass(frozen=True, slots=True)
class Report:
    """What is proven, what is answered, and what is left."""

    sections: list[Section]
    marks: list[Mark]
    answered: dict[str, str]

    @property
    def proven(self) -> set[str]:
        return {mark.feature for mark in self.marks}

    @property
    def known(self) -> set[str]:
        return {feature for section in self.sections for feature in section.ids}

    def done(self, section: Section) -> list[str]:
        return [feature for feature in section.ids if feature in self.proven]

    def left(self, section: Section) -> list[str]:
        return [feature for feature in section.ids if feature not in self.proven and feature not in self.answered]

    def as_json(self) -> dict[str, object]:
        tests: dict[str, list[str]] = {}
        for mark in self.marks:
            tests.setdefault(mark.feature, []).append(f"{mark.path}:{mark.line}")
        capabilities = [section for section in self.sections if section.capabilities]
        return {
            "proven": sum(len(self.done(section)) for section in capabilities),
            "answered": sum(feature in self.answered for section in capabilities for feature in section.ids),
            "total": sum(len(section.ids) for section in capabilities),
            "sections": {
                section.letter: {
                    "title": section.title,
                    "capabilities": section.capabilities,
                    "total": len(section.ids),
                    "proven": self.done(section),
                    "left": self.left(section),
                }
                for section in self.sections
            },
            "tests": tests,
            "answers": self.answered,
        }

    def as_text(self) -> str:
        counts = self.as_json()
        lines = [f"{counts['proven']} of {counts['total']} proven, {counts['answered']} answered in a sentence", ""]
        lines += [self._row(section) for section in self.sections if section.capabilities]
        lines += ["", "programs and claims, counted apart:"]
        lines += [self._row(section) for section in self.sections if not section.capabilities]
        lines += ["", "not proven yet:"]
        lines += [f"  {s.letter}: {spans(self.left(s))}" for s in self.sections if self.left(s)]
        only_slow = self.proven - {mark.feature for mark in self.marks if not mark.slow}
        if only_slow:
            lines += ["", f"proven by slow tests only: {spans(sorted(only_slow, key=_order))}"]
        return "\n".join(lines)

    def _row(self, section: Section) -> str:
        return f"  {section.letter}  {len(self.done(section)):>3} of {len(section.ids):>3}  {section.title}"


def spans(ids: list[str]) -> str:
    """`A1 A2 A3 A7` as a person writes it: `A1–A3, A7`."""
    runs: list[list[str]] = []
    for feature in ids:
        if runs and _order(runs[-1][-1]) == (feature[0], int(feature[1:]) - 1):
            runs[-1].append(feature)
        else:
            runs.append([feature])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _order(feature: str) -> tuple[str, int]:
    return feature[0], int(feature[1:])


@functools.cache
def report() -> Report:
    """The report of this checkout, read once in a process."""
    return Report(sections(SPECIFICATION.read_text()), collect(ROOT / "tests"), answers(ANSWERS.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.features", description="Which lines are proven by a test?")
    parser.add_argument("--json", action="store_true", help="everything, with the place of each mark")
    arguments = parser.parse_args()
    if arguments.json:
        print(json.dumps(report().as_json(), indent=2, ensure_ascii=False))
    else:
        print(report().as_text())


if __name__ == "__main__":
    main()
