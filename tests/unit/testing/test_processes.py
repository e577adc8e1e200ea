"""Process trees: everybody below is found and ended, and nobody else."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tidegate.testing.processes import Leash, alive, children, command_line, descendants, kill_tree, send, wait_gone


@pytest.fixture
def family():
    """A parent, its child and its grandchild."""
    parent = subprocess.Popen(["sh", "-c", "sh -c 'sleep 60; :' & wait"])
    while len(descendants(parent.pid)) < 2:
        time.sleep(0.005)
    yield parent
    if parent.poll() is None:
        kill_tree(parent.pid)
        parent.wait()


def test_descendants_are_found_through_every_generation(family):
    (child,) = children(family.pid)

    assert descendants(family.pid) == [child, *children(child)]
    assert command_line(descendants(family.pid)[-1]) == ["sleep", "60"]


def test_a_killed_process_tree_leaves_no_process(family):
    everybody = [family.pid, *descendants(family.pid)]

    assert kill_tree(family.pid) == sorted(everybody)
    assert not any(alive(pid) for pid in everybody)


def test_a_stopped_tree_can_be_killed(family):
    below = descendants(family.pid)
    send(below, signal.SIGSTOP)

    kill_tree(family.pid)

    assert not any(alive(pid) for pid in below)


def test_waiting_for_a_living_process_names_it(family):
    with pytest.raises(TimeoutError, match=str(family.pid)):
        wait_gone([family.pid], timeout_s=0.02)


@pytest.mark.large
def test_the_leash_ends_what_it_holds_and_spares_what_it_released(family):
    spared = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    leash = Leash()
    leash.hold(family.pid)
    leash.hold(spared.pid)
    leash.release(spared.pid)

    leash.close()

    assert family.wait(timeout=60) == -signal.SIGKILL
    assert alive(spared.pid)
    spared.communicate(b"\n")
