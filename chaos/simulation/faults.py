"""How much goes wrong in one seed, and the violation that is raised when the protocol does."""

from __future__ import annotations

import random
from dataclasses import dataclass


class Violation(AssertionError):
    """A promise of the protocol was broken."""


class Crash(BaseException):
    """The process ends here, between two instructions."""


@dataclass(frozen=True, slots=True)
class Odds:
    """Probabilities, each for one occasion. A seed has some of them high and most of them low."""

    crash_at_step: float
    pause_at_step: float
    crash_at_io: float
    pause_at_io: float
    lost_answer: float
    lying_exists: float
    late_apply: float
    unreadable: float
    unavailable: float
    lost_message: float
    doubled_message: float
    second_attempt: float
    declined: float
    rewind: float
    target_refuses: float
    slow_request: float
    hanging_upload: float

    @staticmethod
    def drawn(rng: random.Random) -> Odds:
        def some(low: float, high: float) -> float:
            return rng.choice((0.0, low, low, high))

        return Odds(
            crash_at_step=some(0.005, 0.04), pause_at_step=some(0.01, 0.05), crash_at_io=some(0.001, 0.008),
            pause_at_io=some(0.002, 0.01), lost_answer=some(0.01, 0.1), lying_exists=some(0.02, 0.2),
            late_apply=some(0.01, 0.05), unreadable=some(0.01, 0.2), unavailable=some(0.005, 0.05),
            lost_message=some(0.02, 0.3), doubled_message=some(0.05, 0.3), second_attempt=some(0.02, 0.2),
            declined=some(0.005, 0.03), rewind=some(0.005, 0.03), target_refuses=some(0.02, 0.3),
            slow_request=some(0.01, 0.05), hanging_upload=some(0.02, 0.1),
        )  # fmt: skip


CALM = Odds(*(0.0 for _ in range(17)))
