"""Functions on their way from the main script to a worker that knows nothing of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import tidegate as tg
from tidegate.runtime.epochs.pickling import _pickled


@dataclass
class Visit:
    at: datetime
    pages: list[Page]


class Page(NamedTuple):
    name: str
    size: int | None


class Visits(tg.KeyedProcessFunction):
    seen = tg.ListState(Visit)

    def process_element(self, row, ctx):
        yield row


sys.stdout.buffer.write(_pickled((Visits(), Visit(datetime(2026, 1, 2), [Page("home", None)]))))
"""
WORKER = """
import pickle, sys

from tidegate.core.types import codec_of

function, visit = pickle.load(sys.stdin.buffer)
codec = codec_of(type(function).seen.spec("seen").value)
assert codec.decode(codec.encode(visit)) == visit
print("the same")
"""


def test_types_of_state_that_the_script_names_by_text_are_known_in_the_worker(tmp_path: Path) -> None:
    """`from __future__ import annotations` leaves the types of fields as texts, which mean nothing without their module."""
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    sent = subprocess.run([sys.executable, str(script)], capture_output=True)
    assert sent.returncode == 0, sent.stderr.decode()
    worker = subprocess.run([sys.executable, "-c", WORKER], input=sent.stdout, capture_output=True)
    assert worker.stdout.decode() == "the same\n", worker.stderr.decode()
