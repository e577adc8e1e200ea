"""The table of starts, every cell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.checkpoint.history_kit import LINE, claimed, ref, signatures
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.entry import Entry, RunOutcome
from tidegate.checkpoint.job_log.start import (
    LastRun,
    Refuse,
    Resume,
    Start,
    StartFresh,
    StartRequest,
    decide,
    last_run,
    request_of,
)
from tidegate.core.ids import Lineage

SIGN = signatures()
SAVEPOINT = ref(7, owned=False)
FOREIGN = ref(3, owned=False, lineage=Lineage("line-of-another"))

STARTS = {
    StartRequest.PLAIN: Start(),
    StartRequest.ROLLBACK: Start(source=ref(1)),
    StartRequest.GONE: Start(source=ref(99)),
    StartRequest.FOREIGN: Start(source=FOREIGN),
    StartRequest.FRESH: Start(fresh=True),
    StartRequest.FRESH_FROM: Start(source=SAVEPOINT, fresh=True),
}


def ran() -> Entry:
    log = entries.checkpoint(claimed(), next(SIGN), ref(1), 3)
    return entries.checkpoint(log, next(SIGN), ref(2), 3)


def ended(outcome: RunOutcome) -> Entry:
    return entries.end(ran(), next(SIGN), outcome, keep=True)


LAST: dict[LastRun, Entry | None] = {
    LastRun.NEVER_RAN: None,
    LastRun.FINISHED: ended(RunOutcome.FINISHED),
    LastRun.CANCELED: ended(RunOutcome.CANCELED),
    LastRun.FAILED: ended(RunOutcome.FAILED),
    LastRun.CRASHED: ran(),
    LastRun.STOPPED: entries.terminal_savepoint(ran(), next(SIGN), SAVEPOINT),
    LastRun.RUNNING: ran(),
}

newest, rollback, gone, foreign = "resume the newest", "resume that one", "refuse: gone", "refuse: another line"
fresh, fresh_from, running = "fresh", "fresh from that one", "refuse: running"
TABLE = {
    #                    plain, rollback, gone, foreign, fresh, fresh from
    LastRun.NEVER_RAN: (fresh, gone, gone, fresh_from, fresh, fresh_from),
    LastRun.FINISHED: ("refuse: finished", rollback, gone, foreign, fresh, fresh_from),
    LastRun.CANCELED: (newest, rollback, gone, foreign, fresh, fresh_from),
    LastRun.FAILED: (newest, rollback, gone, foreign, fresh, fresh_from),
    LastRun.CRASHED: (newest, rollback, gone, foreign, fresh, fresh_from),
    LastRun.STOPPED: (newest, rollback, gone, foreign, fresh, fresh_from),
    LastRun.RUNNING: (running,) * 6,
}
CELLS = [(last, way, TABLE[last][n]) for last in LastRun for n, way in enumerate(STARTS)]
WORDS = {
    "gone": "no longer retained",
    "another line": "another line",
    "running": "running elsewhere",
    "finished": "finished",
}


@pytest.mark.feature("E15", "H2", "I15")
@pytest.mark.parametrize(("last", "way", "expected"), CELLS, ids=[f"{a.name}-{b.name}" for a, b, _ in CELLS])
def test_cell(last: LastRun, way: StartRequest, expected: str) -> None:
    before, start = LAST[last], STARTS[way]
    alive = last is LastRun.RUNNING
    assert last_run(before, alive) is last
    decision = decide(before, start, alive)
    if expected == newest:
        assert before is not None
        assert decision == Resume(before.base, LINE)
    elif expected == rollback:
        assert decision == Resume(start.source, LINE)
    elif expected in (fresh, fresh_from):
        assert decision == StartFresh(start.source if expected == fresh_from else None)
    else:
        assert isinstance(decision, Refuse)
        assert WORDS[expected.removeprefix("refuse: ")] in decision.why
        assert decision.what_to_do


def test_a_start_next_to_a_running_driver_names_it() -> None:
    """Whoever has to stop the other one must know where it runs."""
    before = ran()
    decision = decide(before, Start(), alive=True)
    assert isinstance(decision, Refuse)
    assert before.owner in decision.why
    assert "writes its heartbeat" in decision.why


def test_a_start_next_to_a_running_driver_says_since_when_it_runs_and_what_to_do() -> None:
    decision = decide(replace(claimed(), at_ms=1_000_000_000_000), Start(), alive=True)
    assert isinstance(decision, Refuse)
    assert "has held the job since 2001-09-09 01:46:40 UTC" in decision.why
    assert "tidegate stop" in decision.what_to_do
    assert "--force" in decision.what_to_do
    later = entries.checkpoint(claimed(), next(SIGN), ref(1), 3)
    decision = decide(replace(later, at_ms=1_000_000_000_000), Start(), alive=True)
    assert isinstance(decision, Refuse)
    assert "completed its last checkpoint at 2001-09-09 01:46:40 UTC" in decision.why


@pytest.mark.feature("E15", "I15", "N26")
def test_a_cancelled_job_resumes_from_a_retained_checkpoint_given_by_path() -> None:
    assert decide(LAST[LastRun.CANCELED], Start(source=ref(1))) == Resume(ref(1), LINE)


@pytest.mark.feature("E15")
def test_a_job_that_resumes_from_a_retained_checkpoint_continues_the_line_of_that_checkpoint() -> None:
    """Markers in targets have its name. Under that of the newest line, its waiting output would be published twice."""
    before = Lineage("line-before")
    log = entries.checkpoint(claimed(), next(SIGN), ref(1, lineage=before), 3)
    assert decide(entries.checkpoint(log, next(SIGN), ref(2), 3), Start(source=ref(1, lineage=before))) == Resume(
        ref(1, lineage=before), before
    )


@pytest.mark.feature("E15", "I15")
def test_the_columns_of_the_table_are_distinguished() -> None:
    assert {way: request_of(ran(), start) for way, start in STARTS.items()} == {way: way for way in STARTS}
    assert set(STARTS) == set(StartRequest) - {StartRequest.AGAIN}  # which depends on what the last run started from
    assert request_of(ran(), Start(source=SAVEPOINT)) is StartRequest.ROLLBACK


def forked() -> Entry:
    """A first start from the savepoint of another job, which completed no checkpoint."""
    return entries.claim(None, next(SIGN), LINE, FOREIGN)


@pytest.mark.feature("E15")
@pytest.mark.parametrize("outcome", [None, RunOutcome.FAILED, RunOutcome.CANCELED, RunOutcome.SUSPENDED])
def test_a_start_that_completed_no_checkpoint_may_be_repeated_with_the_same_savepoint(
    outcome: RunOutcome | None,
) -> None:
    before = forked() if outcome is None else entries.end(forked(), next(SIGN), outcome, keep=True)
    again = Start(source=FOREIGN)
    assert request_of(before, again) is StartRequest.AGAIN
    assert decide(before, again) == decide(before, Start()) == Resume(FOREIGN, LINE)
    claimed_now = replace(FOREIGN, claimed=True)
    assert decide(before, Start(source=claimed_now)) == Resume(claimed_now, LINE)


@pytest.mark.feature("E15")
def test_after_a_checkpoint_the_savepoint_of_another_job_is_refused_again() -> None:
    progressed = entries.checkpoint(forked(), next(SIGN), ref(4), 3)
    assert request_of(progressed, Start(source=FOREIGN)) is StartRequest.FOREIGN
    for newest in (progressed, entries.end(progressed, next(SIGN), RunOutcome.FAILED, keep=True)):
        assert isinstance(decide(newest, Start(source=FOREIGN)), Refuse)


def test_another_savepoint_than_the_one_of_the_failed_start_is_refused() -> None:
    for other in (replace(FOREIGN, metadata="elsewhere/_metadata"), replace(FOREIGN, checksum="another")):
        assert isinstance(decide(forked(), Start(source=other)), Refuse)


def test_a_savepoint_is_not_started_from_again_while_the_job_runs_or_after_it_has_finished() -> None:
    assert isinstance(decide(forked(), Start(source=FOREIGN), alive=True), Refuse)
    finished = entries.end(forked(), next(SIGN), RunOutcome.FINISHED, keep=True)
    assert isinstance(decide(finished, Start(source=FOREIGN)), Refuse)


def test_a_run_that_never_got_to_a_checkpoint_begins_again_in_its_own_line() -> None:
    assert decide(claimed(), Start()) == Resume(None, LINE)


@pytest.mark.feature("D15")
def test_checkpoints_given_up_at_the_end_are_not_resumed_by_accident() -> None:
    end = entries.end(ran(), next(SIGN), RunOutcome.CANCELED, keep=False)
    decision = decide(end, Start())
    assert isinstance(decision, Refuse)
    assert "deleted" in decision.why
    assert decide(end, Start(fresh=True)) == StartFresh(None)


def test_a_run_that_failed_before_its_first_checkpoint_had_nothing_to_give_up() -> None:
    end = entries.end(claimed(), next(SIGN), RunOutcome.FAILED, keep=False)
    assert decide(end, Start()) == Resume(None, LINE)
