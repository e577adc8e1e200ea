"""What a target will always refuse ends the first start of a job, with an error that names the target."""

from __future__ import annotations

from tidegate.connectors.outcome import CommitOutcome, outcome_of
from tidegate.connectors.sink import checks_target
from tidegate.testing.sink_contract.target import Refuses, SinkTarget
from tidegate.testing.sink_trial import SinkTrial


class RefusalContract:
    def test_a_target_that_will_always_refuse_is_refused_before_the_first_row(self, target: SinkTarget) -> None:
        if not isinstance(target, Refuses):
            return
        sink, name = target.refusing()
        try:
            committer = SinkTrial(sink).committer  # many sinks open their target here
            if checks_target(committer):
                committer.check_target()
        except Exception as error:
            outcome, said = outcome_of(error), f"{type(error).__name__}: {error}"
        else:
            outcome, said = CommitOutcome.COMMITTED, "nothing was raised"
        assert outcome is CommitOutcome.FAILED_KNOWN, f"output would wait indefinitely: {said}"
        assert name in said, f"the error does not name {name}: {said}"
