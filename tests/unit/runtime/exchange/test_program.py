"""What is sent to tasks: functions and types of the main script travel whole, into a process that never saw the script."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import sys
import tidegate as tg
from tidegate.core.types import codec_of
from tidegate.graph import state_ids
from tidegate.graph.levels import plan
from tidegate.runtime.epochs.pickling import pickled
from tidegate.runtime.exchange.program import programs

class Colour(Enum):
    RED = "red"

class Point(NamedTuple):
    x: int

@dataclass
class Rule:
    limit: float
    colour: Colour
    at: Point
    times: int = 1

class Count(tg.KeyedProcessFunction):
    rule = tg.ValueState(Rule)
    points = tg.MapState(Colour, Point)

    def process_element(self, row, ctx):
        self.rule.update(Rule(1.0, Colour.RED, Point(2)))

codec_of(Rule).encode(Rule(1.0, Colour.RED, Point(1)))  # types that were used already, as in a driver's tests
job = tg.Job("x", parallelism=1)
job.source("s", tg.testing.frame("k string")).key_by("k").process("p", Count(), schema="k string")
graph = job.graph()
program = programs(graph, plan(graph), state_ids.assign({}, [("p", "rule"), ("p", "points")]))[1]
sys.stdout.buffer.write(pickled(program))
"""

TASK = """
import pickle, sys
from tidegate.core.types import codec_of, schema_of
(process,) = pickle.loads(sys.stdin.buffer.read()).nodes
Rule = process.states[0].value
print([field["name"] for field in schema_of(Rule)["fields"] if "default" in field])
print(codec_of(Rule).decode(b"\\x83\\xa5limit\\xcb\\x40\\x08\\0\\0\\0\\0\\0\\0\\xa6colour\\xa3red\\xa2at\\x91\\x02"))
"""


@pytest.mark.large
def test_state_types_of_the_main_script_can_be_sent_and_are_equal(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    sent = subprocess.run([sys.executable, str(script)], capture_output=True, check=True).stdout
    task = subprocess.run([sys.executable, "-c", TASK], input=sent, capture_output=True)
    assert task.returncode == 0, task.stderr.decode()
    defaults, rule = task.stdout.decode().splitlines()
    assert defaults == "['times']"
    assert rule == "Rule(limit=3.0, colour=<Colour.RED: 'red'>, at=Point(x=2), times=1)"
