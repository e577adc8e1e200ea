"""The protocol under a simulated clock: some seeds here, thousands by hand with `python -m chaos simulate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chaos.simulate import EXPECTED_STEPS
from chaos.simulation.driver import SimDriver
from chaos.simulation.faults import CALM, Violation
from chaos.simulation.plan import JobPlan
from chaos.simulation.run import given_to, simulate
from chaos.simulation.world import Process, World
from tests.recovery.mutations.__main__ import search
from tests.recovery.mutations.rules import MUTATIONS, Mutation
from tests.scratch import ROOT, ScratchCopy
from tests.unit.checkpoint.history_kit import claimed, ref
from tidegate.checkpoint.completed.cleaner import Cleaner
from tidegate.checkpoint.coordination.timing import Cadence
from tidegate.checkpoint.effects import Steps
from tidegate.checkpoint.files.shared import InFlight
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.layout import JobLayout
from tidegate.core.ids import Lineage

SEEDS = {
    "dispose": (6, 14, 20),
    "materialize": (2, 7, 10),
    "rescale": (1, 2, 14),
    "claim-again": (1, 2, 14),
    "stop": (3, 7, 14),
}
"""Seeds that come to steps which others do not have."""
QUICK = {"metadata-first", "commit-after", "shared-count", "carry"}


@pytest.mark.feature("H5")
@pytest.mark.parametrize("decade", range(8))
def test_seeds(decade: int) -> None:
    for seed in range(decade * 10 + 1, decade * 10 + 11):
        if seed % 50:
            simulate(seed)


@pytest.mark.parametrize(
    ("seed", "happened"),
    [
        (16, ("jobs copied", "copies that became a fork")),
        (64, ("jobs copied", "one history in two places, here is stopped")),
        (1384, ("jobs copied", "copies that became a fork", "savepoints")),
        (19, ("jobs restored that had lost output", "new lines of history after a restore")),
        (73, ("jobs restored that had lost output", "output of a lost history accepted")),
        (13, ("publications that ask the target first",)),
    ],
)
def test_histories_come_back(seed: int, happened: tuple[str, ...]) -> None:
    events = simulate(seed).events
    assert all(events[each] for each in happened)


def test_a_materialization_that_takes_an_announced_id_delays_a_checkpoint_by_no_more_than_an_epoch() -> None:
    simulate(275)


@pytest.mark.parametrize("step", EXPECTED_STEPS)
def test_a_crash_at_every_numbered_step(step: str) -> None:
    """The same run again and again; its driver dies at the first, second or third time it comes to this step."""
    crashes = 0
    for seed in SEEDS.get(step.partition(".")[0], (1, 4, 6)):
        for time in (1, 2, 3):
            crashes += simulate(seed, crash_at=(step, time)).crashes[step]
    assert crashes >= 2


def test_ten_thousand_tasks() -> None:
    assert simulate(7, tasks=10_000).events["checkpoints completed"] > 0


def test_a_seed_tells_the_same_story_every_time() -> None:
    assert simulate(11) == simulate(11)


@pytest.mark.parametrize(("accepts", "counted"), [(True, 0), (False, 1)])
def test_a_claim_that_was_asked_for_is_known_when_it_is_written(accepts: bool, counted: int) -> None:
    """The run may end right after the write, as seed 1726 did: its driver does not come to say that it was asked."""
    world = World(1)
    plan = JobPlan(JobLayout("job"), 1, Cadence(interval_ms=1_000), num_retained=1, epoch_ms=100)
    driver = SimDriver(world, plan, Process(name="job#1", job="job"), Start(location="here"), True, 1)
    driver.accepts = accepts
    watch = world.watch(plan.layout)
    world.set_odds(CALM)
    world.spawn(driver.process, driver.main(), main=True)
    world.clock.run(10_000, lambda: bool(watch.log))
    assert driver.claim is None
    assert len(watch.claim_times) == counted


@pytest.mark.parametrize(
    ("lineage", "deletes"),
    [("a", {"savepoints/given/_metadata"}), ("b", set())],
    ids=["a copy that continues the line deletes it", "a fork of a copy leaves it to the original"],
)
def test_the_judge_knows_which_savepoints_of_before_a_move_a_copy_deletes(lineage: str, deletes: set[str]) -> None:
    """Dropped before the directory was copied, and not deleted yet: no entry of the copy retains it."""
    savepoint = replace(ref(1), metadata="savepoints/given/_metadata", owned=False, claimed=True)
    given = replace(claimed(), lineage=Lineage("a"), retained=(savepoint,), location="here")
    moved = replace(claimed(), lineage=Lineage(lineage), retained=(), location="there")
    assert given_to([given, moved]) == deletes


def test_an_error_of_the_code_that_clean_up_survives_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Cleaner, in_flight: InFlight) -> Steps[int]:
        yield from ()
        raise KeyError("a list")

    monkeypatch.setattr(Cleaner, "sweep", fail)
    with pytest.raises(Violation, match=r"clean-up was skipped.*KeyError"):
        simulate(1)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.id)
def test_the_code_still_has_the_rule_that_a_mutation_breaks(mutation: Mutation) -> None:
    text = Path(ROOT / mutation.file).read_text()
    assert text.count(mutation.old) == 1


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if m.id in QUICK], ids=lambda m: m.id)
def test_the_simulation_sees_a_broken_rule(mutation: Mutation, tmp_path: Path) -> None:
    found, _ = search(ScratchCopy(tmp_path), mutation, seeds=40)
    assert found is not None
