"""Every line of the log says which job, term and epoch it belongs to, in text and in JSON."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tidegate.core.ids import EpochId, Term
from tidegate.core.log_setup import JsonFormatter, LogContext, TextFormatter, in_this_context

log = logging.getLogger("tidegate")


class Lines:
    def __init__(self, formatter: logging.Formatter) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(formatter)

    def text(self) -> list[str]:
        return self._stream.getvalue().splitlines()

    def json(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text()]


@pytest.fixture
def shown(request: pytest.FixtureRequest) -> Iterator[Lines]:
    lines = Lines(request.param)
    level = log.level
    log.addHandler(lines.handler)
    log.setLevel(logging.INFO)
    yield lines
    log.removeHandler(lines.handler)
    log.setLevel(level)


in_json = pytest.mark.parametrize("shown", [JsonFormatter()], indirect=True)
in_text = pytest.mark.parametrize("shown", [TextFormatter()], indirect=True)


def at(job: str, term: int, number: int) -> LogContext:
    return LogContext(job, lambda: EpochId(Term(term), number))


def in_a_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@in_json
def test_a_line_has_job_term_and_epoch(shown: Lines) -> None:
    context = at("orders", 2, 41)
    with context.entered():
        log.info("%d rows", 5)
    context.leave()
    (line,) = shown.json()
    assert (line["job"], line["term"], line["epoch"], line["message"]) == ("orders", 2, "2.41", "5 rows")
    assert line["level"] == "INFO"
    assert line["time"].endswith("+00:00")


@in_json
def test_lines_of_a_jobs_threads_are_its_own_while_another_job_runs(shown: Lines) -> None:
    orders, clicks = at("orders", 1, 1), at("clicks", 1, 1)
    with orders.entered():
        work = in_this_context(lambda: log.info("from a thread"))
    with clicks.entered():
        in_a_thread(work)
        log.info("here")
    orders.leave()
    clicks.leave()
    assert [line["job"] for line in shown.json()] == ["orders", "clicks"]


@in_json
def test_other_threads_speak_for_the_only_job_until_it_ends(shown: Lines) -> None:
    context = at("orders", 1, 1)
    with context.entered():
        in_a_thread(lambda: log.info("while it runs"))
    log.info("after it has started")
    context.leave()
    log.info("after it has ended")
    assert [line.get("job") for line in shown.json()] == ["orders", "orders", None]


@in_json
def test_a_job_that_does_not_start_leaves_no_trace(shown: Lines) -> None:
    with pytest.raises(ValueError), at("orders", 1, 1).entered():
        raise ValueError
    log.info("the next line")
    assert "job" not in shown.json()[0]


@in_json
def test_attributes_of_events_and_errors_are_fields_and_hide_secrets(shown: Lines) -> None:
    try:
        raise ValueError("password=hunter2")
    except ValueError:
        log.warning(
            "failed", exc_info=True, extra={"event": "JobFailureEvent", "attributes": {"why": "token=abc", "n": 3}}
        )
    (line,) = shown.json()
    assert (line["event"], line["why"], line["n"]) == ("JobFailureEvent", "token=***", 3)
    assert "Traceback" in line["exception"]
    assert "hunter2" not in line["exception"]


@in_text
def test_text_has_job_and_epoch_before_the_message(shown: Lines) -> None:
    context = at("orders", 1, 41)
    with context.entered():
        log.info("checkpoint 3 complete")
    context.leave()
    log.info("no job")
    assert shown.text()[0].endswith("INFO [orders 1.41] checkpoint 3 complete")
    assert shown.text()[1].endswith("INFO no job")
