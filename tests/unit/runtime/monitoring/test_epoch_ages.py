"""When epochs ended whose work no checkpoint contains."""

from __future__ import annotations

from tests.unit.runtime.monitoring.test_job_metrics import Clock
from tidegate.core.ids import EpochId, Term
from tidegate.runtime.monitoring.epoch_ages import EpochAges


def epoch(number: int) -> EpochId:
    return EpochId(Term(1), number)


def test_work_is_unprotected_from_the_end_of_its_epoch_until_a_checkpoint_contains_it() -> None:
    clock = Clock()
    ages = EpochAges(clock)
    assert ages.oldest_at_ms() is None
    for number in (1, 2):
        clock.elapsed_ms = 1_000 * number
        ages.ended(epoch(number))
    assert ages.oldest_at_ms() == 1_001_000
    assert ages.oldest_at_ms(epoch(1)) == 1_002_000
    assert ages.oldest_at_ms(epoch(2)) is None


def test_a_return_to_a_checkpoint_discards_the_epochs_after_it() -> None:
    ages = EpochAges(Clock())
    for number in (1, 2):
        ages.ended(epoch(number))
    ages.rewind(epoch(1))
    assert ages.oldest_at_ms(epoch(1)) is None
    assert ages.oldest_at_ms() is not None
    ages.rewind(None)
    assert ages.oldest_at_ms() is None
