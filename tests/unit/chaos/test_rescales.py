"""Who looks at a target after rescales and outages must see what is wrong there; and a walk has every kind of fault."""

from __future__ import annotations

import pytest

from chaos.rescales import Fault, judge_rows, judge_values, missing_rows, plan_episodes

SENT = [(i % 3, i) for i in range(12)]
ROWS = [(k, i, i // 3 + 1) for k, i in SENT]
FINAL = ROWS[-3:]


def test_newest_values_and_no_step_back_are_fine():
    assert judge_values(SENT, FINAL, ROWS).fine
    assert judge_values(SENT, FINAL, [*ROWS[:2], *ROWS[6:]]).fine  # a commit of several epochs may skip values


def test_older_value_after_a_newer_one_is_counted_even_if_the_newest_wins():
    findings = judge_values(SENT, FINAL, [*ROWS[:5], ROWS[2], *ROWS[5:]])
    assert (findings.lost, findings.duplicated, findings.overwritten, findings.wrong) == (0, 1, 0, ())
    findings = judge_values(SENT, FINAL, [ROWS[3], ROWS[0], *ROWS[4:]])
    assert (findings.lost, findings.duplicated, findings.overwritten, findings.wrong) == (0, 0, 1, ())


def test_old_value_that_stays_is_lost_and_wrong():
    findings = judge_values(SENT, [ROWS[3], *FINAL[1:]], [*ROWS[6:], ROWS[3]])
    assert (findings.lost, findings.overwritten) == (2, 1)
    assert findings.wrong == ("key 0: the last row is 9, number 4, and the table has (3, 2)",)


def test_key_without_a_value_loses_all_its_rows():
    assert judge_values(SENT, FINAL[1:], ROWS).lost == 4


def test_a_value_that_was_never_sent_is_reported():
    assert "row 99 is not number 4" in " ".join(judge_values(SENT, [(0, 99, 4), *FINAL[1:]], ROWS).wrong)


@pytest.mark.parametrize(
    ("found", "lost", "duplicated", "overwritten"),
    [
        (ROWS, 0, 0, 0),
        (sorted(ROWS), 0, 0, 0),  # partition by partition
        (ROWS[:-2], 2, 0, 0),
        ([*ROWS, ROWS[0]], 0, 1, 1),
        ([ROWS[3], *ROWS[:3], *ROWS[4:]], 0, 0, 1),
    ],
)
def test_appended_rows_are_there_once_and_in_order(found, lost, duplicated, overwritten):
    findings = judge_rows(SENT, found)
    assert (findings.lost, findings.duplicated, findings.overwritten) == (lost, duplicated, overwritten)


def test_rows_of_a_savepoint_that_are_not_in_the_target_are_counted():
    saved = {0: 4, 1: 4, 2: 3}
    assert missing_rows(saved, ROWS, newest_only=False) == 0
    assert missing_rows(saved, ROWS[:-3], newest_only=False) == 2
    assert missing_rows(saved, FINAL, newest_only=True) == 0
    assert missing_rows(saved, [ROWS[3], *FINAL[1:]], newest_only=True) == 2


@pytest.mark.parametrize("pipeline", ["kafka-kafka", "kafka-postgres"])
def test_walk_has_every_kind_of_fault_and_begins_with_a_rescale_while_output_waits(pipeline):
    episodes = plan_episodes(pipeline, 50, seed=1, clock_jumps=True)
    faults = [fault for each in episodes for fault in (each.outage, *each.during, *each.after) if fault is not None]
    assert len(faults) == 50
    assert set(faults) == set(Fault) - ({Fault.TARGET} if pipeline == "kafka-kafka" else set())
    assert episodes[0].outage is not None
    assert Fault.RESCALE in episodes[0].during
    assert Fault.CLOCK not in {fault for each in plan_episodes(pipeline, 50, seed=1) for fault in each.during}


def test_walk_of_stops_begins_with_one_while_the_target_is_away():
    first, second, *_ = plan_episodes("kafka-postgres", 3, seed=1, only="stop with savepoint")
    assert (first.outage is not None, first.during) == (True, (Fault.STOP,))
    assert (second.outage, second.during) == (None, (Fault.STOP,))
