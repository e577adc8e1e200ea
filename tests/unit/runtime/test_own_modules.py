"""Which modules travel with the functions of a job."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

import tidegate
from tidegate.runtime.own_modules import own_modules


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


def test_modules_and_packages_beside_the_program_travel_and_no_others(beside):
    jobs, modules = beside
    assert own_modules(modules, [str(jobs)], []) == ["rules", "shop"]


def test_what_workers_can_import_stays(beside):
    jobs, modules = beside
    assert own_modules(modules, [str(jobs)], ["", str(jobs)]) == []


def test_what_is_installed_stays_wherever_the_program_lies(beside):
    _, modules = beside
    places = [str(path) for path in sys.path]
    assert own_modules({name: modules[name] for name in ("json", "pytest", "tidegate")}, places, []) == []
