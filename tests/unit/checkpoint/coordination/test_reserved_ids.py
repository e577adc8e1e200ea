"""Ids under which tasks store files that no checkpoint of that id will have."""

from __future__ import annotations

from tests.unit.checkpoint.coordination.test_coordinator import EVERY_SECOND, TASKS, epoch
from tidegate.checkpoint.coordination.announcements import Ahead
from tidegate.checkpoint.coordination.coordinator import Coordinator, StartUpload
from tidegate.checkpoint.coordination.failure import CheckpointFailureReason
from tidegate.checkpoint.coordination.timing import Timing
from tidegate.checkpoint.files.shared import InFlight
from tidegate.testing.clock import at


def begun(taken: int = 0) -> Coordinator:
    """A coordinator at the end of an epoch. An epoch runs that has begun with the announced id `taken`."""
    coordinator = Coordinator(Timing(EVERY_SECOND), TASKS, last_id=4)
    coordinator.look(Ahead(taken))
    coordinator.start(at(0), 100)
    return coordinator


def test_clean_up_spares_a_reserved_id_and_its_base_until_it_is_released() -> None:
    coordinator = begun()
    assert coordinator.reserve("chk-4/_metadata") == 5
    assert coordinator.in_flight() == InFlight(5, frozenset({"chk-4/_metadata"}))
    (started, *_) = coordinator.epoch_finished(epoch(1), True, at(200))
    assert isinstance(started, StartUpload)
    assert started.id == 6
    assert coordinator.in_flight().lowest_id == 5
    coordinator.return_id(5)
    assert coordinator.in_flight() == InFlight(6)


def test_an_id_that_an_epoch_has_begun_with_is_not_reserved() -> None:
    coordinator = begun(taken=5)
    assert coordinator.reserve(None) == 6


def test_going_back_releases_everything() -> None:
    coordinator = begun()
    coordinator.reserve("chk-4/_metadata")
    coordinator.abort_all(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND, at(300))
    assert coordinator.in_flight() == InFlight(6)
