"""Which modules travel with the functions of a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import ModuleType

import pytest

import tidegate
from tidegate.runtime.epochs.own_modules import own_modules


def module(name: str, file: object) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = str(file)
    return made


@pytest.fixture
def beside(tmp_path):
    """Modules as a script in `jobs/` would have imported them."""
    jobs = tmp_path / "jobs"
    return jobs, {
        "rules": module("rules", jobs / "rules.py"),
        "shop": module("shop", jobs / "shop" / "__init__.py"),
        "shop.prices": module("shop.prices", jobs / "shop" / "prices.py"),
        "elsewhere": module("elsewhere", tmp_path / "elsewhere.py"),
        "__main__": module("__main__", jobs / "orders.py"),
        "builtin": ModuleType("builtin"),
        "json": json,
        "pytest": pytest,
        "tidegate": tidegate,
    }


def test_only_modules_and_packages_next_to_the_program_are_shipped(beside):
    jobs, modules = beside
    assert own_modules(modules, [str(jobs)], []) == ["rules", "shop"]


def test_what_workers_can_import_stays(beside):
    jobs, modules = beside
    assert own_modules(modules, [str(jobs)], ["", str(jobs)]) == []


def test_installed_modules_are_not_shipped_wherever_the_program_is(beside):
    _, modules = beside
    places = [str(path) for path in sys.path]
    assert own_modules({name: modules[name] for name in ("json", "pytest", "tidegate")}, places, []) == []


RULES = """
import threading

from tidegate import KeyedProcessFunction

lock = threading.Lock()


class Locked(KeyedProcessFunction):
    def process_element(self, row, ctx):
        with lock:
            yield row


class Free(KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield row
"""
PROGRAM = """
import sys

import rules
import tidegate as tg
from tidegate.graph.levels import plan
from tidegate.runtime.epochs.own_modules import ship_own_modules
from tidegate.runtime.epochs.pickling import pickled
from tidegate.runtime.exchange.program import programs
from tidegate.testing.declared_frame import DeclaredFrame

job = tg.Job("orders")
keyed = job.source("in", DeclaredFrame("user string")).key_by("user")
made = keyed.process("p", getattr(rules, sys.argv[1])(), schema="user string")
made.sink("out", tg.CollectSink())
ship_own_modules()
graph = job.graph()
for program in programs(graph, plan(graph), {}):
    pickled(program)
"""


@pytest.mark.parametrize(("function", "travels"), [("Free", True), ("Locked", False)])
def test_a_module_with_something_that_cannot_travel_is_left_to_the_workers(tmp_path, function, travels):
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "orders.py").write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run(
        [sys.executable, str(tmp_path / "orders.py"), function], capture_output=True, text=True, env=environment
    )
    assert told.returncode == 0, told.stderr
    assert ("must be able to import them: rules" in told.stderr) is not travels
