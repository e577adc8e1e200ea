"""Attempts on a failing disk, each in a process of its own, forked from one that has opened nothing.

For every failure point: one child runs the attempt with the disk made to fail at that point, another child, born
afterwards, reads what is there.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.contract.state.versions import KEY_GROUPS, build, contents, v
from tidegate.core import faults
from tidegate.core.errors import StateError
from tidegate.state.backends import backend_named
from tidegate.state.port import VersionMissing

BASE = {b"%05d" % n: b"base %d" % n for n in range(3000)}
CHANGES = {b"%05d" % n: b"changed %d" % n * 5 for n in range(1000, 4000)}


def in_child(function: Callable[[], Any]) -> Any:
    """What `function` returns in a forked child; "killed" when the child was."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            body = pickle.dumps(function())
        except BaseException:
            body = pickle.dumps(traceback.format_exc())
        os.write(writer, body)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        body = answers.read()
    _, status = os.waitpid(pid, 0)
    return "killed" if os.WIFSIGNALED(status) else pickle.loads(body)


def prepare(name: str, task: Path) -> Any:
    """Versions 1 and 2; 2 holds BASE."""

    def versions() -> None:
        backend = backend_named(name)
        build(backend, task, None, v(1), {b"old": b"old"})
        build(backend, task, v(1), v(2), BASE, deletes=[b"old"])

    return in_child(versions)


def attempt(name: str, task: Path, number: int) -> str:
    """Version 3 by attempt `number`: "sealed", or the code of the error that ended it."""
    store = backend_named(name).begin(task, v(2), v(3, number), KEY_GROUPS)
    try:
        store.get(b"00000")
        store.write(CHANGES.items(), deletes=[b"00000"])
        store.seal()
        return "sealed"
    except StateError as error:
        store.abandon()
        return error.code


def look(name: str, task: Path, number: int) -> str:
    """What version 2 and the version of attempt `number` are found to be. Anything but whole or absent is an error."""
    backend = backend_named(name)
    assert contents(backend, task, v(2)) == BASE, "version 2 is not what it was"
    try:
        found = contents(backend, task, v(3, number))
    except VersionMissing:
        return "absent"
    expected = {**BASE, **CHANGES}
    del expected[b"00000"]
    assert found == expected, "version 3 is there and not whole"
    return "whole"


def _with_file_limit(size: int, function: Callable[[], Any]) -> Any:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        return function()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def limited_file_sizes(name: str, task: Path, sizes: list[int]) -> list[tuple[int, str, str]]:
    """No file may grow beyond `size`: (size, outcome of the attempt, what is found afterwards) for each."""
    prepare(name, task)
    return [
        (
            size,
            in_child(lambda size=size: _with_file_limit(size, lambda: attempt(name, task, size))),
            in_child(lambda size=size: look(name, task, size)),
        )
        for size in sizes
    ]


def full_disk(name: str, task: Path, free_sizes: list[int]) -> list[tuple[int, str, str]]:
    """The file system of `task` has `free` bytes left, made so by a filler file."""
    prepare(name, task)
    filler = task.parent / "filler"
    outcomes = []
    for free in free_sizes:
        stat = os.statvfs(task)
        size = max(stat.f_bavail * stat.f_frsize - free, 0)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        outcome = in_child(lambda free=free: attempt(name, task, free))
        filler.unlink()
        outcomes.append((free, outcome, in_child(lambda free=free: look(name, task, free))))
    return outcomes


def killed_at_points(name: str, task: Path) -> list[tuple[int, str, str]]:
    """The process dies at the n-th fault point, for every n until the attempt gets past all."""
    prepare(name, task)
    outcomes = []
    for point in range(1, 100):

        def attempt_and_die(point: int = point) -> str:
            left = [point]

            def reached(_: str, **__: object) -> None:
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

            faults.arm(reached)
            return attempt(name, task, point)

        outcome = in_child(attempt_and_die)
        outcomes.append((point, outcome, in_child(lambda point=point: look(name, task, point))))
        if outcome == "sealed":
            return outcomes
    raise AssertionError("more than 100 fault points?")
