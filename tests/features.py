"""Which capabilities are proven: `python -m tests.features [--json | --page]`.

`tests/capabilities.toml` lists every capability with its text and its status:

- proven: a test carries its id, `@pytest.mark.feature("A13")`, and for each half of the sentence the file has a mutation, a
  change of the source that makes such a test fail. `python -m tests.prove` applies them.
- answered: the capability has no meaning on Spark, or Spark has it already; the answer says why, and what users get instead.
- open: it does not exist, or nothing proves all of it; the answer says what is missing.
"""

from __future__ import annotations

import argparse
import functools
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.marks import Mark, collect
from tests.scratch import ROOT, Replacement, StaleMutation

CAPABILITIES = ROOT / "tests" / "capabilities.toml"
PAGE = ROOT / "docs" / "reference" / "capabilities.md"
STATUSES = ("proven", "answered", "open")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of the source that breaks a capability, and the marked tests of which at least one must then fail."""

    replacement: Replacement
    tests: tuple[str, ...]

    @property
    def needs_jvm(self) -> bool:
        return any(test.startswith(("tests/integration/", "tests/cluster/")) for test in self.tests)


@dataclass(frozen=True, slots=True)
class Capability:
    """One line of the specification."""

    id: str
    text: str
    status: str
    answer: str = ""
    shown_by: tuple[str, ...] = ()
    """Of a program or a claim: its examples, tests or benchmarks."""
    mutations: tuple[Mutation, ...] = ()
    measured: tuple[str, ...] = ()
    """Of a claim: figures and ratios of `benchmarks/results`, as `result: name`, which `docs/benchmarks.md` shows."""


@dataclass(frozen=True, slots=True)
class Section:
    """A group of capabilities. Programs and claims are groups of their own kind, and are counted apart."""

    letter: str
    title: str
    kind: str
    capabilities: tuple[Capability, ...]

    def having(self, status: str) -> list[Capability]:
        return [capability for capability in self.capabilities if capability.status == status]


def read(text: str) -> list[Section]:
    """The sections of the data file, in its order."""
    data = tomllib.loads(text)
    return [
        Section(
            letter,
            section["title"],
            section["kind"],
            tuple(_capability(key, entry) for key, entry in section.items() if isinstance(entry, dict)),
        )
        for letter, section in data.items()
    ]


def _capability(id: str, entry: Mapping[str, Any]) -> Capability:
    unknown = entry.keys() - {"text", "status", "answer", "shown_by", "mutation", "measured"}
    if unknown:
        raise ValueError(f"{id} has unknown fields: {', '.join(sorted(unknown))}")
    mutations = tuple(
        Mutation(Replacement(each["file"], each["before"], each["after"]), tuple(each["tests"]))
        for each in entry.get("mutation", ())
    )
    shown_by, measured = (tuple(entry.get(field, ())) for field in ("shown_by", "measured"))
    return Capability(id, entry["text"], entry["status"], entry.get("answer", ""), shown_by, mutations, measured)


@dataclass(frozen=True, slots=True)
class Report:
    """All capabilities and all marks, and whether they agree."""

    sections: list[Section]
    marks: list[Mark]

    @property
    def capabilities(self) -> dict[str, Capability]:
        return {each.id: each for section in self.sections for each in section.capabilities}

    def marked(self, id: str) -> list[Mark]:
        return [mark for mark in self.marks if mark.feature == id]

    def problems(self) -> list[str]:
        """Every statement of the data file without its evidence."""
        known = self.capabilities
        found = [
            f"{m.path}:{m.line} is marked {m.feature}, which has no text" for m in self.marks if m.feature not in known
        ]
        for section in self.sections:
            for capability in section.capabilities:
                found += [f"{capability.id}: {problem}" for problem in self._problems_of(section, capability)]
        return found

    def _problems_of(self, section: Section, capability: Capability) -> Iterator[str]:
        marks = self.marked(capability.id)
        if not capability.id.startswith(section.letter):
            yield f"is listed in section {section.letter}"
        if not capability.text.endswith("."):
            yield "has no sentence"
        if capability.status not in STATUSES:
            yield f"has the status {capability.status!r}"
        elif capability.status == "proven":
            yield from self._problems_of_proof(section, capability, marks)
        else:
            yield from self._problems_of_answer(capability, marks)
        for name in capability.shown_by:
            if not (ROOT / name.partition("::")[0]).exists():
                yield f"is shown by {name}, which does not exist"

    def _problems_of_proof(self, section: Section, capability: Capability, marks: list[Mark]) -> Iterator[str]:
        if not marks:
            yield "is proven, and no test is marked with it"
        if not capability.mutations:
            yield "is proven, and no mutation shows that its tests can fail"
        if section.kind != "capabilities" and not capability.shown_by:
            yield "is proven, and no example, test or benchmark shows it"
        for mutation in capability.mutations:
            yield from self._problems_of_mutation(mutation, marks)

    @staticmethod
    def _problems_of_answer(capability: Capability, marks: list[Mark]) -> Iterator[str]:
        if marks:
            yield f"is {capability.status}, and {marks[0].test} is marked with it"
        if not capability.answer.endswith("."):
            yield f"is {capability.status} without an answer"
        if capability.mutations:
            yield f"is {capability.status}, and has mutations"

    @staticmethod
    def _problems_of_mutation(mutation: Mutation, marks: list[Mark]) -> Iterator[str]:
        if not mutation.tests:
            yield "has a mutation without a test"
        for test in mutation.tests:
            if not any(mark.covers(test) for mark in marks):
                yield f"has a mutation whose test does not carry its mark: {test}"
        if mutation.replacement.before == mutation.replacement.after:
            yield "has a mutation that changes nothing"
        try:
            broken = mutation.replacement.applied_to(ROOT)
            if mutation.replacement.file.endswith(".py"):
                compile(broken, mutation.replacement.file, "exec")
        except StaleMutation as stale:
            yield f"has a mutation that no longer fits: {stale}"
        except SyntaxError as error:
            yield f"has a mutation that is no Python: {error}"

    def as_json(self) -> dict[str, object]:
        sections = [section for section in self.sections if section.kind == "capabilities"]
        counts = {status: sum(len(section.having(status)) for section in sections) for status in STATUSES}
        return {
            **counts,
            "total": sum(len(section.capabilities) for section in sections),
            "mutations": sum(len(each.mutations) for each in self.capabilities.values()),
            "sections": {
                section.letter: {
                    "title": section.title,
                    "kind": section.kind,
                    **{status: [each.id for each in section.having(status)] for status in STATUSES},
                }
                for section in self.sections
            },
            "tests": {id: [mark.test for mark in self.marked(id)] for id in self.capabilities if self.marked(id)},
        }

    def as_text(self) -> str:
        counts = self.as_json()
        lines = [
            f"{counts['proven']} of {counts['total']} proven, {counts['answered']} answered, {counts['open']} open; "
            f"{counts['mutations']} mutations",
            "",
            "     proven  answered  open",
        ]
        for section in self.sections:
            having = [len(section.having(status)) for status in STATUSES]
            lines.append(f"  {section.letter}  {having[0]:>6}  {having[1]:>8}  {having[2]:>4}  {section.title}")
        lines += ["", "open:"]
        lines += [f"  {s.letter}: {spans([c.id for c in s.having('open')])}" for s in self.sections if s.having("open")]
        return "\n".join(lines)

    def as_page(self) -> str:
        """`docs/reference/capabilities.md`."""
        counts = self.as_json()
        lines = [
            "# Capabilities",
            "",
            "<!-- Generated from tests/capabilities.toml by `python -m tests.features --page`. -->",
            "",
            "What tidegate promises, line by line, and how each promise is checked. The list follows what Apache Flink's users",
            "expect of state and fault tolerance.",
            "",
            "- **proven**: the tests listed fail when the promise is broken. For each line `tests/capabilities.toml` records",
            "  changes of the source that break it; `make prove` applies them one by one and runs the tests.",
            "- **answered**: the line describes a mechanism that has no counterpart on Spark. The answer says why, and what you",
            "  get instead.",
            "- **open**: not built, or not fully proven. The text says what is missing.",
            "",
            f"{counts['proven']} of {counts['total']} capabilities are proven, {counts['answered']} are answered, "
            f"{counts['open']} are open.",
        ]
        for section in self.sections:
            lines += ["", f"## {section.letter}. {section.title}", "", "| | | |", "|---|---|---|"]
            lines += [self._page_row(capability) for capability in section.capabilities]
        return "\n".join(lines) + "\n"

    def _page_row(self, capability: Capability) -> str:
        if capability.status == "proven":
            shown = [name for name in capability.shown_by if not name.startswith("tests/")]
            names = dict.fromkeys(mark.test.rpartition("::")[2] for mark in self.marked(capability.id))
            evidence = "proven: " + ", ".join(f"`{name}`" for name in [*shown, *names])
        else:
            shown = [f" See `{name}`." for name in capability.shown_by]
            figures = " Figures are in [benchmarks](../benchmarks.md)." if capability.measured else ""
            evidence = f"{capability.status}: {capability.answer}{figures}{''.join(shown)}"
        cells = (capability.id, capability.text, evidence)
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


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
    return Report(read(CAPABILITIES.read_text()), collect(ROOT / "tests"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.features", description="Which capabilities are proven?")
    parser.add_argument("--json", action="store_true", help="everything, with the tests of each id")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    if arguments.json:
        print(json.dumps(report().as_json(), indent=2, ensure_ascii=False))
    elif arguments.page:
        PAGE.write_text(report().as_page())
    else:
        print(report().as_text())


if __name__ == "__main__":
    main()
