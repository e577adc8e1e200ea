"""Rescales of a running job, and a death in the middle of each: `chaos run --in-place`.

The job is asked for another parallelism over REST, as `tidegate rescale` does it. Somebody dies at a step of the rescale: the
driver, or a worker, an executor or a whole host while the driver is at that step. The job is brought back as a supervisor would
do it, with its program's parallelism; one whose driver lived must have the parallelism that its history tells.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.matrix import How, Victim
from chaos.served import WELL_S, Served
from chaos.torment import PAUSE_S, RECOVERY_S, Hang, say
from tidegate.control.rest.client import Client, OperationFailed, Refused, Unreachable

PARALLELISMS = (2, 3, 4, 6)
_HELD_S = 3.0
"""How long the driver waits at a step while somebody else dies."""
_DRIVER = (
    "rescale.1-asked", "publish.1-metadata", "publish.2-entry", "rescale.2-saved", "rescale.3-ended", "claim-again.1-read",
    "claim-again.2-won", "rescale.4-claimed", "rescale.5-restored", "release.2-committed",
)  # fmt: skip
_TASKS = (
    "upload.1-begun",
    "upload.2-noted",
    "restore.1-begun",
    "restore.2-fetched",
    "restore.3-noted",
    "seal.3-published",
)


@dataclass(frozen=True, slots=True)
class RescaleCell:
    point: str
    in_task: bool
    victim: Victim
    how: How = How.KILL

    @property
    def is_of_rescales(self) -> bool:
        """Whether nothing but a rescale gets there."""
        return self.point.startswith(("rescale.", "claim-again.", "restore."))

    @property
    def is_held(self) -> bool:
        """Whether who gets there waits until somebody else, or its whole host, has been killed."""
        return self.victim is Victim.HOST or (self.victim is Victim.EXECUTOR and not self.in_task)

    def __str__(self) -> str:
        return f"rescale / {self.point} / {self.victim} / {self.how}"


def rescale_cells() -> Iterator[RescaleCell]:
    """At each step of the driver it dies, is paused until another has taken the job, or loses a host or an executor. At each
    step of a task its worker, executor or host dies, or it is paused."""
    for point in _DRIVER:
        yield RescaleCell(point, False, Victim.DRIVER)
        yield RescaleCell(point, False, Victim.DRIVER, How.PAUSE)
        yield from (RescaleCell(point, False, victim) for victim in (Victim.EXECUTOR, Victim.HOST))
    for point in _TASKS:
        yield from (RescaleCell(point, True, victim) for victim in (Victim.PYTHON_WORKER, Victim.EXECUTOR, Victim.HOST))
        yield RescaleCell(point, True, Victim.PYTHON_WORKER, How.PAUSE)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A rescale that was asked for."""

    client: Client
    job: str
    before: set[str]
    """The rescales that were known before."""
    old: int
    new: int


class InPlace(Served):
    """A job that is rescaled while somebody dies."""

    def __init__(self, cluster: Any, orders: Any, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(cluster, orders, folder, options)
        self._chance = random.Random(options.seed)

    def strike(self, cell: RescaleCell) -> bool:  # type: ignore[override]
        self._await_checkpoint(self._slots(), RECOVERY_S)
        self.orders.clear()
        client, job = self.client()
        order = self._give(cell) if cell.is_of_rescales else None
        asked = self._asked(client, job)
        order = order or self._give(cell)
        if not self.arrived(order):
            self.orders.clear()
            say(f"  {cell}: not reached")
            return False
        self._struck(asked, str(cell), cell.victim, cell.how, lambda: self._carry(cell, self.orders.obeyed(order)[0]))
        self.orders.clear()
        return True

    def at_random(self) -> None:
        """A death at no particular moment of a rescale."""
        self._await_checkpoint(self._slots(), RECOVERY_S)
        client, job = self.client()
        asked = self._asked(client, job)
        time.sleep(self._chance.uniform(0, 6))
        victim, worker = self._chance.choice(list(Victim)), self._worker()
        name = f"rescale / at random / {victim}"
        self._struck(asked, name, victim, How.KILL, lambda: self._kill(victim, worker))

    def _struck(self, asked: _Asked, name: str, victim: Victim, how: How, strike: Callable[[], None]) -> None:
        """Let the fault happen, wait until the job is well again, and note what became of the rescale."""
        begun, entries, driver = time.monotonic(), self._slots(), self.driver
        strike()
        self._await_checkpoint(entries, RECOVERY_S)
        survived = self.driver is driver and victim is not Victim.DRIVER
        told = self._outcome(asked) if survived else "forgotten with its driver"
        took, kind = time.monotonic() - begun, f"{victim} {how}"
        self.hits[name] += 1
        self.kills[kind] += 1
        self.outcomes[f"rescale {told}"] += 1
        self.recovery_s[kind].append(round(took, 2))
        say(f"  {name}: back after {took:.1f} s, rescale {told}")

    def _asked(self, client: Client, job: str) -> _Asked:
        old, before = _parallelism(client, job), _known(client, job)
        return _Asked(client, job, before, old, self._ask(client, job, old))

    def _ask(self, client: Client, job: str, old: int) -> int:
        """Ask for another parallelism. The driver may die before it has answered."""
        new = self._chance.choice([each for each in PARALLELISMS if each != old])
        path = f"/jobs/{job}/resource-requirements"
        bounds = {"parallelism": {"lowerBound": 1, "upperBound": new}}
        latest = time.monotonic() + WELL_S
        while time.monotonic() < latest:
            with suppress(Refused):  # The job may be on its way back from the last fault.
                vertices = client.ask("GET", path)
                with suppress(Unreachable):
                    client.ask("PUT", path, dict.fromkeys(vertices, bounds))
                return new
            time.sleep(0.2)
        raise Hang(f"the job cannot be asked for a rescale within {WELL_S:g} s")

    def _give(self, cell: RescaleCell) -> str:
        if cell.how is How.PAUSE:
            return self.orders.give(cell.point, "stop")
        if cell.is_held:
            # Held until somebody else has been killed.
            return self.orders.give(cell.point, "sleep", seconds=20 if cell.in_task else _HELD_S)
        return self.orders.give(cell.point, "kill-executor" if cell.victim is Victim.EXECUTOR else "kill")

    def _carry(self, cell: RescaleCell, pid: int) -> None:
        if cell.how is How.PAUSE and cell.victim is Victim.DRIVER:
            self._rival(pid)
        elif cell.how is How.PAUSE:
            time.sleep(PAUSE_S)
            self._wake(pid)
        elif cell.is_held:
            host = self._host_of(pid) if cell.in_task else self._worker()
            if host is not None:
                self._kill(cell.victim, host)

    def _worker(self) -> int:
        return self._chance.randrange(len(self.cluster.workers))

    def _outcome(self, asked: _Asked) -> str:
        """How the rescale ended, of a job whose driver lived. It must have the parallelism that follows."""
        client, old, new = asked.client, asked.old, asked.new
        try:
            client.await_rescale(f"/jobs/{asked.job}/rescales", asked.before)
        except OperationFailed:
            told, expected = "failed", old
        except Unreachable:
            return "forgotten with its driver"
        else:
            told, expected = "completed", new
        found = _parallelism(client, asked.job)
        if found != expected:
            raise Hang(f"a rescale from {old} to {new} has {told}, and the job has parallelism {found}")
        return told


def _known(client: Client, job: str) -> set[str]:
    return {each["rescaleUuid"] for each in client.ask("GET", f"/jobs/{job}/rescales/history")}


def _parallelism(client: Client, job: str) -> int:
    found = client.ask("GET", f"/jobs/{job}/resource-requirements")
    return int(next(iter(found.values()))["parallelism"]["upperBound"])
