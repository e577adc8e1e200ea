"""A job whose checkpoint directory is restored from a backup, or copied, publishes nothing unnoticed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tidegate.checkpoint.output.committables import Ledger
from tidegate.connectors.outcome import ForeignOutput
from tidegate.connectors.sink import Committable, Committer, lists_markers
from tidegate.core.history import History
from tidegate.core.ids import EpochId, Uid
from tidegate.testing.sink_contract.target import SinkTarget, check_same
from tidegate.testing.sink_trial import Row, SinkTrial, in_order


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy of a job's checkpoint directory."""

    logged: History
    at: EpochId
    completed: tuple[Committable, ...]
    expected: tuple[Row, ...]


class RestoredTrial(SinkTrial):
    """A job whose checkpoint directory can be replaced by a backup."""

    @property
    def logged(self) -> History:
        """What a driver that does not own the job reads in the log."""
        return History(self.lineage, self.claims)

    @property
    def is_marking(self) -> bool:
        return lists_markers(self.committer)

    def markers(self, uid: str = "out") -> Collection[EpochId]:
        """Return the markers in the target, as another process finds them."""
        committer = self.new_committer()
        assert lists_markers(committer)
        return committer.markers(self.lineage, Uid(uid))

    def backup(self) -> Backup:
        """Copy what a backup of the checkpoint directory has. Rows that wait in it are not copied: they are kept here."""
        return Backup(self.logged, self.at, tuple(self.completed), tuple(self.expected))

    def restore(self, backup: Backup, accepts: bool = False) -> None:
        """Replace the job's checkpoint directory by a backup, and let a driver claim the job. With `accepts`, the user
        accepts what the target has."""
        self.claims = backup.logged.claims
        self.at = backup.at
        self.completed = list(backup.completed)
        self.expected = list(backup.expected)
        self._open = []
        markers = self.markers() if accepts else ()
        self.claim([each for each in markers if not self.logged.knows(self.lineage, each)])
        self.ledger = Ledger()
        self.committer = self.new_committer()


class HistoryContract:
    """Applies to committers that list the markers of their target (`markers`)."""

    def test_markers_of_the_own_history_are_known(self, target: SinkTarget) -> None:
        trial = RestoredTrial(target.sink())
        if not trial.is_marking:
            return
        assert all(trial.history.knows(trial.lineage, each) for each in trial.markers())
        for _ in range(2):
            trial.epoch(2, 2)
            assert trial.checkpoint()
            trial.sweep()
            assert trial.restart()
            markers = trial.markers()
            assert markers
            assert all(trial.logged.knows(trial.lineage, each) for each in markers)
            assert not any(each.number for each in trial.markers("another"))

    def test_output_of_a_lost_history_is_found_before_the_job_starts(self, target: SinkTarget) -> None:
        trial = RestoredTrial(target.sink())
        if not trial.is_marking:
            return
        trial.epoch(2, 2)
        assert trial.checkpoint()
        for is_same_run in (True, False):
            backup = trial.backup()
            if not is_same_run:
                trial.restart()
            trial.epoch(2, 2)
            assert trial.checkpoint()
            trial.sweep()
            markers = trial.markers()
            assert all(trial.logged.knows(trial.lineage, each) for each in markers)
            assert not all(backup.logged.knows(trial.lineage, each) for each in markers)

    def test_a_restored_job_publishes_nothing_beside_a_lost_history(self, target: SinkTarget) -> None:
        trial = RestoredTrial(target.sink())
        if not trial.is_marking:
            return
        trial.epoch(2, 2)
        assert trial.checkpoint()
        trial.sweep()
        backup = trial.backup()
        assert trial.restart()
        trial.epoch(2, 2)
        assert trial.checkpoint()
        trial.sweep()
        before = target.rows()
        trial.restore(backup)
        trial.epoch(2, 2)
        trial.complete()
        # A driver that recorded the rest as published offers only what is new. One that lost its records offers everything.
        for requests in (in_order(trial.ledger.carried_by(trial.at)), trial.requests()):
            assert refuses(trial.committer, requests)
            assert refuses(trial.new_committer(), requests)
        check_same(target.rows(), before)

    def test_a_restored_job_continues_after_output_that_was_accepted(self, target: SinkTarget) -> None:
        trial = RestoredTrial(target.sink())
        if not trial.is_marking:
            return
        trial.epoch(2, 2)
        assert trial.checkpoint()
        backup = trial.backup()
        assert trial.restart()
        trial.epoch(2, 2)
        assert trial.checkpoint()
        trial.sweep()
        before = target.rows()
        trial.restore(backup, accepts=True)
        rows = trial.epoch(2, 2)
        assert trial.checkpoint()
        assert trial.restart()
        check_same(target.rows(), [*before, *rows])

    def test_output_that_waits_since_a_restore_is_published_once_when_the_job_is_accepted(
        self, target: SinkTarget
    ) -> None:
        """The target could not be asked when the restored job started. It has output of a claim with a greater number than those
        of the waiting output, and a marker that compares numbers would hide all of it."""
        trial = RestoredTrial(target.sink())
        if not trial.is_marking:
            return
        trial.epoch(2, 2)
        assert trial.checkpoint()
        trial.sweep()
        backup = trial.backup()
        for _ in range(4):
            assert trial.restart()
        trial.epoch(2, 2)
        assert trial.checkpoint()
        trial.sweep()
        before = target.rows()
        trial.restore(backup)
        waiting = trial.epoch(2, 2)
        trial.complete()
        trial.claim()
        waiting = [*waiting, *trial.epoch(2, 2)]
        trial.complete()
        carried = trial.ledger.carried_by(trial.at)
        assert refuses(trial.new_committer(), trial.requests())
        trial.claim([each for each in trial.markers() if not trial.logged.knows(trial.lineage, each)])
        rows = trial.epoch(2, 2)
        trial.committer = trial.new_committer()
        # One epoch, and then everything, as after a crash in between.
        trial.committer.commit(in_order(each for each in carried if each.epoch == carried[0].epoch))
        assert trial.checkpoint()
        check_same(target.rows(), [*before, *waiting, *rows])
        assert trial.restart()
        check_same(target.rows(), [*before, *waiting, *rows])


def refuses(committer: Committer, requests: Sequence[Committable]) -> bool:
    """Whether the committer notices the output of another history."""
    try:
        committer.commit(requests)
    except ForeignOutput:
        return True
    return False
