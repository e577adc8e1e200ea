"""Who publishes output that both the driver and tasks can publish."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint.output.committables import Ledger
from tidegate.checkpoint.output.committer_choice import CommitterChoice, CommitterLimits
from tidegate.checkpoint.output.sink_output import OutputUpTo
from tidegate.connectors.sink import Committable
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid

OUT, TASKS_ONLY = Uid("out"), Uid("files")
LIMITS = CommitterLimits(small_bytes=100, stay_ms=1_000, first_rest_ms=5_000, longest_rest_ms=12_000)


def at(ms: int) -> Instant:
    return Instant(MonotonicMs(ms), WallMs(ms))


def due(*committables: Committable) -> OutputUpTo:
    return Ledger(committables).up_to(EpochId(Term(9), 0))


def waiting(size_bytes: int, sink: Uid = OUT) -> list[Committable]:
    epoch = EpochId(Term(1), 1)
    made = Committable(lineage=Lineage("l"), sink=sink, epoch=epoch, slot=Slot(0), payload=b"", size_bytes=size_bytes)
    return [made] if size_bytes else []


def chosen(choice: CommitterChoice, size_bytes: int, ms: int, busy: tuple[Uid, ...] = ()) -> bool:
    return OUT in choice.of_driver(due(*waiting(size_bytes), *waiting(1, TASKS_ONLY)), busy, at(ms))


def test_the_driver_commits_while_little_waits_and_tasks_until_half_of_that_waits():
    choice = CommitterChoice([OUT], LIMITS)
    assert chosen(choice, 100, 0)
    assert not chosen(choice, 101, 10)
    assert not chosen(choice, 0, 1_009), "whoever takes over has to take the slots from the others"
    assert not chosen(choice, 51, 1_010)
    assert chosen(choice, 50, 1_010)


def test_a_sink_that_the_driver_is_committing_to_stays_with_it():
    choice = CommitterChoice([OUT], LIMITS)
    assert chosen(choice, 1_000, 0, busy=(OUT,))
    assert not chosen(choice, 1_000, 0)


def test_sinks_that_only_tasks_commit_to_are_never_chosen():
    choice = CommitterChoice([OUT], LIMITS)
    assert choice.of_driver(due(*waiting(1, TASKS_ONLY)), (), at(0)) == {OUT}
    choice.failed(TASKS_ONLY, at(0))
    assert choice.of_driver(due(*waiting(1, TASKS_ONLY)), (), at(0)) == {OUT}


def test_after_a_failure_tasks_commit_for_a_while_and_longer_after_the_next():
    choice = CommitterChoice([OUT], LIMITS)
    begin = 0
    for rest_ms in (5_000, 10_000, 12_000, 12_000):
        choice.failed(OUT, at(begin))
        assert not chosen(choice, 1, begin + rest_ms - 1)
        assert chosen(choice, 1, begin + rest_ms)
        begin += rest_ms
    choice.succeeded(OUT)
    choice.failed(OUT, at(begin))
    assert chosen(choice, 1, begin + 5_000)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 700), st.booleans(), st.booleans()), max_size=40))
def test_the_driver_never_begins_with_more_than_little_and_gets_every_quiet_sink_back(steps):
    choice, now = CommitterChoice([OUT], LIMITS), 0
    for size_bytes, passed_ms, busy, fails in steps:
        now += passed_ms
        if fails:
            choice.failed(OUT, at(now))
        by_driver = chosen(choice, size_bytes, now, (OUT,) if busy else ())
        assert busy or not (by_driver and size_bytes > LIMITS.small_bytes)
    assert chosen(choice, 0, now + LIMITS.longest_rest_ms)
