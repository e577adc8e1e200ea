"""Names the Spark jobs of an epoch in Spark's UI: by a description, by a tag, and by the functions in the plan.

A session makes each of its settings that begins with `spark` a local property of the jobs that it starts, and Spark's UI takes
the description of a job from the local property `spark.job.description`. So the setting of that name describes them; the
context of the session, which has a method for it, is not used by tidegate.

The stages of a job have no description of their own. In the plan of the job, each level is a node with the name of its function.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tidegate.core.ids import EpochId
from tidegate.graph.labels import Labels
from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph

_DESCRIPTION = "spark.job.description"
_LONGEST_LEVEL = 80
"""Characters: a row of Spark's table of jobs shall stay readable."""


@dataclass(frozen=True, slots=True)
class JobLabel:
    description: str
    tag: str

    @contextmanager
    def on(self, session: SparkSession) -> Iterator[None]:
        """Label the jobs that this thread starts in the session."""
        before = session.conf.get(_DESCRIPTION, None)
        session.conf.set(_DESCRIPTION, self.description)
        session.addTag(self.tag)
        try:
            yield
        finally:
            # If the session has ended, the error of the block says so.
            with suppress(Exception):
                session.removeTag(self.tag)
                if before is None:
                    session.conf.unset(_DESCRIPTION)
                else:
                    session.conf.set(_DESCRIPTION, before)


class JobLabels:
    """The labels of one tidegate job."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        labels = Labels(graph)
        self._job = graph.job
        self._levels = tuple(
            _shortened(f"level {level.index}: {', '.join(labels.node(id) for id in level.nodes)}")
            if level.index
            else "sources"
            for level in plan.levels
        )

    def level(self, index: int) -> str:
        """The name of a level: its number and its operators. 0: the source stage."""
        return self._levels[index]

    def epoch(self, epoch: EpochId, *, restores: bool, has_rows: bool) -> JobLabel:
        """The label of the jobs of an epoch."""
        kind = " restores state" if restores else "" if has_rows else " without rows"
        levels = "; ".join(self._levels[1:])
        return JobLabel(f"{self._job}: epoch {epoch}{kind}; {levels}", _tag(self._job, f"epoch-{epoch}"))


def placement_label(job: str) -> JobLabel:
    """The label of the job that places tasks on executors."""
    return JobLabel(f"{job}: place tasks on executors", _tag(job, "placement"))


def _tag(job: str, what: str) -> str:
    # Spark separates tags by commas.
    return f"tidegate-{job.replace(',', '_')}-{what}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_LEVEL else f"{text[: _LONGEST_LEVEL - 1]}…"
