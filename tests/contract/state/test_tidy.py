"""Tidying removes what the driver no longer needs, and never what it may still ask for."""

from __future__ import annotations

import os
import signal
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from tests.contract.state.versions import KEY_GROUPS, build, contents, in_fresh_process, v
from tidegate.core import faults
from tidegate.core.ids import Term
from tidegate.state.backends import backend_named
from tidegate.state.disk.version_directory import versions_of
from tidegate.state.port import StateBackend


@pytest.mark.feature("C25")
def test_keeps_what_is_named(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1"})
    for number in range(2, 6):
        build(backend, task, v(number - 1), v(number), {b"a": b"%d" % number})
    backend.tidy(task, Term(1), [v(2), v(5)])
    backend.tidy(task, Term(1), [v(2), v(5)])
    assert set(versions_of(task, Term(1))) == {v(2), v(5)}
    assert contents(backend, task, v(2)) == {b"a": b"2"}
    assert contents(backend, task, v(5)) == {b"a": b"5"}


@pytest.mark.feature("C25")
def test_leaves_newer_versions_that_the_list_cannot_know(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1"})
    build(backend, task, v(1), v(2, attempt=1), {b"a": b"loser"})
    build(backend, task, v(1), v(2, attempt=2), {b"a": b"2"})
    build(backend, task, v(2, attempt=2), v(3), {b"a": b"3"})
    backend.tidy(task, Term(1), [v(2, attempt=2)])
    assert set(versions_of(task, Term(1))) == {v(2, attempt=2), v(3)}


@pytest.mark.feature("C25")
def test_touches_no_other_term(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1, term=1), {b"a": b"1"})
    build(backend, task, v(1, term=1), v(1, term=2), {b"a": b"2"})
    backend.tidy(task, Term(2), [v(1, term=2)])
    assert contents(backend, task, v(1, term=1)) == {b"a": b"1"}
    backend.tidy(task, Term(1), [v(1, term=2)])
    assert list(versions_of(task, Term(1))) == []
    assert contents(backend, task, v(1, term=2)) == {b"a": b"2"}


@pytest.mark.feature("C25")
def test_an_empty_list_gives_the_term_up(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1"})
    backend.tidy(task, Term(1), [])
    assert not (task / "1").exists()
    backend.tidy(task, Term(1), [])


@pytest.mark.feature("C25")
def test_attempts_under_way_are_left_alone(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1"})
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    store.write([(b"b", b"2")])
    store.get(b"a")
    backend.tidy(task, Term(1), [v(1)])
    store.seal()
    assert contents(backend, task, v(2)) == {b"a": b"1", b"b": b"2"}


def _die_before_the_rename(name: str, task: Path) -> None:
    def reached(point: str, **_: object) -> None:
        if point.startswith("seal.2"):
            os.kill(os.getpid(), signal.SIGKILL)

    faults.arm(reached)
    store = backend_named(name).begin(task, v(1), v(2), KEY_GROUPS)
    store.write([(b"b", b"2")])
    store.seal()


@pytest.mark.feature("C25")
def test_orphans_of_dead_processes_are_removed(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1"})
    with pytest.raises(BrokenProcessPool):
        in_fresh_process(_die_before_the_rename, backend.name, task)
    assert len(list((task / "1").iterdir())) == 2, "a private directory was left behind"
    backend.tidy(task, Term(1), [v(1)])
    assert [path.name for path in (task / "1").iterdir()] == ["v1-1"]
    assert contents(backend, task, v(1)) == {b"a": b"1"}
