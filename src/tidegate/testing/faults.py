"""Faults on demand: files in a directory define what happens, where, and how often, in whichever process gets there first.

    TIDEGATE_FAULTS        the path of this file; set for drivers and executors before they start
    TIDEGATE_FAULT_ORDERS  the directory, which all of them share

    orders = FaultOrders(directory)
    order = orders.give("task.4-sealed", "kill", level=2, times=1)
    orders.wait(order)

Processes read the directory at each point they reach, so orders can be given while a job runs. Each order is carried out as
often as it says, over all processes together: a process takes one of its tokens first, and a file can be renamed only once.

    kill          SIGKILL to the process        raise         an exception in the task
    stop          SIGSTOP to the process        sleep         for `seconds`
    kill-executor SIGKILL to the executor       lose-reply    storage did it, but its response is lost
    miscount      announce a row too many       drop-barrier  send none to slot 0
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
        """Order `action` at `point`, where the context's attributes equal `match` (`level`,
        `slot`). Return the name of the order.
        """
        if action not in _ACTIONS:
            raise ValueError(f"There is no fault {action!r}. Choose one of {', '.join(sorted(_ACTIONS))}.")
        name = uuid.uuid4().hex
        for number in range(times):
            (self.directory / f"{name}.{number}.token").touch()
        order = {"point": point, "action": action, "seconds": seconds, "match": match, "name": name}
        # Renamed when complete: a process may read the directory at any moment.
        draft = self.directory / f"{name}.draft"
        draft.write_text(json.dumps(order))
        draft.rename(self.directory / f"{name}.order")
        return name

    def obeyed(self, name: str) -> list[int]:
        """Return the ids of the processes that carried out the order, one for each time."""
        return [int(path.read_text()) for path in sorted(self.directory.glob(f"{name}.*.done"))]

    def wait(self, name: str, timeout_s: float = 60.0) -> int:
        """Wait until a process carries out the order, and return its id. Raises TimeoutError if none does."""
        deadline = time.monotonic() + timeout_s
        while not (found := self.obeyed(name)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"No process reached the point of the order within {timeout_s:g} s.")
            time.sleep(0.02)
        return found[0]

    def clear(self) -> None:
        """Withdraw all orders. A process that already sleeps because of one continues to sleep."""
        # Orders first: no process may take a token of an order that is being withdrawn.
        for path in sorted(self.directory.iterdir(), key=lambda path: path.suffix != ".order"):
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
    found = {} if task is None else {"level": task.program.level, "slot": int(task.slot), "partition": task.partition}
    found |= {key: value for key, value in context.items() if key != "task"}
    # As text: values of an order have been through JSON, those of a context are objects such as ids.
    return all(str(found.get(key)) == str(value) for key, value in match.items())


def _take(directory: Path, name: str) -> bool:
    """Take a token, once for all processes: 1. rename it, 2. write the process id, 3. show it.
    Dying in between leaves no trace.
    """
    for token in directory.glob(f"{name}.*.token"):
        taken = token.with_suffix(".taken")
        try:
            token.rename(taken)
        except FileNotFoundError:
            continue
        taken.write_text(str(os.getpid()))
        taken.rename(token.with_suffix(".done"))
        return True
    return False


def _kill(order: dict[str, Any], context: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(order: dict[str, Any], context: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _kill_executor(order: dict[str, Any], context: dict[str, Any]) -> None:
    """Kill the JVM above this Python worker. The worker itself continues until it notices."""
    pid = os.getpid()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return
    raise RuntimeError("this process is not below an executor")


def _lose_reply(order: dict[str, Any], context: dict[str, Any]) -> None:
    from tidegate.storage import StorageUnavailable

    raise StorageUnavailable("(ordered)", str(context.get("path")), "The response of the store was lost, as ordered.")


def _raise(order: dict[str, Any], context: dict[str, Any]) -> None:
    raise RuntimeError(f"ordered at {order['point']}")


def _sleep(order: dict[str, Any], context: dict[str, Any]) -> None:
    time.sleep(order["seconds"])


def _miscount(order: dict[str, Any], context: dict[str, Any]) -> None:
    """Announce one more row to slot 0 than was sent there."""
    context["task"].writer.rows_per_slot[0] += 1


def _drop_barrier(order: dict[str, Any], context: dict[str, Any]) -> None:
    """Send no barrier to slot 0."""
    writer = context["task"].writer
    send = writer.send_barriers

    def send_fewer(barrier: Any) -> None:
        send(barrier)
        del writer._ready[-len(writer.rows_per_slot)]

    writer.send_barriers = send_fewer


_ACTIONS = {
    "kill": _kill,
    "kill-executor": _kill_executor,
    "lose-reply": _lose_reply,
    "stop": _stop,
    "raise": _raise,
    "sleep": _sleep,
    "miscount": _miscount,
    "drop-barrier": _drop_barrier,
}
