"""Garbage of earlier attempts does not add up."""

from __future__ import annotations

import weakref

from tidegate.runtime.task.collector import WHOLE_EVERY, seldom_collecting


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_what_attempts_leave_behind_is_collected_now_and_then() -> None:
    left = []
    for _ in range(WHOLE_EVERY):
        with seldom_collecting():
            left.append(weakref.ref(Cycle()))
    assert left[0]() is None or left[1]() is None
    assert sum(ref() is not None for ref in left) < WHOLE_EVERY
