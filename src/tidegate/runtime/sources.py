"""Is a DataFrame fit to be a source? Read from what Spark itself says about its plan."""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import redirect_stdout

from tidegate.core.errors import PreconditionFailed
from tidegate.graph.model import Source

_STATEFUL = {
    "StateStoreSave": "a streaming aggregation (groupBy, window, count …)",
    "SessionWindowStateStoreSave": "a session window aggregation",
    "StreamingSymmetricHashJoin": "a stream-stream join",
    "StreamingDeduplicate": "dropDuplicates",
    "FlatMapGroupsWithState": "mapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "StreamingGlobalLimit": "limit",
}


def check_sources(sources: Iterable[Source]) -> None:
    """Refuse streaming sources with state of Spark's own: it lives in a directory that is thrown away at every restart."""
    for source in sources:
        if not source.bounded and (found := stateful_operator(_plan(source))) is not None:
            raise PreconditionFailed(
                f"source {source.uid!r} contains {found}, whose state Spark keeps in a place of its own that tidegate cannot "
                "restore. Do that step in tidegate: key_by(…).process(uid, …) on the rows before it."
            )


def stateful_operator(plan: str) -> str | None:
    """What keeps state in the text of a physical plan, in a user's words."""
    return next((words for operator, words in _STATEFUL.items() if operator in plan), None)


def _plan(source: Source) -> str:
    text = io.StringIO()
    with redirect_stdout(text):
        source.frame.explain()
    return text.getvalue()
