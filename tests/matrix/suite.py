"""What runs in a cell, step by step. A step that has passed at this commit is not repeated."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.matrix.cells import Cell
from tests.matrix.environment import FOLDER, ROOT, Environment
from tests.tiers import jvms
from tests.tiers.summary import Summary

PASSED, FAILED = "passed", "failed"
WALK_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One process. Without `paths` it is a walk between real servers, or else pytest."""

    name: str
    proves: str
    paths: tuple[str, ...] = ()


SUITE = (
    Step("unit", "unit tests, and files of every earlier format", ("tests/unit", "tests/compat")),
    Step("contracts", "state backends, storage, snapshots and sinks against real servers", ("tests/contract",)),
    Step(
        "checkpoints", "checkpoints, savepoints, restarts and rescales on local Spark",
        (
            "tests/integration/test_checkpoints.py", "tests/integration/test_restarts_in_process.py",
            "tests/integration/test_rescale.py", "tests/integration/test_streaming_job.py",
        ),
    ),
    Step(
        "kills", "workers, executors, hosts and drivers killed on a cluster",
        (
            "tests/cluster/test_mixed_attempts.py", "tests/cluster/test_lost_executors.py", "tests/cluster/test_lost_state.py",
            "tests/cluster/test_chaos.py",
        ),
    ),
    Step("upgrade", "the upgrade of a running job, as its page says", ("tests/integration/test_docs.py::UPGRADE",)),
    Step("walk", f"Kafka to PostgreSQL with {WALK_ROUNDS} faults, every row counted"),
)  # fmt: skip
_UPGRADE = "test_the_upgrade_of_a_running_job_goes_as_the_page_says"

QUICK = Step(
    "quick", "what differs between versions, and a job that is restarted from its checkpoint",
    (
        "tests/unit/runtime/test_spark_versions.py", "tests/unit/runtime/sources",
        "tests/unit/runtime/epochs/test_runner.py", "tests/unit/runtime/epochs/test_settings.py",
        "tests/integration/test_key_groups_spark.py::test_every_key_has_the_key_group_in_python_that_spark_gives_it",
        "tests/integration/test_key_groups_spark.py::test_a_salt_lands_on_its_partition",
        "tests/integration/test_checkpoints.py::test_a_cancelled_job_goes_back_to_its_last_checkpoint",
        "tests/integration/test_checkpoints.py::test_without_restarts_the_first_error_ends_the_job_and_the_next_start_resumes",
    ),
)  # fmt: skip
"""For CI."""


@dataclass(slots=True)
class Outcome:
    """What a step has shown."""

    outcome: str
    seconds: int
    counts: dict[str, int] = field(default_factory=dict)
    """Tests by outcome, or the figures of a walk."""
    failures: list[str] = field(default_factory=list)


def run_steps(cell: Cell, environment: Environment, commit: str, steps: Sequence[Step]) -> dict[str, Outcome]:
    """Run these steps unless they have passed at this commit. Returns what all steps have shown at this commit."""
    folder = FOLDER / commit[:12] / str(cell)
    found: dict[str, Outcome] = {}
    for step in SUITE:
        file = folder / f"{step.name}.json"
        earlier = Outcome(**json.loads(file.read_text())) if file.is_file() else None
        if step in steps and (earlier is None or earlier.outcome != PASSED):
            earlier = run_step(step, cell, environment, folder)
            file.write_text(json.dumps(asdict(earlier), indent=1))
        if earlier is not None:
            found[step.name] = earlier
    return found


def run_step(step: Step, cell: Cell, environment: Environment, folder: Path) -> Outcome:
    """Run one step, with its log in this folder, and print what it has shown."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    outcome = _tested(step, cell, environment, folder) if step.paths else _walked(cell, environment, folder)
    outcome.seconds = round(time.monotonic() - begun)
    print(f"   {cell} {step.name}: {outcome.outcome}, {outcome.counts}, {outcome.seconds} s", flush=True)
    for failure in outcome.failures:
        print(f"      {failure}", flush=True)
    return outcome


def _tested(step: Step, cell: Cell, environment: Environment, folder: Path) -> Outcome:
    junit = folder / f"{step.name}.xml"
    junit.unlink(missing_ok=True)
    paths = [path.replace("UPGRADE", _UPGRADE) for path in step.paths]
    code = _run(
        [environment.python, "-m", "pytest", "-q", "-m", "not slow", *paths, f"--junitxml={junit}"],
        cell, environment, folder / f"{step.name}.log",
    )  # fmt: skip
    summary = Summary()
    if junit.is_file():
        summary.add(junit)
    failures = summary.failed or ([] if code == 0 else [f"pytest ended with {code}"])
    return Outcome(FAILED if failures else PASSED, 0, dict(summary.outcomes), failures)


def _walked(cell: Cell, environment: Environment, folder: Path) -> Outcome:
    report = folder / "walk-report.json"
    report.unlink(missing_ok=True)
    # tidegate's own source needs Spark 4.2.
    connector = ["--connector"] if cell.spark.startswith("4.1.") else []
    walk = ["chaos", "run", "--pipeline", "kafka-postgres", *connector, "--rounds", str(WALK_ROUNDS), "--seed", "58"]
    code = _run([environment.python, "-m", *walk, "--json", report], cell, environment, folder / "walk.log")
    if not report.is_file():
        return Outcome(FAILED, 0, failures=[f"the walk ended with {code}"])
    told: dict[str, Any] = json.loads(report.read_text())
    counts = {"faults": told["rounds"], "rows": told["rows"], "lost": told["lost"], "doubled": told["duplicated"]}
    failures = [text for text in [told["problem"], *told["wrong"]] if text]
    return Outcome(PASSED if code == 0 else FAILED, 0, counts, failures)


def _run(command: Sequence[object], cell: Cell, environment: Environment, log: Path) -> int:
    variables = environment.variables()
    variables.setdefault("JAVA_TOOL_OPTIONS", jvms.options(_archive(cell)))
    with log.open("wb") as out:
        return subprocess.run(
            [str(word) for word in command], cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip


def make_archive(cell: Cell, environment: Environment) -> None:
    """Write the classes of the cell's Spark down, for JVMs that start in half the time. Without it they are slower."""
    archive = _archive(cell)
    tried = archive.with_suffix(".tried")
    if archive.exists() or tried.exists():
        return
    tried.touch()
    code = f"from pathlib import Path; from tests.tiers import jvms; jvms.make_archive(Path({str(archive)!r}))"
    subprocess.run(
        [environment.python, "-c", code], cwd=ROOT, env=environment.variables(), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def _archive(cell: Cell) -> Path:
    return FOLDER / "environments" / f"{cell}.jsa"
