"""The simulation runs the product's steps. A step that it had written itself would be checked instead of the product's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.simulate import EXPECTED_STEPS
from tests.sparks import ROOT

SIMULATION = sorted((ROOT / "chaos" / "simulation").glob("*.py"))
TERM = ROOT / "src" / "tidegate" / "runtime" / "checkpoints"

INSIDE = {
    "Announcements",
    "CompletedCheckpointStore",
    "Coordinator",
    "Draft",
    "JobCleaning",
    "Ledger",
    "Materializations",
    "Materializer",
    "OutputRelease",
    "Checkpointer",
    "PendingUploads",
    "ReleaseSchedule",
    "StoredAcks",
    "Timing",
    "build_metadata",
    "claim_again",
    "divided_output",
}
"""What a term puts together and steps through. Whoever makes one beside it has begun to write a term."""
DECISIONS = {"DiscardFiles", "FailJob", "NotifyAborted", "NotifyComplete", "CompleteCheckpoint", "StartUpload"}
"""What the coordinator decides, and only the term carries out."""
WRITES = {"Create", "Put", "Delete", "Commit", "Sweep", "ListNames", "ListFolders", "GetMany"}
"""Effects that only steps of the product yield. The simulation carries them out, and yields `Sleep`, or `Get` to judge."""
OF_A_RESCALE = {"TakeCheckpoint", "HoldEpochs", "TakeLastCheckpoint", "EndAttempt", "ClaimAgain", "RestoreTasks"}
"""What the steps of a rescale yield. Threads of the driver carry it out."""
STEPS_OF_A_RESCALE = TERM / "rescale.py"
THREADS = {"threading", "queue", "concurrent.futures"}


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def used(module: ast.Module) -> set[str]:
    """Names that a module calls, matches or raises; not those that it only mentions in annotations."""
    calls = (node.func for node in ast.walk(module) if isinstance(node, ast.Call))
    patterns = (node.cls for node in ast.walk(module) if isinstance(node, ast.MatchClass))
    return {name for each in (*calls, *patterns) if (name := _last(each)) is not None}


def calls(module: ast.Module) -> set[str]:
    """The same without patterns: a name that is only matched is carried out, not yielded."""
    return {name for node in ast.walk(module) if isinstance(node, ast.Call) and (name := _last(node.func)) is not None}


def numbered_steps(module: ast.Module) -> list[str]:
    """The numbered steps that a module reaches."""
    reached = [node for node in ast.walk(module) if isinstance(node, ast.Call) and _last(node.func) == "reach"]
    return [each.args[0].value for each in reached if isinstance(each.args[0], ast.Constant)]


def _last(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def methods(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef) and any(isinstance(each, ast.YieldFrom) for each in ast.walk(node)):
            yield node.name


@pytest.mark.parametrize("path", SIMULATION, ids=lambda path: path.stem)
def test_the_simulation_makes_no_part_of_a_term_itself(path: Path) -> None:
    assert not used(tree(path)) & INSIDE


@pytest.mark.parametrize("path", SIMULATION, ids=lambda path: path.stem)
def test_the_simulation_carries_out_no_decision_of_the_coordinator(path: Path) -> None:
    imported = {alias.name for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert not imported & DECISIONS


@pytest.mark.parametrize("path", SIMULATION, ids=lambda path: path.stem)
def test_the_simulation_writes_no_step_of_a_protocol(path: Path) -> None:
    """Who reaches a numbered step, or asks storage for something, has begun to write a protocol down again."""
    module = tree(path)
    assert not numbered_steps(module)
    assert not calls(module) & WRITES


def test_every_numbered_step_of_a_term_is_written_once() -> None:
    places = [ROOT / "src" / "tidegate" / each for each in ("checkpoint", "runtime/checkpoints", "runtime/driver")]
    steps = [step for place in places for path in place.rglob("*.py") for step in numbered_steps(tree(path))]
    of_terms = [each for each in steps if each in EXPECTED_STEPS]
    assert sorted(of_terms) == sorted(EXPECTED_STEPS)


def test_the_order_of_a_rescale_is_written_once() -> None:
    """Threads of the driver, and the simulation, only match what its steps yield."""
    places = [*SIMULATION, *(ROOT / "src" / "tidegate" / "runtime").rglob("*.py")]
    assert [each for each in places if calls(tree(each)) & OF_A_RESCALE] == [STEPS_OF_A_RESCALE]


def test_the_driver_of_the_simulation_runs_the_term_of_the_product() -> None:
    assert {"RunningTerm", "OwnedTerm"} <= used(tree(ROOT / "chaos" / "simulation" / "driver.py"))


def test_no_step_of_the_term_has_a_namesake_in_the_simulation() -> None:
    steps = {name for path in TERM.glob("*.py") for name in methods(path)} - {"__init__"}
    beside = {name for path in SIMULATION for name in methods(path)}
    assert not steps & beside


@pytest.mark.parametrize(
    "name", ["term", "checkpointer", "output", "owned_term", "job_cleaning", "materializer", "rescale"]
)
def test_steps_start_no_thread_and_perform_no_effect_themselves(name: str) -> None:
    module = tree(TERM / f"{name}.py")
    assert not used(module) & {"perform", "Thread", "SimpleQueue", "Queue"}
    imported = {alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names}
    assert not imported & THREADS


def test_a_part_of_a_term_that_is_created_elsewhere_is_found() -> None:
    """Otherwise the tests above would pass whatever is written."""
    assert used(ast.parse("made = checkpoint.Coordinator(timing, tasks)")) & INSIDE
    assert numbered_steps(ast.parse('reach("rescale.2-saved", parallelism=2)'))
    assert calls(ast.parse("yield Put(path, body)")) & WRITES
    assert not calls(ast.parse("match effect:\n    case Put(path): pass")) & WRITES
    assert used(ast.parse("match action:\n    case CompleteCheckpoint(pending): pass")) & DECISIONS
