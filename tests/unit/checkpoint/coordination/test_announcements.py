"""An announcement is taken by one epoch, and the loop knows whether it was."""

from __future__ import annotations

from tidegate.checkpoint.coordination.announcements import Ahead, Announced, Announcements


def announced(id: int, to_empty: bool = True) -> Announcements:
    made = Announcements()
    made.announce(Announced(id, incremental=True, to_empty=to_empty))
    return made


def test_an_id_is_announced_to_one_epoch_only() -> None:
    """The loop announces it again, because it has not seen the end of the first one."""
    epochs = announced(5)
    assert epochs.begin_epoch(empty=False) == Announced(5, True)
    epochs.end_epoch()
    epochs.announce(Announced(5, True))
    assert epochs.begin_epoch(empty=False) is None


def test_what_is_withdrawn_is_not_taken() -> None:
    epochs = announced(5)
    assert not epochs.withdraw().has_begun_with(5)
    assert epochs.begin_epoch(empty=False) is None


def test_what_is_taken_cannot_be_withdrawn() -> None:
    epochs = announced(5)
    epochs.begin_epoch(empty=False)
    ahead = epochs.withdraw()
    assert ahead.has_begun_with(5)
    assert not ahead.has_begun_with(6)


def test_an_empty_epoch_leaves_an_announcement_to_one_with_rows() -> None:
    epochs = announced(5, to_empty=False)
    assert epochs.begin_epoch(empty=True) is None
    epochs.end_epoch()
    assert epochs.begin_epoch(empty=False) is not None


def test_an_epoch_runs_until_the_loop_has_seen_its_end() -> None:
    epochs = Announcements()
    assert epochs.withdraw() == Ahead()
    epochs.begin_epoch(empty=False)
    assert epochs.withdraw().runs
    epochs.end_epoch()
    assert epochs.withdraw().runs
    epochs.saw_end()
    assert not epochs.withdraw().runs


def test_the_end_of_an_epoch_seen_late_does_not_hide_the_next_one() -> None:
    epochs = Announcements()
    epochs.begin_epoch(empty=False)
    epochs.end_epoch()
    epochs.begin_epoch(empty=False)
    epochs.saw_end()
    assert epochs.withdraw().runs


def test_an_announcement_stays_open_until_the_loop_records_its_outcome() -> None:
    epochs = announced(5)
    assert epochs.unresolved == 0
    epochs.begin_epoch(empty=False)
    assert epochs.unresolved == 5
    epochs.resolve(None)
    assert epochs.unresolved == 5
    epochs.resolve(5)
    assert epochs.unresolved == 0


def test_an_announcement_is_decided_when_all_ends_are_seen_and_no_checkpoint_is_in_progress() -> None:
    epochs = announced(5)
    assert epochs.is_decided
    epochs.begin_epoch(empty=False)
    epochs.end_epoch()
    epochs.begin_epoch(empty=False)
    epochs.end_epoch()
    epochs.saw_end()
    epochs.announce(None)
    assert not epochs.is_decided, "the loop has not seen the end of the second epoch"
    epochs.saw_end()
    epochs.announce(None, in_progress=True)
    assert not epochs.is_decided
    epochs.announce(None)
    assert epochs.is_decided, "no checkpoint is due"
    epochs.withdraw()
    assert not epochs.is_decided, "the loop is at work on a message"
