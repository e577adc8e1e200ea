"""The work of tasks in the epoch that restores their state. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidegate.checkpoint.task.version_restore import RestoreOrder
from tidegate.core.ids import HostId, Slot, TaskId
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.state.version import VersionRef

Restores = Mapping[TaskId, RestoreOrder]


def homes(orders: Restores, hosts: Mapping[TaskId, HostId]) -> dict[TaskId, HostId]:
    """Return the host where each task finds most of its state. `hosts` are those of old tasks."""
    # At another parallelism, the host of the old task that contributes most.
    found = {task: hosts.get(order.plan.main_source or task) for task, order in orders.items()}
    return {task: host for task, host in found.items() if host is not None}


def trusting(orders: Restores, accepted: Mapping[TaskId, VersionRef], *, starts: bool) -> Restores:
    """Let tasks use versions without checksums: accepted ones on the hosts that have them, and at the start of a run all that
    were sealed since a host was booted. After a failure there are none: checksums decide."""
    if starts:
        orders = {task: replace(order, trusts_boot=True) for task, order in orders.items()}
    if not accepted:
        return orders

    def hosts_of(order: RestoreOrder) -> dict[TaskId, HostId]:
        same = (
            state.task
            for state in order.sources
            if state.task in accepted and accepted[state.task].version == state.version
        )
        return {task: accepted[task].host for task in same}

    return {task: replace(order, trusted=hosts_of(order)) for task, order in orders.items()}


def restore_work(orders: Restores, levels: int, parallelism: int) -> dict[int, CheckpointWork]:
    """Return the work by level."""
    records = tuple({order.stored for order in orders.values() if order.stored is not None})
    # Other tasks may take from them: a task must not remove them when it has its own.
    needed = {state.task: state.version for order in orders.values() for state in order.sources}
    work: dict[int, CheckpointWork] = {}
    for level in range(1, levels + 1):
        tasks = [TaskId(level, Slot(slot)) for slot in range(parallelism)]
        work[level] = CheckpointWork(
            keep=tuple((needed[task],) if task in needed else () for task in tasks),
            records=records,
            restores=tuple(orders.get(task) for task in tasks),
        )
    return work
