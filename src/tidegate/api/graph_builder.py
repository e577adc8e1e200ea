"""What streams know about their job: the graph so far, and how to add to it."""

from __future__ import annotations

from tidegate.core.errors import GraphError
from tidegate.core.ids import Uid
from tidegate.graph.model import Graph, Node
from tidegate.graph.renamed import Uid as RenamedUid
from tidegate.graph.validate import check_new_uid


class GraphBuilder:
    """Collects the nodes that a job and its streams declare."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[Node] = []
        self._renamed_uids: dict[Uid, tuple[str, ...]] = {}

    def draft(self) -> Graph:
        """Return the graph declared so far, for the streams of this job."""
        return Graph(self.name, tuple(self._nodes), dict(self._renamed_uids))

    def new_uid(self, given: object, shown: str) -> Uid:
        """Check the uid of the next node, which `shown` describes, and note the uids that it had before."""
        uid = check_new_uid(given, shown, self._nodes)
        if isinstance(given, RenamedUid):
            self._renamed_uids[uid] = given.renamed_from
        return uid

    def add(self, node: Node) -> None:
        """Add a node that a stream of this job declared. Its id is the number of nodes before it."""
        if node.id != len(self._nodes):
            raise GraphError(f"{node} was made for another place in the job {self.name!r}.")
        self._nodes.append(node)
