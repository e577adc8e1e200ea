"""Which tests a change can reach.

Every job uses the whole engine, so by its imports alone every test with Spark depends on everything. What such a test is *about*
is what it, its helpers and the programs that it runs name themselves: `tg.TumblingWindow`,
`tidegate.checkpoint.completed.retained`. A change reaches it if it touches a room that the test names. The unit tests, which
name every file, and the simulation run with every change, and whatever is not reached takes turns (`tests/tiers/selection.py`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

from tests.features import report
from tests.tiers.imports import ROOT, ImportGraph, imports_of

WHOLE = ("pyproject.toml", "uv.lock", ".ci/*", "tests/conftest.py", "tests/sparks.py", "tests/tiers/*")
"""A change of these reaches every test: they decide what runs, and in which environment."""

ALWAYS = (
    "tests/architecture/*",
    "tests/compat/*",
    "tests/recovery/*",
    "tests/unit/*",
    "tests/cluster/test_pipelines.py",  # a walk with kills for each family of sinks
    "tests/integration/test_docs.py::docs/operations/upgrade.md",
    "tests/integration/test_five_minutes.py",
)

UNSEEN = (
    ("src/tidegate/control/ui/*", "tests/integration/ui/*"),
    ("src/tidegate/control/*", "tests/integration/test_five_minutes.py"),
    ("src/tidegate/control/messages/*", "tests/integration/ui/*"),
    ("src/tidegate/control/spark_import/*", "tests/integration/test_spark_import.py"),
    ("src/tidegate/control/spark_import/*", "tests/integration/kafka/test_import.py"),
    ("src/tidegate/flink/*", "tests/integration/test_flink_*.py"),
    ("src/tidegate/operators/*", "tests/integration/test_combining.py"),
    ("src/tidegate/operators/*", "tests/integration/test_windows_and_failures.py"),
    ("src/tidegate/operators/*", "tests/integration/test_docs.py::docs/guide/joins.md"),
    ("src/tidegate/operators/*", "tests/integration/test_docs.py::docs/guide/sessions.md"),
    ("src/tidegate/operators/*", "tests/integration/test_docs.py::docs/guide/windows.md"),
    ("src/tidegate/reporters/*", "tests/integration/test_lineage.py"),
    ("src/tidegate/reporters/*", "tests/integration/test_otel.py"),
    ("src/tidegate/runtime/placement/*", "tests/cluster/test_away_from_home.py"),
    ("src/tidegate/runtime/placement/*", "tests/cluster/test_local_recovery.py"),
    ("chaos/*", "tests/cluster/*"),
    ("benchmarks/*", "tests/integration/test_benchmarks.py"),
    ("docs/operations/hdfs.md", "tests/integration/test_hdfs.py"),
    ("docs/guide/kafka-to-postgres.md", "tests/integration/kafka/test_pages.py"),
    ("docs/connectors/kafka*.md", "tests/integration/kafka/test_pages.py"),
    ("docs/operations/alerts.md", "tests/integration/test_alert*.py"),
)
"""(a change, a test that it reaches): what imports do not show, because a test runs a program or reads a file."""

SIMULATION = "chaos/simulation/"
"""Its tests always run, and no test with Spark uses it."""

_PAGES = "tests/integration/test_docs.py"
_PAGE = re.compile(re.escape(_PAGES) + r"::\w+\[(?P<case>[^\]]+)\]")
_UPGRADE = "test_the_upgrade_of_a_running_job_works_as_the_page_describes"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CONNECTORS = "src/tidegate/connectors/"
_SHOWN = ("src/tidegate/api", _CONNECTORS, "src/tidegate/control", "src/tidegate/flink", "src/tidegate/testing")
_BY_FILE = ("src/tidegate/api/", _CONNECTORS)
"""Packages of which a test uses some files and not others. Of other packages it uses what runs together: a whole folder."""


def unit_of(node: str) -> str:
    """What is selected or left out as one: a test file; of the pages and examples each one."""
    if _UPGRADE in node:
        return f"{_PAGES}::docs/operations/upgrade.md"
    if found := _PAGE.match(node):
        case = found["case"]
        program = case.split("-")[0] if ".py" in case else f"{case}.py"
        return f"{_PAGES}::{case if case.endswith('.md') else f'examples/{program}'}"
    return node.split("::")[0]


def runs_always(unit: str) -> bool:
    return _matches(unit, ALWAYS)


def room_of(file: str) -> str:
    """The part of the source that changes together: a file of what users name, or else a folder."""
    return file if file.startswith(_BY_FILE) else file.rpartition("/")[0]


class Reach:
    """What each unit of tests names, and which of them a change reaches."""

    def __init__(self, graph: ImportGraph, root: Path = ROOT) -> None:
        self._graph = graph
        self._root = root

    @classmethod
    def of_project(cls) -> Reach:
        return cls(ImportGraph.read())

    @cached_property
    def units(self) -> list[str]:
        """All test files; and pages and examples, which are selected one by one."""
        files = [file for file in self._graph.files() if re.search(r"^tests/.*/test_\w+\.py$", file)]
        pages = [str(page.relative_to(self._root)) for page in sorted((self._root / "docs").rglob("*.md"))]
        programs = [file for file in self._graph.files() if file.startswith("examples/")]
        return sorted([*files, *(f"{_PAGES}::{name}" for name in [*pages, *programs])])

    def reached(self, changed: Iterable[str]) -> dict[str, str]:
        """The units that these files reach, each with the reason: a file that has changed."""
        changes = sorted(changed)
        if whole := [file for file in changes if _matches(file, WHOLE)]:
            return dict.fromkeys(self.units, whole[0])
        return {unit: file for unit in self.units for file in self._reasons(unit, changes)}

    def _reasons(self, unit: str, changes: list[str]) -> list[str]:
        """The first of the changes that reaches the unit, if there is one."""
        files, rooms = self._named[unit]
        for change in changes:
            if change.startswith(SIMULATION):
                continue
            if unit in self._proofs.get(change, ()):
                return [change]
            if change in files or (change.startswith("src/") and room_of(change) in rooms):
                return [change]
            if any(fnmatch(change, before) and fnmatch(unit, test) for before, test in UNSEEN):
                return [change]
        return []

    @cached_property
    def _proofs(self) -> dict[str, set[str]]:
        """The tests that are known to fail when a file is broken: those of its recorded mutations."""
        proofs: dict[str, set[str]] = defaultdict(set)
        for capability in report().capabilities.values():
            for mutation in capability.mutations:
                proofs[mutation.replacement.file] |= {unit_of(test) for test in mutation.tests}
        return proofs

    @cached_property
    def _named(self) -> dict[str, tuple[set[str], set[str]]]:
        """The files of each unit, and the rooms of the source among them."""
        return {unit: self._named_by(unit) for unit in self.units}

    def _named_by(self, unit: str) -> tuple[set[str], set[str]]:
        if runs_always(unit):
            return set(), set()  # nobody asks what reaches it
        files = self._files_of(unit)
        rooms = {room_of(file) for file in files if file.startswith("src/")}
        if "::" in unit:
            # A page shows what users write. The engine below it has tests of its own, and pages take turns.
            rooms = {room for room in rooms if room.startswith(_SHOWN)}
        return files, rooms

    def _files_of(self, unit: str) -> set[str]:
        """What the unit consists of, and the source that this names."""
        test, _, case = unit.partition("::")
        own = {test, *self._fixtures_of(test)}
        # Pages share one test file, which names nothing of the product.
        names = {case} if case else set()
        if case.endswith(".md"):
            code = "\n".join(_BLOCK.findall((self._root / case).read_text()))
            own |= imports_of(code, self._root)
        if not test.startswith(("tests/integration/", "tests/cluster/")):
            return self._graph.closure(own)  # few and quick: whatever they import
        named = self._graph.closure({*own, *names}, through=lambda file: not file.startswith("src/"))
        # A connector is used as a whole: its sink leads to its writer and its committer.
        connectors = self._graph.closure(
            {file for file in named if file.startswith(_CONNECTORS)}, through=lambda file: file.startswith(_CONNECTORS)
        )
        return named | {file for file in connectors if file.startswith(_CONNECTORS)}

    def _fixtures_of(self, test: str) -> set[str]:
        folders = Path(test).parents
        return {file for folder in folders if (self._root / (file := f"{folder}/conftest.py")).is_file()}


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
