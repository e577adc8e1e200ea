"""`tidegate top`: the report of a job as text."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from tidegate.control.cli import main
from tidegate.control.cli.top import ReportWatch
from tidegate.control.cli.top_view import bars, duration, frame, has_ended, share_bar
from tidegate.control.rest.client import Client, Unreachable

NOW = 1_800_000_000_000
EPOCHS = [
    {"epoch": f"3.{n}", "duration_ms": 800, "rows_in": 100 * n, "phases": {"plan": 40, "run": 760}}
    for n in range(1, 11)
]
REPORT: dict[str, Any] = {
    "job": "orders",
    "status": "RUNNING",
    "now_ms": NOW,
    "started_ms": NOW - 7_500_000,
    "restarts": 2,
    "epochs": EPOCHS,
    "watermark_ms": NOW - 12_000,
    "held_by": None,
    "sources": [{"source": "lines", "event_time_lag_ms": 1_500, "pending_rows": 12_345}],
    "checkpoint_config": {"interval": 10_000},
    "checkpoints": {
        "counts": {"completed": 7, "failed": 1, "in_progress": 1},
        "latest": {
            "completed": {
                "id": 7,
                "trigger_timestamp": NOW - 5_000,
                "end_to_end_duration": 1_000,
                "checkpointed_size": 2_048,
                "state_size": 5 << 20,
            },
            "failed": {"id": 6, "failure_message": "bucket is full"},
        },
    },
    "sinks": [
        {
            "sink": "db",
            "guarantee": "EXACTLY_ONCE",
            "published_epoch": "3.8",
            "waiting_epochs": 2,
            "waiting_bytes": 4_096,
            "oldest_waiting_ms": NOW - 61_000,
            "error": "connection refused\nmore",
        }
    ],
    "tasks": [
        {
            "task": "L1-S0",
            "host": "h1",
            "busy": 0.25,
            "idle": 0.75,
            "held": 0.0,
            "rows_in": 10,
            "resident_bytes": 1 << 20,
        },
        {
            "task": "L1-S1",
            "host": "h2",
            "busy": 0.9,
            "idle": 0.0,
            "held": 0.1,
            "rows_in": 5_000,
            "state_bytes": 3 << 30,
        },
    ],
    "failures": [{"at_ms": NOW, "kind": "user-code", "message": "division by zero\nrow 7", "restarted": True}],
}


def shown(report: dict[str, Any], **more: Any) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(frame(report, **more))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_frame_shows_what_someone_on_call_needs() -> None:
    text = shown(REPORT)
    for part in (
        "orders  RUNNING  up 2 h 5 min  restarts 2",
        "3.10: 1,000 rows in 800 ms, 1,250 rows/s",
        "12.0 s behind",
        "7 completed, 1 failed, 1 in progress, every 10 s",
        "last: 7, 4.0 s ago, took 1.0 s, 2.0 KiB of 5.0 MiB",
        "12,345",
        "1.5 s",
        "connection refused",
        "1 min 1 s",
        "division by zero",
    ):
        assert part in text, part


def test_a_job_that_was_stopped_is_not_called_canceled() -> None:
    stopped = {**REPORT, "status": "CANCELED", "end_text": "Stopped"}
    assert "orders  Stopped  up" in shown(stopped)
    assert "CANCELED" not in shown(stopped)
    assert has_ended(stopped)


def test_a_host_is_shown_by_its_name() -> None:
    task = {**REPORT["tasks"][0], "host": "6f1c@boot", "host_name": "worker-1"}
    text = shown({**REPORT, "tasks": [task]})
    assert "worker-1" in text
    assert "6f1c@boot" not in text


def test_a_frame_shows_the_verdicts_of_the_server_with_their_ages() -> None:
    answers = [
        {"question": "Healthy?", "tone": "ok", "answer": "Healthy", "detail": "started", "at_ms": NOW - 3_600_000},
        {"question": "Keeping up?", "tone": "bad", "answer": "Held by db", "detail": "0 rows/s"},
        {
            "question": "Last checkpoint",
            "tone": "ok",
            "answer": "",
            "answer_at_ms": NOW - 4_000,
            "detail": "#7 took 1 s",
        },
    ]
    lines = [line.strip() for line in shown({**REPORT, "answers": answers}).splitlines()]
    assert "Healthy?        ● Healthy  started 1 h 0 min ago" in lines
    assert "Keeping up?     ■ Held by db  0 rows/s" in lines
    assert "Last checkpoint ● 4.0 s ago  #7 took 1 s" in lines


def test_the_last_epoch_has_an_age() -> None:
    epochs = [{**EPOCHS[-1], "ended_ms": NOW - 184_000}]
    assert "1,250 rows/s, ended 3 min 4 s ago" in shown({**REPORT, "epochs": epochs})


@pytest.mark.feature("K4")
def test_states_are_shown_with_their_estimated_sizes_the_largest_first() -> None:
    states = [
        {"operator": "count", "state": "seen", "bytes": 3 << 20},
        {"operator": "count", "state": "total", "bytes": 1 << 20},
    ]
    lines = [line.split() for line in shown({**REPORT, "states": states}).splitlines() if "count" in line]
    assert lines == [
        ["count", "seen", "≈", "3.0", "MiB", "75%"],
        ["count", "total", "≈", "1.0", "MiB", "25%"],
    ]
    assert "sizes are estimates" in shown({**REPORT, "states": states})
    assert "sizes are estimates" not in shown(REPORT), "unknown until a task has looked"
    many = [{"operator": "count", "state": f"s{n}", "bytes": 1} for n in range(25)]
    assert "and 5 more" in shown({**REPORT, "states": many})


def test_parts_of_functions_show_whether_a_few_rows_are_slow() -> None:
    span = {"operator": "rate", "span": "score", "uses": 4_000, "total_ms": 1_600.0, "longest_ms": 812.5}
    spans = [{**span, "longest_key": "user-vip"}]
    (line,) = (line.split() for line in shown({**REPORT, "spans": spans}).splitlines() if "score" in line)
    assert line == ["rate", "score", "4,000", "1.6", "s", "400", "µs", "812", "ms", "user-vip"]
    assert "ctx.span" not in shown(REPORT)


def test_the_busiest_task_comes_first_and_the_rest_is_counted() -> None:
    text = shown(REPORT, most_tasks=1)
    assert "L1-S1" in text
    assert "L1-S0" not in text
    assert "and 1 more" in text


def test_a_failed_checkpoint_is_shown_until_a_later_one_completes() -> None:
    assert "bucket is full" not in shown(REPORT)
    latest = {"failed": {"id": 8, "failure_message": "bucket is full"}}
    assert "8 FAILED: bucket is full" in shown({**REPORT, "checkpoints": {"counts": {}, "latest": latest}})


def test_a_report_without_values_is_shown_too() -> None:
    text = shown({"job": "new", "status": "RUNNING"})
    assert "no epoch yet" in text
    assert "not enabled" in text


def test_an_old_report_says_why_there_is_no_newer_one() -> None:
    assert "No answer for 5 s" in shown(REPORT, problem="No answer for 5 s")


def test_text_from_outside_cannot_write_to_the_terminal() -> None:
    text = shown({**REPORT, "job": "\x1b[2Jorders", "failures": []})
    assert "\x1b" not in text
    assert "[2Jorders" in text


def test_bars_are_as_high_as_their_share() -> None:
    assert str(bars([0, 1, 4, 8])) == " ▁▄█"
    assert str(bars([])) == ""


def test_the_bar_of_a_task_divides_its_time() -> None:
    assert str(share_bar({"busy": 0.5, "idle": 0.25, "held": 0.25})) == "█" * 12 + "▒" * 6 + "·" * 6


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (7, "7 ms"),
        (1_240, "1.2 s"),
        (184_000, "3 min 4 s"),
        (7_500_000, "2 h 5 min"),
        (273_600_000, "3 d 4 h"),
        (-5, "-5 ms"),
    ],
)
def test_durations_read_well(ms: int, text: str) -> None:
    assert duration(ms) == text


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/jobs/orders/report"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(REPORT if found else {"errors": ["Job not found."]}).encode())

        def log_message(self, *args: object) -> None: ...

    serving = HTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=serving.serve_forever, daemon=True).start()
    yield serving
    serving.shutdown()
    serving.server_close()


def address(server: HTTPServer) -> str:
    return f"127.0.0.1:{server.server_port}"


def test_without_a_terminal_it_prints_one_frame(server: HTTPServer) -> None:
    done = CliRunner().invoke(main, ["top", "orders", "-m", address(server)])
    assert done.exit_code == 0
    assert "orders  RUNNING" in done.output


def test_json_output_is_the_report(server: HTTPServer) -> None:
    done = CliRunner().invoke(main, ["top", "orders", "-o", "json", "-m", address(server)])
    assert json.loads(done.output) == REPORT


def test_an_unknown_job_is_an_error(server: HTTPServer) -> None:
    done = CliRunner().invoke(main, ["top", "nobody", "-m", address(server)])
    assert done.exit_code == 3
    assert "Job not found." in done.output


def test_a_job_that_no_longer_answers_keeps_its_last_report(server: HTTPServer) -> None:
    watch = ReportWatch(Client(address(server)), "orders")
    assert watch.look() is None
    server.shutdown()
    server.server_close()
    problem = watch.look()
    assert problem is not None
    assert "this is the last one" in problem
    assert watch.report == REPORT


def test_a_job_that_never_answered_is_an_error() -> None:
    with pytest.raises(Unreachable):
        ReportWatch(Client("127.0.0.1:1"), "orders").look()


def test_on_a_terminal_it_stays_until_q_is_pressed(server: HTTPServer) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    command = [
        sys.executable,
        "-c",
        "from tidegate.control.cli import main; main()",
        "top",
        "orders",
        "-m",
        address(server),
    ]
    top = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    try:
        seen = b""
        while b"L1-S1" not in seen:
            seen += os.read(ours, 65_536)
        assert top.poll() is None
        os.write(ours, b"q")
        with contextlib.suppress(OSError):  # The terminal is closed with its program.
            while os.read(ours, 65_536):
                pass
        assert top.wait(60) == 0
    finally:
        top.kill()
        os.close(ours)
