"""Functions that are notified of checkpoints: those that define one of Flink's two hooks. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tidegate.core.hooks import hook
from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph, Node, Process, Transform

COMPLETE, ABORTED = "notify_checkpoint_complete", "notify_checkpoint_aborted"


class NotifiesFunction(ABC):
    """An operator that calls a user's function. The function, not the operator, is notified of checkpoints."""

    @property
    @abstractmethod
    def notified(self) -> object:
        """The function, or None."""


def notified_by(function: object) -> object:
    """Return the object to notify of checkpoints for a node with this function."""
    return function.notified if isinstance(function, NotifiesFunction) else function


def listening_levels(graph: Graph, plan: Plan) -> frozenset[int]:
    """Return the levels that have such functions."""
    return frozenset(plan.level_of(node.id) for node in graph.nodes if _listens(node))


def _listens(node: Node) -> bool:
    if isinstance(node, Transform):
        # A plain callable is not opened either.
        return hook(node.function, node.kind) is not None and _hears(node.function)
    return isinstance(node, Process) and _hears(node.function)


def _hears(function: object) -> bool:
    notified = notified_by(function)
    return any(hook(notified, name) is not None for name in (COMPLETE, ABORTED))
