"""Whether a process of this machine still lives."""

from __future__ import annotations

import subprocess
import sys

from tidegate.core.processes import has_died, this_process

TELL = "from tidegate.core.processes import this_process; print(this_process(), flush=True); input()"


def test_a_process_lives_until_it_is_killed_and_waited_for_or_not():
    other = subprocess.Popen([sys.executable, "-c", TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    name = other.stdout.readline().strip()
    assert name
    assert name != this_process()
    assert not has_died(name)
    other.kill()
    other.stdout.read()
    while not has_died(name):
        pass  # A moment until the kernel has taken it away; nobody has waited for it yet.
    other.wait()
    assert has_died(name)


def test_another_process_under_the_same_number_is_another():
    machine, pid, begun = this_process().rsplit("/", 2)
    assert not has_died(this_process())
    assert has_died(f"{machine}/{pid}/{int(begun) + 1}")


def test_a_process_of_another_machine_is_not_known_to_have_died():
    _, pid, begun = this_process().rsplit("/", 2)
    assert not has_died(f"another-boot/pid:[1]/{pid}/{begun}")
    assert not has_died("")
    assert not has_died("nonsense")
