"""What is sent to tasks: functions and types of the main script travel whole."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import pytest
from pyspark import cloudpickle

import tidegate as tg
from tidegate.core.types import codec_of
from tidegate.graph import state_ids
from tidegate.graph.levels import plan
from tidegate.runtime.program import pickled, programs


def test_types_of_state_that_were_used_already_can_be_sent():
    class Colour(Enum):
        RED = "red"

    class Point(NamedTuple):
        x: int

    # Not in a module, as in a script: pickled by value. Their fields are named by objects, since names could not be found.
    Rule = dataclass(type("Rule", (), {"__annotations__": {"limit": float, "colour": Colour, "at": Point}}))

    class Count(tg.KeyedProcessFunction):
        rule = tg.ValueState(Rule)

        def process_element(self, row, ctx):
            self.rule.update(Rule(1.0, Colour.RED, Point(2)))

    codec_of(Rule).encode(Rule(1.0, Colour.RED, Point(1)))
    job = tg.Job("x", parallelism=1)
    job.source("s", tg.testing.frame("k string")).key_by("k").process("p", Count(), schema="k string")
    graph = job.graph()
    program = programs(graph, plan(graph), state_ids.assign({}, [("p", "rule")]))[1]
    with pytest.raises(TypeError, match="cannot pickle"):
        cloudpickle.dumps(program)
    (process,) = pickle.loads(pickled(program)).nodes
    sent = process.states[0].value
    assert codec_of(sent).decode(codec_of(Rule).encode(Rule(3.0, Colour.RED, Point(1)))).limit == 3.0
