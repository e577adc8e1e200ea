"""A job that is rescaled while it runs loses and doubles nothing, wherever its driver dies, and its new tasks have the state of
exactly one checkpoint.

Each case is the same run again, whose driver dies before it carries out a step of the rescale, or right after one. The simulation
judges: what the new tasks restore is compared with the epochs that were accepted, each restored task with the marks that these
epochs left, and at the end every output is visible once.
"""

from __future__ import annotations

import pytest

from chaos.simulation.run import simulate
from chaos.simulation.world import Tally

SEEDS = (2, 10, 14, 18)
"""Seeds whose jobs are rescaled several times: two with real tasks, two with modelled ones."""
BEFORE = ("TakeCheckpoint", "HoldEpochs", "TakeLastCheckpoint", "EndAttempt", "ClaimAgain", "RestoreTasks")
AFTER = (
    "rescale.1-asked",
    "rescale.2-saved",
    "rescale.3-ended",
    "claim-again.1-read",
    "claim-again.2-won",
    "rescale.4-claimed",
    "rescale.5-restored",
)


def crashed_at(step: str) -> list[Tally]:
    """The runs whose driver died there, the first or the second time it came there."""
    runs = [simulate(seed, crash_at=(step, time)) for seed in SEEDS for time in (1, 2)]
    return [each for each in runs if each.crashes[step]]


@pytest.mark.parametrize("step", [*(f"before {effect}" for effect in BEFORE), *AFTER])
def test_a_rescale_loses_and_doubles_nothing_if_its_driver_dies(step: str) -> None:
    assert len(crashed_at(step)) >= 2
