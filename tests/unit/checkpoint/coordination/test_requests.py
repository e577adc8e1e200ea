"""Which request runs next: Flink's rules as rows of a table."""

from __future__ import annotations

import pytest

from tidegate.checkpoint.coordination.requests import (
    CheckpointRequest,
    Load,
    RequestKind,
    RequestQueue,
    RunNow,
    Wait,
    choose,
)

PERIODIC = CheckpointRequest(kind=RequestKind.PERIODIC, at_ms=0)
MANUAL = CheckpointRequest(kind=RequestKind.MANUAL, at_ms=0)
FORCED = CheckpointRequest(kind=RequestKind.MANUAL, at_ms=0, forced=True)
SAVEPOINT = CheckpointRequest(kind=RequestKind.SAVEPOINT, at_ms=0)
STOP = CheckpointRequest(kind=RequestKind.TERMINAL_SAVEPOINT, at_ms=0)


@pytest.mark.feature("D6", "D11", "D12", "D13")
@pytest.mark.parametrize(
    ("first", "load", "expected"),
    [
        (None, Load(0, 0, None), Wait()),
        (PERIODIC, Load(0, 0, None), RunNow(PERIODIC)),
        (PERIODIC, Load(0, 0, 1_200), Wait(1_200)),  # min-pause after the last completion
        (PERIODIC, Load(0, 0, 1_000), RunNow(PERIODIC)),
        (MANUAL, Load(0, 0, 1_499), RunNow(MANUAL)),  # min-pause is for periodic ones
        (MANUAL, Load(1, 0, None), Wait()),  # max-concurrent
        (FORCED, Load(1, 0, None), RunNow(FORCED)),
        (SAVEPOINT, Load(1, 0, 1_499), RunNow(SAVEPOINT)),
        (STOP, Load(3, 0, 1_499), RunNow(STOP)),
        (SAVEPOINT, Load(0, 2, None), Wait()),  # too many are still being cleaned
        (MANUAL, Load(0, 1, None), RunNow(MANUAL)),
    ],
)
def test_rule(first: CheckpointRequest | None, load: Load, expected: RunNow | Wait) -> None:
    assert choose(first, load, max_concurrent=1, now_ms=1_000) == expected


@pytest.mark.feature("D11")
def test_savepoints_go_first_then_forced_then_manual_then_periodic() -> None:
    queue = RequestQueue()
    for request in (PERIODIC, MANUAL, FORCED, STOP, SAVEPOINT):
        queue.add(request)
    ran = [queue.take(Load(0, 0, None), 1, 0) for _ in range(5)]
    assert ran == [RunNow(r) for r in (STOP, SAVEPOINT, FORCED, MANUAL, PERIODIC)]
    assert queue.take(Load(0, 0, None), 1, 0) == Wait()


def test_among_equals_the_oldest_goes_first() -> None:
    queue = RequestQueue()
    later, earlier = (
        CheckpointRequest(kind=RequestKind.MANUAL, at_ms=20),
        CheckpointRequest(kind=RequestKind.MANUAL, at_ms=10),
    )
    queue.add(later)
    queue.add(earlier)
    assert queue.take(Load(0, 0, None), 1, 30) == RunNow(earlier)


def test_a_full_queue_gives_up_the_periodic_one_and_then_refuses() -> None:
    queue = RequestQueue(limit=2)
    assert queue.add(PERIODIC) is None
    assert queue.add(MANUAL) is None
    assert queue.add(SAVEPOINT) == PERIODIC
    assert queue.add(FORCED) == FORCED
    assert len(queue) == 2


@pytest.mark.large
def test_the_queue_holds_a_thousand() -> None:
    queue = RequestQueue()
    answers = [queue.add(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=n)) for n in range(1_001)]
    assert answers.count(None) == 1_000
    assert answers[-1] == CheckpointRequest(kind=RequestKind.MANUAL, at_ms=1_000)


@pytest.mark.feature("D13")
def test_one_periodic_request_is_enough() -> None:
    queue = RequestQueue()
    queue.add(PERIODIC)
    queue.add(CheckpointRequest(kind=RequestKind.PERIODIC, at_ms=5))
    assert len(queue) == 1
