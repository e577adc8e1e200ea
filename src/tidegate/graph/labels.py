"""Display names of nodes, streams and functions."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

from tidegate.graph.model import Graph, NodeId, Source, StreamRef, Transform
from tidegate.graph.stateful_processing import StatefulProcessing


class Labels:
    """Short, unique names: the uid if there is one, else the name of the transform, numbered if it is not unique."""

    def __init__(self, graph: Graph) -> None:
        plain = [node.name if isinstance(node, Transform) else str(node.uid) for node in graph.nodes]
        count = Counter(plain)
        self._nodes = [
            f"{name}#{node.id}" if isinstance(node, Transform) and count[name] > 1 else name
            for node, name in zip(graph.nodes, plain)
        ]
        self._read = {
            stream
            for node in graph.nodes
            if not isinstance(node, Source)
            for input in graph.inputs(node)
            for stream in input.streams
        }

    def node(self, id: NodeId) -> str:
        return self._nodes[id]

    def stream(self, stream: StreamRef) -> str:
        return self.node(stream.node) + ("" if stream.tag is None else f"[{stream.tag}]")

    def is_read(self, stream: StreamRef) -> bool:
        return stream in self._read


def name_of(function: Any) -> str | None:
    """Return the class name of a function object or the name of a plain function, or None for a lambda."""
    function = _written(function)
    name = getattr(function, "__name__", None) or type(function).__name__
    return None if name == "<lambda>" else str(name)


def summary_of(function: Any) -> str | None:
    """Return the first line of the user's docstring. Docstrings of base classes do not describe this function."""
    function = _written(function)
    owner = function if inspect.isroutine(function) else type(function)
    # `functools.partial` and builtins have docstrings about themselves.
    if owner.__module__ in ("builtins", "functools"):
        return None
    doc = owner.__doc__
    return inspect.cleandoc(doc).split("\n", 1)[0] if isinstance(doc, str) and doc.strip() else None


def _written(function: Any) -> Any:
    """What the user wrote."""
    if isinstance(function, StatefulProcessing):
        return function.processor
    return getattr(function, "user_function", function)
