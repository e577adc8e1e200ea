"""Functions that are told what became of checkpoints: those that define one of Flink's two hooks. Pure."""

from __future__ import annotations

from typing import Any

from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph, Node, Process, Transform

COMPLETE, ABORTED = "notify_checkpoint_complete", "notify_checkpoint_aborted"


def listening_levels(graph: Graph, plan: Plan) -> frozenset[int]:
    """Return the levels that have such functions."""
    return frozenset(plan.level_of(node.id) for node in graph.nodes if _listens(node))


def pass_hooks_on(function: Any, operator: Any) -> None:
    """Give an operator that calls a function the hooks that the function has."""
    for hook in (COMPLETE, ABORTED):
        if callable(getattr(function, hook, None)):
            setattr(operator, hook, getattr(function, hook))


def _listens(node: Node) -> bool:
    if isinstance(node, Transform):
        # A plain callable is not opened either.
        return hasattr(node.function, node.kind) and _has_hook(node.function)
    return isinstance(node, Process) and _has_hook(node.function)


def _has_hook(function: Any) -> bool:
    return any(callable(getattr(function, hook, None)) for hook in (COMPLETE, ABORTED))
