"""How the latency of rows is found, and where it goes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.latency import CONTESTANTS, PLAIN, Contestant, Run, ratios
from benchmarks.latency_breakdown import CheckpointTimes, CommitTimes, EpochTimes, breakdown
from benchmarks.latency_load import Seen, match


def matched(sent: list[tuple[int, float]], shown: list[tuple[int, int, float]]) -> Seen:
    sent_keys, sent_s = zip(*sent)
    keys, counts, times_s = zip(*shown) if shown else ((), (), ())
    whole, real = np.int64, np.float64
    return match(
        np.array(sent_keys, whole), np.array(sent_s, real),
        np.array(keys, whole), np.array(counts, whole), np.array(times_s, real),
    )  # fmt: skip


def test_a_row_is_seen_with_the_first_count_that_includes_it():
    seen = matched([(1, 0.0), (2, 1.0), (1, 2.0), (1, 3.0)], [(1, 1, 5.0), (1, 3, 6.0), (2, 1, 7.0)])

    assert seen.seen_s.tolist() == [5.0, 7.0, 6.0, 6.0]
    assert seen.between(1.0, 3.0).latency_s.tolist() == [6.0, 4.0]
    assert seen.duplicates == 0


def test_a_row_that_was_not_counted_is_not_seen_and_a_second_copy_counts_as_a_duplicate():
    seen = matched([(1, 0.0), (1, 1.0), (2, 1.0)], [(1, 1, 5.0), (1, 1, 4.0)])

    assert seen.seen_s[0] == 4.0
    assert np.isnan(seen.seen_s[1:]).all()
    assert seen.duplicates == 1
    assert np.isnan(matched([(1, 0.0)], []).seen_s).all()


def test_the_steps_of_a_row_add_up_to_its_latency():
    seen = Seen(np.array([0.1, 0.3, 5.0]), np.array([2.0, 2.0, 9.0]), 0)
    epoch = EpochTimes(
        number=4, rows=2, fixed_ms=400, started_ms=500, ended_ms=1_200,
        phases={"repeat": 0, "plan": 100, "run": 600, "source": 350, "level 1": 200, "collect": 50, "streaming": 90},
    )  # fmt: skip
    taken = CheckpointTimes(number=5, triggered_ms=1_500, acked_ms=1_510, completed_ms=1_540)
    commits = [CommitTimes(started_ms=900, ended_ms=950), CommitTimes(started_ms=1_550, ended_ms=1_900)]

    steps = breakdown(seen, 0.0, 1.0, [epoch], [taken], commits)

    assert steps == {
        "waits for its epoch": pytest.approx(200),
        "Structured Streaming: plan, offset log": 100,
        "placement, repeated tries": 0,
        "plans the Spark job": 100,
        "source tasks": 350,
        "level 1 tasks": 200,
        "acknowledgements to the driver": 50,
        "waits for a checkpoint": 300,
        "upload and acknowledgement": 10,
        "metadata and log entry": 30,
        "waits for the commit": 10,
        "commit to Kafka": 350,
        "reader sees it": pytest.approx(100),
    }
    assert sum(steps.values()) == pytest.approx(float(seen.latency_s[:2].mean()) * 1000)


def test_ratios_are_those_of_tidegate_to_plain_spark_and_to_its_own_epochs():
    plain, ours = Contestant(PLAIN), Contestant("changelog", "10 ms", bounded=True)
    found = {(1_000, PLAIN): [Run(np.array([1.0]), 0.5, {})], (1_000, "changelog"): [Run(np.array([1.8]), 0.5, {})]}

    told = ratios(found, [plain, ours], [1_000])

    wanted = {name: (each["value"], each["wanted"], each["at_most"], each["reached"]) for name, each in told.items()}
    assert wanted == {
        "1000 rows/s, changelog: p99 / plain": (pytest.approx(1.8), 1.5, True, False),
        "1000 rows/s, changelog: p99 / epoch": (pytest.approx(3.6), 3.0, True, False),
    }
    assert CONTESTANTS[0].name == PLAIN
