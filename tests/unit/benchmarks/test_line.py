"""The line of limited speed that the restore benchmark puts before a server."""

from __future__ import annotations

import pytest

from tests.servers.proxy import Line


def test_requests_share_the_speed_of_a_line():
    line = Line(bytes_per_s=1_000)

    first, second = line.seconds_for(1_000), line.seconds_for(500)

    assert first == pytest.approx(1.0, abs=0.05)
    assert second == pytest.approx(1.5, abs=0.05)


def test_line_that_was_idle_saves_no_speed_for_later(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("tests.servers.proxy.time.monotonic", lambda: now[0])
    line = Line(bytes_per_s=1_000)
    assert line.seconds_for(1_000) == pytest.approx(1.0)

    now[0] = 160.0

    assert line.seconds_for(1_000) == pytest.approx(1.0)
