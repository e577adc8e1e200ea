"""The start of a standalone cluster's daemons."""

from __future__ import annotations

import re
from itertools import count

import pytest

from tidegate.testing import cluster

UP = re.compile("(ready)")


class Daemon:
    def poll(self) -> int | None:
        return None


class Log:
    """What the log contains each time it is read; at the end always the same."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def read_text(self, errors: str) -> str:
        return self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]


@pytest.fixture(autouse=True)
def _a_minute_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = count(step=60)
    monkeypatch.setattr(cluster.time, "monotonic", lambda: next(minutes))
    monkeypatch.setattr(cluster.time, "sleep", lambda seconds: None)


def test_a_slow_daemon_is_waited_for_while_its_log_grows() -> None:
    lines = [f"line {n}\n" for n in range(10)]
    log = Log(*("".join(lines[:n]) for n in range(10)), "ready")
    assert cluster._await_line(log, UP, Daemon(), silence_s=240) == "ready"


def test_a_daemon_that_writes_nothing_more_is_given_up() -> None:
    with pytest.raises(cluster.ClusterError, match="was silent for 240 s"):
        cluster._await_line(Log("begins"), UP, Daemon(), silence_s=240)
