"""What a user does with the savepoints of a running job, and a death in the middle of each: `chaos run --savepoints`.

A move is made with the commands a user has: `tidegate run -s`, and a job's REST for savepoints and stops. Somebody dies at
a step of it; the job is brought back as a supervisor would do it, with a plain `tidegate run`; and at the end every row that
was ever fed must have come out once, however many savepoints its history went through. Formats of savepoints and
parallelisms change from move to move.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import tidegate as tg
from chaos.matrix import Victim
from chaos.served import TIDEGATE, Served
from chaos.torment import RECOVERY_S, Hang, say
from tidegate.control.rest.client import OperationFailed, Refused, Unreachable


class Move(StrEnum):
    SAVEPOINT = "savepoint"
    STOP = "stop with savepoint"
    CLAIM = "start from a savepoint, CLAIM"
    NO_CLAIM = "start from a savepoint, NO_CLAIM"


@dataclass(frozen=True, slots=True)
class MoveCell:
    move: Move
    point: str
    victim: Victim

    def __str__(self) -> str:
        return f"{self.move} / {self.point} / {self.victim}"


_WRITING = ("tables.1-linked", "tables.2-written")
_IN_TASKS = {
    Move.SAVEPOINT: _WRITING,
    Move.STOP: _WRITING,
    Move.CLAIM: ("restore.1-begun", "restore.2-fetched", "upload.1-begun"),
    Move.NO_CLAIM: ("restore.1-begun", "restore.2-fetched", "upload.1-begun", "upload.2-noted"),
}
_IN_DRIVER = {
    Move.SAVEPOINT: ("savepoint.1-metadata",),
    Move.STOP: ("savepoint.1-metadata", "stop.1-entry"),
    Move.CLAIM: (
        "takeover.1-marked", "claim.3-won", "recover.2-learnt", "publish.1-metadata", "publish.2-entry", "dispose.1-read",
        "dispose.2-files", "dispose.3-metadata",
    ),
    Move.NO_CLAIM: ("claim.3-won", "recover.2-learnt", "publish.1-metadata", "publish.2-entry"),
}  # fmt: skip


def move_cells() -> Iterator[MoveCell]:
    """The driver's steps die with the driver, a task's with its worker or executor."""
    for move in Move:
        for point in _IN_TASKS[move]:
            yield from (MoveCell(move, point, victim) for victim in (Victim.PYTHON_WORKER, Victim.EXECUTOR))
        yield from (MoveCell(move, point, Victim.DRIVER) for point in _IN_DRIVER[move])


class Moves(Served):
    """A job that is started, stopped and moved by a user whose machines die."""

    def __init__(self, cluster: Any, orders: Any, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(cluster, orders, folder, options)
        self._chance = random.Random(options.seed)
        self._ours: set[Path] = set()
        """Savepoints that are the user's and must stay."""
        self._given: set[Path] = set()
        """Savepoints that were given to the job."""

    # -- one move and one death ---------------------------------------------------------------------------------------

    def strike(self, cell: MoveCell) -> bool:  # type: ignore[override]
        self._await_checkpoint(self._slots(), RECOVERY_S)
        self._hold.set()
        try:
            begun = time.monotonic()
            if cell.move in (Move.SAVEPOINT, Move.STOP):
                order = self.orders.give(cell.point, _death(cell))
                reached = self._take(cell, order)
            else:
                path = self._stopped_with_savepoint()
                order = self.orders.give(cell.point, _death(cell))
                self._launch_from(path, cell.move)
                reached = self.arrived(order)
            before = self._slots()
            if not self.is_up():
                assert self.driver is not None
                # One that could not start, or ended by itself, would need somebody to look after it.
                self.gave_up += self.driver.returncode > 0
                self.driver = self.launch()
        finally:
            self._hold.clear()
            self.orders.clear()
        if not reached:
            say(f"  {cell}: not reached")
            return False
        self._await_checkpoint(before, RECOVERY_S)
        took = time.monotonic() - begun
        self._check_savepoints()
        self.hits[str(cell)] += 1
        self.kills[f"{cell.victim} SIGKILL"] += 1
        self.recovery_s[str(cell.move)].append(round(took, 2))
        say(f"  {cell}: move, death and recovery took {took:.1f} s")
        return True

    def _take(self, cell: MoveCell, order: str) -> bool:
        """Ask for a savepoint, with or without the end of the job, and wait until somebody died and the question is settled:
        it was answered, or nobody is left to answer."""
        client, job = self.client()
        # The tables of a canonical savepoint are what tasks write step by step.
        body = {"formatType": "CANONICAL" if cell.point in _WRITING else self._chance.choice(("CANONICAL", "NATIVE"))}
        verb = "stop" if cell.move is Move.STOP else "savepoints"
        asked = client.ask("POST", f"/jobs/{job}/{verb}", body)["request-id"]
        reached = self.arrived(order)
        with suppress(OperationFailed, Refused, Unreachable):
            done = client.await_operation(f"/jobs/{job}/savepoints/{asked}", "failure-cause")
            self._ours.add(_place(done["location"]))
            if cell.move is Move.STOP:
                self.await_gone()
                self.start = ["-s", done["location"]]
        if self.driver is not None and cell.victim is Victim.DRIVER and reached:
            self.await_gone()
        return reached

    def _stopped_with_savepoint(self) -> str:
        client, job = self.client()
        body = {"formatType": self._chance.choice(("CANONICAL", "NATIVE"))}
        asked = client.ask("POST", f"/jobs/{job}/stop", body)["request-id"]
        done = client.await_operation(f"/jobs/{job}/savepoints/{asked}", "failure-cause")
        self.await_gone()
        self._ours.add(_place(done["location"]))
        return str(done["location"])

    def _launch_from(self, path: str, move: Move) -> None:
        mode = "claim" if move is Move.CLAIM else "no_claim"
        if move is Move.CLAIM:
            self._ours.discard(_place(path))
            self._given.add(_place(path))
        self.start = ["-s", path, "-cm", mode, "-p", str(self._chance.choice((2, 3, 4)))]
        self.driver = self.launch()

    # -- what can be seen ----------------------------------------------------------------------------------------------

    def _check_savepoints(self) -> None:
        """Whatever is complete is whole, and of one moment: every row that the first level numbered, the second added.

        A half-written one has no `_metadata`. The user's stay; those that were given away go by themselves.
        """
        for place in self._ours:
            if not (place / "_metadata").exists():
                raise Hang(f"the savepoint {place.name} was the user's, and is gone")
        for place in {found.parent for found in (self.folder / "savepoints").glob("*/_metadata")} - self._given:
            command = [sys.executable, *TIDEGATE, "checkpoints", "verify", str(place)]
            told = subprocess.run(command, capture_output=True, text=True, timeout=120)
            if told.returncode:
                raise Hang(f"the savepoint {place.name} is not sound: {told.stdout}{told.stderr}")
            saved = tg.Savepoint.open(str(place))
            numbered, added = (
                sum(saved.state(uid, name).to_arrow()["value"].to_pylist())
                for uid, name in (("number", "n"), ("add", "m"))
            )
            if numbered != added:
                raise Hang(f"the savepoint {place.name} has {numbered} rows at one level and {added} at the next")


def _place(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def _death(cell: MoveCell) -> str:
    return "kill-executor" if cell.victim is Victim.EXECUTOR else "kill"
