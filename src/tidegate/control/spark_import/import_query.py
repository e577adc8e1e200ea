"""`tg.import_spark_query`: the import as a function, for notebooks and scripts. The command line calls it, too."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidegate.api.job import Job
from tidegate.api.savepoints import Savepoint
from tidegate.control.spark_import.carried_state import CarriedState, ImportRefused
from tidegate.control.spark_import.import_plan import ImportPlan, plan_import
from tidegate.control.spark_import.imported_savepoint import write_import
from tidegate.runtime.driver.session import session
from tidegate.runtime.sources.stopped_query import StoppedQuery
from tidegate.savepoint.copy import Copied
from tidegate.storage import open_storage

log = logging.getLogger(__name__)


def import_spark_query(
    job: Job,
    checkpoint: str | Path,
    to: str | Path,
    *,
    sources: Mapping[int, str] | None = None,
    operators: Mapping[int, str] | None = None,
    allow_non_restored_state: bool = False,
    same_order: bool = False,
    **storage_options: object,
) -> Savepoint:
    """Make a savepoint of a stopped Spark query, from which a job continues at the offset where the query stopped.

    Start the job with `options={"execution.state-recovery.path": to}`.

    Args:
        job: The job that continues.
        checkpoint: The query's `checkpointLocation`; nothing in it changes.
        to: An empty directory for the savepoint.
        sources: If the query reads several sources: which number of Spark belongs to which uid.
        operators: If the query keeps several states: which number of Spark belongs to which uid.
        allow_non_restored_state: Leave behind state that cannot be carried over. By default, it is refused.
        same_order: Declare that aggregates that could be swapped, such as two sums, are in the order of the query. By default,
            they are refused.
        storage_options: Options of the object store of `to`, such as `region`.
    """
    move = SparkMove(job, checkpoint, sources=sources or {}, operators=operators or {})

    # Before the work: a script that is watched can still be stopped.
    for warning in move.warnings():
        log.warning("%s", warning)
    options: dict[str, Any] = storage_options
    move.write(to, allow_non_restored_state, same_order=same_order, **options)
    return Savepoint.open(to, **storage_options)


class SparkMove:
    """The move of a stopped query into a job: the plan, its warnings, and the savepoint."""

    def __init__(
        self, job: Job, checkpoint: str | Path, *, sources: Mapping[int, str], operators: Mapping[int, str]
    ) -> None:
        """Raises ImportRefused if the user has to say what belongs together, and PreconditionFailed for another directory."""
        self.spark = session("tidegate-import")
        self.job = job
        self.query = StoppedQuery.read(self.spark, str(checkpoint))
        self.plan: ImportPlan = plan_import(
            self.query,
            job.graph(),
            lambda operator, options: self.query.fields(self.spark, operator, options),
            sources=sources,
            operators=operators,
        )

    def warnings(self) -> list[str]:
        """Return what the user should know before the job starts."""
        texts = [*self.plan.notes, *self.plan.questions]
        if self.query.unfinished:
            texts.append(
                f"Spark had begun batch {self.query.batch + 1} and not committed it. Its rows will be read again, so "
                "what it wrote may be doubled. To avoid that, run the query until it is idle, and stop it then."
            )
        return texts

    def counts(self) -> list[int]:
        """Return how many entries each state of the plan has."""
        counted: dict[tuple[Any, ...], int] = {}
        # Timers are two states of the job and one of Spark's: what is read alike is counted once.
        counts = []
        for state in self.plan.states:
            origin = (state.operator, *state.options.items())
            if origin not in counted:
                with self.query.state(self.spark, state.operator, state.options) as frame:
                    counted[origin] = frame.count()
            counts.append(counted[origin])
        return counts

    def write(
        self,
        to: str | Path,
        allow_left: bool,
        report: Callable[[CarriedState, int], None] = lambda _, __: None,
        *,
        same_order: bool = False,
        **options: Any,
    ) -> Copied:
        """Write the savepoint. `report` is called with each state and how many of its entries have been read. `same_order`: the
        user has answered the plan's questions."""
        if self.plan.left and not allow_left:
            raise ImportRefused(
                " ".join(self.plan.notes) + " Nothing was written. Change the job, or leave this behind with -n "
                "(allow_non_restored_state); --dry-run shows all."
            )
        if self.plan.questions and not same_order:
            raise ImportRefused(
                " ".join(self.plan.questions)
                + " Nothing was written. Compare the job with the query. If the order is the same, "
                "say so with --same-order (same_order=True)."
            )
        return write_import(self.query, self.job, self.plan, self.spark, open_storage(to, **options), report)
