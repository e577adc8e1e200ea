"""Sinks that have nowhere to leave a marker say so, and do repeat."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.connectors.sink import CommitterContext
from tidegate.core.guarantee import Guarantee
from tidegate.testing.sink_contract import OrderContract
from tidegate.testing.sink_trial import SCHEMA, SinkTrial, failing


class ListTarget:
    """Rows in the memory of the driver."""

    ordered = True

    def __init__(self, collects):
        self.seen = []
        self.kept = KeptCollect(self.seen) if collects else KeptCallback(lambda rows, epoch: self.seen.extend(rows))

    def sink(self):
        return self.kept

    def rows(self):
        return [tuple(row) for row in self.seen]

    def outage(self):
        return failing("trial.commit-begins", ConnectionError("down"))


_kept = {}


def _given(key):
    return _kept[key]


class Kept:
    """Is not parted from what it has in the driver, although the trial pickles it."""

    def __reduce__(self):
        _kept[id(self)] = self
        return _given, (id(self),)


class KeptCollect(Kept, tg.CollectSink): ...


class KeptCallback(Kept, tg.CallbackSink): ...


class TestCollectSink(OrderContract):
    @pytest.fixture
    def target(self):
        return ListTarget(collects=True)


class TestCallbackSink(OrderContract):
    @pytest.fixture
    def target(self):
        return ListTarget(collects=False)


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


def test_a_committer_delivers_each_epoch_once_and_the_next_one_too():
    seen = []
    trial = SinkTrial(tg.CollectSink())  # stages rows in the same way
    committer = tg.CallbackSink(lambda rows, epoch: seen.extend(rows)).create_committer(
        CommitterContext(SCHEMA, trial._read)
    )
    first = trial.epoch(3)
    trial.complete()
    requests = trial.requests()
    committer.commit(requests)
    committer.commit(requests)  # repeated, because its outcome was unknown
    second = trial.epoch(2)
    trial.complete()
    committer.commit(trial.requests())
    assert seen == first + second
