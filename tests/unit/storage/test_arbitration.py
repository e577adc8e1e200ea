"""Who won a race, decided from every sequence of answers that a store may give."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import StorageError
from tidegate.storage.arbitration import arbitrate
from tidegate.storage.errors import (
    ObjectMissing,
    OutcomeUnknown,
    StorageDenied,
    StorageUnavailable,
)
from tidegate.storage.port import Lost, Won
from tidegate.storage.retry import Patience

MINE, OTHER = b"mine", b"other"
DOWN = StorageUnavailable("s", "x", "down")
DENIED = StorageDenied("s", "x", "denied")
GONE = ObjectMissing.of("s", "x")
PATIENCE = Patience(attempts=3, sleep=lambda seconds: None)


def scripted(*answers: object) -> Callable[[], object]:
    left: Iterator[object] = iter(answers)

    def call() -> object:
        answer = next(left)
        if isinstance(answer, StorageError):
            raise answer
        return answer

    return call


@pytest.mark.parametrize(
    ("sent", "read", "outcome"),
    [
        ([True], [], Won()),
        ([False], [OTHER], Lost(OTHER)),
        ([False], [MINE], Won()),
        ([DOWN], [MINE], Won()),
        ([DOWN], [OTHER], Lost(OTHER)),
        ([DOWN, True], [GONE], Won()),
        ([False, True], [GONE], Won()),
        ([DOWN, False], [GONE, MINE], Won()),
        ([DOWN], [DOWN, DOWN, MINE], Won()),
        ([DOWN], [DOWN, DOWN, DOWN], OutcomeUnknown),
        ([False], [DENIED], OutcomeUnknown),
        ([DOWN, DOWN, DOWN], [GONE, GONE, GONE], OutcomeUnknown),
        ([False, False, False], [GONE, GONE, GONE], OutcomeUnknown),
        ([DENIED], [], StorageDenied),
        ([DOWN, DENIED], [GONE], OutcomeUnknown),
    ],
)
def test_outcome(sent: list[object], read: list[object], outcome: object) -> None:
    def decide() -> Won | Lost:
        return arbitrate("s", "x", MINE, scripted(*sent), scripted(*read), PATIENCE)  # type: ignore[arg-type]

    if isinstance(outcome, type):
        with pytest.raises(outcome):
            decide()
    else:
        assert decide() == outcome


class Shaky:
    """A store with one name, whose answers are decided by a script of letters; it never lies about what it stores."""

    def __init__(self, script: str) -> None:
        self.body: bytes | None = None
        self._script = iter(script)

    def send(self, data: bytes) -> bool:
        fate = next(self._script, "k")
        if fate == "r":
            self.body = self.body or OTHER
        if fate == "n":
            raise DOWN
        won = self.body is None
        self.body = data if self.body is None else self.body
        if fate == "l":
            raise DOWN
        return won and fate != "c"

    def read(self) -> bytes:
        if next(self._script, "k") in "nl":
            raise DOWN
        if self.body is None:
            raise GONE
        return self.body


@given(st.text("knlcr", max_size=12))
def test_a_reported_outcome_is_true_whichever_message_is_lost(script: str) -> None:
    """k: works, n: not done and fails, l: done and fails, c: done and answers "exists", r: another one was first."""
    store = Shaky(script)
    try:
        outcome = arbitrate("s", "x", MINE, lambda: store.send(MINE), store.read, PATIENCE)
    except OutcomeUnknown:
        assert set(script) & set("nl")
    else:
        assert outcome == (Won() if store.body == MINE else Lost(OTHER))
