"""What streams know about their job: the graph so far, and how to add to it."""

from __future__ import annotations

from tidegate.core.errors import GraphError
from tidegate.graph.model import Graph, Node


class GraphBuilder:
    """Collects the nodes that a job and its streams declare."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[Node] = []

    def draft(self) -> Graph:
        """Return the graph declared so far, for the streams of this job."""
        return Graph(self.name, tuple(self._nodes))

    def add(self, node: Node) -> None:
        """Add a node that a stream of this job declared. Its id is the number of nodes before it."""
        if node.id != len(self._nodes):
            raise GraphError(f"{node} was made for another place in the job {self.name!r}.")
        self._nodes.append(node)
