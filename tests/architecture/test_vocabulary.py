"""One word for each concept: retired words stay retired, class names are unique, and the glossary is complete."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.sparks import ROOT
from tidegate.core import ids

SOURCE = ROOT / "src"
GLOSSARY = ROOT / "docs" / "concepts" / "glossary.md"
PLACES = ("src", "docs", "tests", "chaos", "benchmarks", "examples", "README.md", "CONTRIBUTING.md")

RETIRED = {
    r"rides?|riding|passengers?|plan_rides|wants_ride|_ride_until": "UploadWorker, UploadHandle, CheckpointWork",
    r"berths?|_Berths|wait_at_berth": "executor_quota",
    r"[Hh]omeless|strays": "Unplaceable, misplaced_tasks",
    r"[Ii]nlets?": "BarrierTracker",
    r"[Oo]utlets?": "Committers",
    r"[Tt]enures?": "CompletedCheckpointStore, Cleaner",
    r"JobShape|job_shape": "JobDescription",
    r"with_sleeping": "with_undeclared_states",
    r"Uploading(?=[\[(:,\]])|Cut(?=[\[(:,\]])|Recovered": "PendingUpload, EpochSnapshot, RestorePoint",
    r"Orders(?=[\[(:,\]])": "TaskAssignment",
    r"(?:the|its|a|take|takes|hold|holds) turn(?= (?:must|is|while|and|that)|[.,:])|_turn": "the epoch lock",
    r"canonical (?:key|keys|form of (?:a|the|one) key)": "normalized keys; only savepoints are canonical",
}
"""What nobody should have to learn, as regular expressions of whole words, and what is said instead."""

RETIRED_MODULES = {
    "berths", "cut", "fitting", "guard", "guarded", "inlet", "job_shape", "outlets", "plain", "recovered", "ride_plan",
    "rides", "tenure", "verdict",
}  # fmt: skip


RETIRED_IN_NAMES = re.compile(
    r"(?<![a-z])(?:tells?|told|speaks?|spoken|settle[sd]?|settling|owe[sd]?|owing|anew|whoever|forgetful|mortal|go_on|goes_on|bring_back"
    r"|put_together|turn_to|make_way|stand_alone)(?![a-z])"
)
"""Words that identifiers should not have. Say what is done instead: report, print, complete, acknowledge, restore, assemble."""

NAMES_LEFT = {
    "checkpoint": 1,
    "connectors": 1,
}
"""How many names with a retired word each package still defines at most, counted once a file. Lower a number after a rename; none
may grow. A package that is not listed has none."""


def defined_names(tree: ast.AST) -> set[str]:
    """Functions, classes, parameters, variables and attributes that a file defines."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.arg(arg=name)
            ):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
    return names


def has_retired_word(name: str) -> bool:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return RETIRED_IN_NAMES.search(snake) is not None


def test_names_with_retired_words_only_get_fewer() -> None:
    left: dict[str, list[str]] = defaultdict(list)
    for path in sorted((SOURCE / "tidegate").rglob("*.py")):
        place = path.relative_to(SOURCE / "tidegate")
        names = sorted(name for name in defined_names(ast.parse(path.read_text())) if has_retired_word(name))
        left[place.parts[0]] += [f"{place}: {name}" for name in names]

    assert {package: names for package, names in left.items() if len(names) > NAMES_LEFT.get(package, 0)} == {}


def test_retired_words_are_found_in_camel_case_and_snake_case() -> None:
    assert [name for name in ("_told", "tell_last", "TellEvery", "settle_marks") if not has_retired_word(name)] == []
    assert [name for name in ("intellect", "telling_apart", "owner", "known_mortality") if has_retired_word(name)] == []


def texts() -> list[Path]:
    """Everything people read, but for decisions and changes, which say how things were called when they were made."""
    found = [path for place in PLACES for path in ([ROOT / place] if "." in place else (ROOT / place).rglob("*"))]
    return [
        path
        for path in found
        if path.suffix in (".py", ".md") and "decisions" not in path.parts and path != Path(__file__).resolve()
    ]


def test_no_retired_word_comes_back() -> None:
    rules = [(re.compile(rf"(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z0-9_])"), said) for words, said in RETIRED.items()]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()!r} (say: {said})"
        for path in texts()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for rule, said in rules
        for match in [rule.search(line)]
        if match
    ]

    assert found == []


def test_no_module_has_a_retired_name() -> None:
    assert [str(path) for path in SOURCE.rglob("*.py") if path.stem in RETIRED_MODULES] == []


def test_a_class_name_means_one_class() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path.relative_to(SOURCE)))

    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_the_glossary_has_every_identity() -> None:
    tree = ast.parse(Path(ids.__file__).read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    names += [
        target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
        if isinstance(target, ast.Name)
    ]  # fmt: skip
    page = GLOSSARY.read_text()

    assert [name for name in names if f"`{name}`" not in page] == []
