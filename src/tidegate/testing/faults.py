"""Faults by order: files in a directory say what is to happen, where, and how often, in whatever process gets there first.

    TIDEGATE_FAULTS        the path of this file; set for drivers and executors before they start
    TIDEGATE_FAULT_ORDERS  the directory, which all of them share

    orders = FaultOrders(directory)
    orders.give("task.4-sealed", "kill", level=2, times=1)

Processes look the directory up at each point they reach, so orders can be given while a job runs. Each order is obeyed as
often as it says, over all processes together: to obey is to take one of its tokens, and a file is removed only once.
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

VARIABLE = "TIDEGATE_FAULT_ORDERS"


class FaultOrders:
    """A directory of orders."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def give(self, point: str, action: str, *, times: int = 1, seconds: float = 0.0, **match: Any) -> str:
        """Order `action` at `point`, where the context's attributes equal `match` (`level`, `slot`). Returns the order's name."""
        name = uuid.uuid4().hex
        for number in range(times):
            (self.directory / f"{name}.{number}.token").touch()
        order = {"point": point, "action": action, "seconds": seconds, "match": match, "name": name}
        draft = self.directory / f"{name}.draft"
        draft.write_text(json.dumps(order))
        draft.rename(self.directory / f"{name}.order")
        return name

    def obeyed(self, name: str) -> int:
        """How often an order was carried out."""
        return len(list(self.directory.glob(f"{name}.*.done")))

    def clear(self) -> None:
        for path in self.directory.iterdir():
            path.unlink(missing_ok=True)


def reached(point: str, **context: Any) -> None:
    """Called at every fault point."""
    directory = os.environ.get(VARIABLE)
    if directory is None:
        return
    for path in Path(directory).glob("*.order"):
        try:
            order = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if order["point"] == point and _matches(order["match"], context) and _take(Path(directory), order["name"]):
            _ACTIONS[order["action"]](order, context)


def _matches(match: dict[str, Any], context: dict[str, Any]) -> bool:
    task = context.get("task")
    found = {"level": task.program.level, "slot": int(task.slot), "partition": task.partition} if task is not None else {}
    found |= {key: value for key, value in context.items() if key != "task"}
    return all(str(found.get(key)) == str(value) for key, value in match.items())


def _take(directory: Path, name: str) -> bool:
    for token in directory.glob(f"{name}.*.token"):
        try:
            token.rename(token.with_suffix(".done"))
        except FileNotFoundError:
            continue
        return True
    return False


def _kill(order: dict[str, Any], context: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(order: dict[str, Any], context: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _raise(order: dict[str, Any], context: dict[str, Any]) -> None:
    raise RuntimeError(f"ordered at {order['point']}")


def _sleep(order: dict[str, Any], context: dict[str, Any]) -> None:
    time.sleep(order["seconds"])


def _miscount(order: dict[str, Any], context: dict[str, Any]) -> None:
    """Announce one row more than was sent."""
    context["task"].writer.rows_per_slot[0] += 1


def _drop_barrier(order: dict[str, Any], context: dict[str, Any]) -> None:
    """Send no barrier to slot 0."""
    writer = context["task"].writer
    send = writer.send_barriers

    def send_fewer(barrier: Any) -> None:
        send(barrier)
        writer._ready[-1] = writer._ready[-1].slice(1)

    writer.send_barriers = send_fewer


_ACTIONS = {"kill": _kill, "stop": _stop, "raise": _raise, "sleep": _sleep, "miscount": _miscount, "drop-barrier": _drop_barrier}
