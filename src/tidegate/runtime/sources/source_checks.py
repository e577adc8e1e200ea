"""Checks whether a DataFrame can be a source, from what Spark says about its plan."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from contextlib import redirect_stdout

from tidegate.core.errors import PreconditionFailed
from tidegate.graph.model import Source
from tidegate.runtime.sources.kept_files import check_place

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


_READ_ONCE = {"TextSocketSourceProvider": "a socket, which keeps no row that was read"}
"""Sources that cannot be read again: a word in the text of the logical plan, and a description for users. Files with
`cleanSource` cannot be recognized there; `kept_files` detects them.
"""


_KAFKA = re.compile(r"StreamingRelationV2 [^\n]*kafka010\.KafkaSourceProvider[^\n]*")
_SPLITTING = re.compile(r"\b(?:minPartitions|maxRecordsPerPartition)=[^,\]\s]*", re.IGNORECASE)
"""Options of Spark's Kafka source that split a Kafka partition over several Spark partitions."""


def check_sources(sources: Iterable[Source], durable: bool = True) -> None:
    """Reject streaming sources with state managed by Spark: it lives in a directory that is discarded at every restart.
    Also reject sources that read rows of one Kafka partition in several tasks, in no order, and, for a job with
    checkpoints (`durable`), sources that cannot be read again from a position.
    """
    for source in sources:
        if source.bounded:
            continue
        plan = plan_of(source)
        if durable and not source.at_most_once and (found := not_rereadable(plan)) is not None:
            raise PreconditionFailed(
                f"source {source.uid!r} reads {found}: after a failure rows would be missing, whatever the checkpoint "
                "contains. Read from a source that can be read again (Kafka, files without cleanSource); or accept the "
                f"loss with job.source({str(source.uid)!r}, …, at_most_once=True)."
            )
        if durable:
            check_place(source, plan)
        if (found := stateful_operator(plan)) is not None:
            raise PreconditionFailed(
                f"source {source.uid!r} contains {found}, whose state Spark keeps in its own directory, which tidegate "
                "cannot restore. Do that step in tidegate: key_by(…).process(uid, …) on the rows before it."
            )
        if (found := reordering(plan)) is not None:
            raise PreconditionFailed(
                f"source {source.uid!r} is read with {found}: Spark then splits a Kafka partition over several tasks, and "
                "rows of a key are processed in a different order than they were written. Remove the option. If the "
                "order does not matter, call repartition(n) on the DataFrame instead."
            )


def reordering(plan: str) -> str | None:
    """Return the option, in the text of a plan, by which Spark splits a Kafka partition over several tasks."""
    for relation in _KAFKA.findall(plan):
        if found := _SPLITTING.search(relation):
            return found[0]
    return None


def stateful_operator(plan: str) -> str | None:
    """Return what keeps state in the text of a physical plan, described for users."""
    return next((words for operator, words in _STATEFUL.items() if operator in plan), None)


def not_rereadable(plan: str) -> str | None:
    """Return what in the text of a plan cannot be read again, described for users."""
    return next((words for name, words in _READ_ONCE.items() if name in plan), None)


def ignores_positions(source: Source) -> bool:
    """Whether its positions are meaningless after a restart."""
    return source.at_most_once and not source.bounded and not_rereadable(plan_of(source)) is not None


def plan_of(source: Source) -> str:
    """Return the logical and physical plans of a source, as Spark prints them."""
    text = io.StringIO()
    # Public PySpark shows a plan only by printing it.
    with redirect_stdout(text):
        source.frame.explain(True)
    return text.getvalue()
