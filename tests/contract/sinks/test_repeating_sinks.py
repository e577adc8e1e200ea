"""Sinks that have nowhere to leave a marker say so, and do repeat."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.connectors.sink import CommitterContext
from tidegate.core.guarantee import Guarantee
from tidegate.testing.sink_trial import SCHEMA, SinkTrial


@pytest.mark.feature("J29")
def test_without_the_targets_help_a_restart_shows_rows_again():
    seen = []
    sink = tg.CallbackSink(lambda rows, epoch: seen.extend(rows))
    trial = SinkTrial(tg.CollectSink())  # stages rows in the same way; the function stays here
    rows = trial.epoch(3)
    trial.complete()
    for _ in range(2):
        sink.create_committer(CommitterContext(SCHEMA, trial._read)).commit(trial.requests())
    assert seen == rows * 2
    assert sink.guarantee is Guarantee.AT_LEAST_ONCE
