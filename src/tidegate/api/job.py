"""The job: declares sources, and can be explained and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from tidegate.api.graph_builder import GraphBuilder
from tidegate.api.mistakes import called_like, check_listeners
from tidegate.api.spark_types import SparkFrame, SparkSessionLike
from tidegate.api.streams import Stream
from tidegate.core.durations import Duration, argument_ms
from tidegate.core.errors import GraphError
from tidegate.core.ids import Uid
from tidegate.graph.explain import explain_text
from tidegate.graph.levels import plan
from tidegate.graph.mermaid import explain_mermaid
from tidegate.graph.model import Graph, NodeId, Process, Source, StreamRef, Transform
from tidegate.graph.parallelism import check_parallelism, default_max_parallelism
from tidegate.graph.validate import check, check_event_time, check_name, check_runnable, check_split
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    from tidegate.config import Checkpointing
    from tidegate.events.listener import JobListener
    from tidegate.runtime.driver.job_run import JobRun
    from tidegate.runtime.epochs.reports import EpochReport
    from tidegate.runtime.epochs.run_options import RunOptions


LOADED_FILE: ContextVar[str | None] = ContextVar("LOADED_FILE", default=None)
"""The file that is being loaded for the job in it. No job may be started meanwhile."""


class Job(GraphBuilder):
    """A named graph of operators. Declaring changes nothing outside this object; only `run` and `start` do.

    Args:
        name: The job's identity in storage. Do not change it while the job has checkpoints.
        parallelism: The number of tasks of every level. It may change at any restart. By default, it is derived from the
            cores of the Spark session.
        max_parallelism: The number of key groups, and the greatest parallelism. It is fixed once the job has run. By
            default, it is Flink's default for the parallelism.

    Examples:
        >>> job = tg.Job("orders", parallelism=4)
        >>> orders = job.source("orders", tg.testing.frame("user string, amount double"))
        >>> orders.key_by("user").aggregate("totals", total=tg.sum("amount")).sink("out", tg.PrintSink())
        >>> job
        <Job 'orders': 3 nodes>
    """

    def __init__(self, name: str, parallelism: int | None = None, max_parallelism: int | None = None) -> None:
        super().__init__(check_name(name, "job name"))
        check_parallelism(parallelism, max_parallelism)
        self.parallelism = parallelism
        if max_parallelism is None and parallelism is not None:
            max_parallelism = default_max_parallelism(parallelism)
        self.max_parallelism = max_parallelism

    @called_like("source('orders', spark.readStream.…load())")
    def source(  # noqa: PLR0913 what a user may choose
        self,
        uid: str,
        df: SparkFrame,
        *,
        event_time: str | None = None,
        out_of_orderness: Duration | None = None,
        idleness: Duration | None = None,
        at_most_once: bool = False,
        split: str | None = None,
        watermark: str | Callable[[int, int], int] | None = None,
        files_kept: bool = False,
    ) -> Stream:
        """Read a DataFrame, streaming or not.

        A job with checkpoints rejects a source that cannot be read again, and files that may vanish unnoticed; `at_most_once`
        and `files_kept` accept them.

        Args:
            uid: The permanent identity of the source: its read positions belong to it.
            df: A Spark DataFrame, as `spark.readStream…load()` or `spark.read…` returns it, with any stateless SQL on it.
            event_time: The timestamp column from which the watermark is derived.
            out_of_orderness: How late a row may arrive: `"5 s"`, a timedelta, or milliseconds. By default, not at all.
            idleness: After this long without rows, the source does not hold back the watermark of the job any longer. By
                default, it does so indefinitely.
            at_most_once: Allow a source that cannot be read again, such as a socket: a failure loses rows.
            split: A column that distinguishes the splits of the source, such as Kafka's partition or the file name. The
                watermark is then that of the slowest split, and `idleness` applies to each of them.
            watermark: For custom watermarks: another timestamp column to derive them from, null in rows that carry none; or a
                function of the greatest time of a split and the clock, in milliseconds, that returns the watermark. The driver
                calls it before each epoch.
            files_kept: Declare that files in an object store, which `cleanSource` or a lifecycle rule could remove, stay as long
                as a retained checkpoint needs them.

        Examples:
            >>> columns = tg.testing.frame("page string, at timestamp")
            >>> job.source("clicks", columns, event_time="at", out_of_orderness="5 s", idleness="1 min")
            <Stream of source 'clicks': page string, at timestamp>
        """
        checked = self.new_uid(uid, f"source {uid!r}")

        # By what it has, not by its class: a session over Spark Connect has another class of DataFrames, and tests a stand-in.
        try:
            schema = Schema.from_spark_json(df.schema.jsonValue())
            bounded = not df.isStreaming
        except AttributeError as error:
            raise GraphError(
                f"source {uid!r} takes a Spark DataFrame, as spark.readStream…load() or spark.read… give it; got "
                f"{type(df).__name__}. A list of rows becomes one with spark.createDataFrame(rows, 'column type, …')."
            ) from error

        if event_time is not None:
            check_event_time(event_time, schema)
        elif any(choice is not None for choice in (out_of_orderness, idleness, split, watermark)):
            raise GraphError(
                f"source {uid!r} says how watermarks are made, as for rows out of order or for silence, but names no event "
                "time. Add event_time='column'."
            )
        if split is not None:
            check_split(split, schema)

        # One parameter, two forms: a column to take watermarks from, or a function that computes them in the driver.
        column = watermark if isinstance(watermark, str) else None
        if column is not None:
            check_event_time(column, schema)
        elif watermark is not None and (not callable(watermark) or out_of_orderness is not None):
            raise GraphError(
                f"watermark of source {uid!r} is a column, or a function of the greatest event time and the clock. The function "
                "allows for disorder by itself: leave out out_of_orderness."
            )
        generator = None if watermark is None or isinstance(watermark, str) else watermark

        # 0 is the default for disorder, and a mistake for idleness: the source would never hold back the watermark.
        late_ms = 0 if out_of_orderness is None else argument_ms(f"source {uid!r}: out_of_orderness", out_of_orderness)
        if late_ms < 0:
            raise GraphError(f"out_of_orderness of source {uid!r} is negative. Use '0 s' or more.")
        idle_ms = None if idleness is None else argument_ms(f"source {uid!r}: idleness", idleness)
        if idle_ms is not None and idle_ms <= 0:
            raise GraphError(f"idleness of source {uid!r} must be longer than nothing. Use '1 min', or leave it out.")

        id = NodeId(len(self._nodes))
        self.add(
            Source(
                id=id,
                uid=checked,
                schema=schema,
                frame=df,
                bounded=bounded,
                event_time=event_time,
                out_of_orderness_ms=late_ms,
                idleness_ms=idle_ms,
                split=split,
                watermark=column,
                generator=generator,
                at_most_once=at_most_once,
                files_kept=files_kept,
            )
        )
        return Stream(self, (StreamRef(id),), schema, event_time)

    def side_output(self, tag: str) -> Stream:
        """Return a side output, whichever operator of the job declares it.

        Args:
            tag: The tag of the side output. Only one operator may declare it.

        Examples:
            >>> totals = orders.key_by("user").process(
            ...     "totals", Totals(), schema="user string, total double", on_error=tg.dead_letter("bad-orders")
            ... )
            >>> job.side_output("bad-orders").sink("dlq", tg.FileSink("dlq/"))
        """
        operators = [node for node in self._nodes if isinstance(node, Process | Transform)]
        makers = [node for node in operators if tag in dict(node.side_outputs)]
        if not makers:
            known = sorted({t for node in operators for t, _ in node.side_outputs})
            raise GraphError(
                f"No operator declares a side output {tag!r}"
                + (f"; there are {', '.join(map(repr, known))}. " if known else ". ")
                + f'Declare it first: process(…, side_outputs={{{tag!r}: "column type, …"}}).'
            )
        if len(makers) > 1:
            raise GraphError(
                f"The side output {tag!r} is declared by {' and '.join(map(str, makers))}. Ask one of their streams: "
                f"stream.side_output({tag!r})."
            )
        return Stream(self, (StreamRef(makers[0].id, tag),), dict(makers[0].side_outputs)[tag])

    def graph(self) -> Graph:
        """Return the job as a validated graph."""
        return check(self.draft())

    def explain(self, format: Literal["text", "mermaid"] = "text") -> str:
        """Describe how the job will run: levels, operators, states, shuffles. Returns the text, and prints nothing.

        Args:
            format: `"text"`, or `"mermaid"` for a flowchart in a Markdown page.

        Examples:
            >>> orders.key_by("user").aggregate("totals", total=tg.sum("amount")).sink("out", tg.PrintSink())
            >>> print(job.explain("mermaid").splitlines()[0])
            flowchart LR
        """
        graph = self.graph()
        match format:
            case "text":
                return explain_text(graph, plan(graph), self.parallelism, self.max_parallelism, _once_only(graph))
            case "mermaid":
                return explain_mermaid(graph, plan(graph))
        raise ValueError(f"explain knows the formats 'text' and 'mermaid', not {format!r}.")

    def run(  # noqa: PLR0913 one parameter for each choice
        self,
        spark: SparkSessionLike | None = None,
        *,
        checkpoint: Checkpointing | str | None = None,
        trigger: str | None = None,
        drain: bool = False,
        state_backend: str | None = None,
        options: Mapping[str, object] | None = None,
        fresh: bool = False,
        force: bool = False,
        listeners: Sequence[JobListener] = (),
    ) -> EpochReport | None:
        """Run the job with Spark until it ends or fails. An error that ends it is raised.

        A job on batch DataFrames runs once, to the end, and returns the report of that one epoch. A streaming job returns None.

        Args:
            spark: The session to run in. By default, that of the sources.
            checkpoint: How checkpoints are taken: a `Checkpointing`, or only its directory if `options` has the interval. The
                job then resumes from its latest checkpoint. Without checkpoints, no state outlives the run.
            trigger: How often an epoch starts, as in `"5 s"`. By default, as often as possible; `"available-now"` processes all
                available input and ends.
            drain: With `trigger="available-now"`: after the last row, event-time timers fire, windows close, and the job has
                finished. Otherwise, open windows stay in the last checkpoint for the next run.
            state_backend: `"hashmap"` (the default, as in Flink) or `"rocksdb"`.
            options: Any option by its key, as in `{"state.backend.changelog.enabled": True}`; see the page about options.
            fresh: Discard the history of the job, and start without state.
            force: Take the job over from a driver that hangs although its heartbeat moves.
            listeners: Objects of classes derived from `JobListener`. They are notified of epochs, checkpoints, failures and
                changes of status, each in a thread of its own.

        Examples:
            >>> job = tg.Job("numbers", parallelism=1)
            >>> out = tg.CollectSink()
            >>> job.source("numbers", spark.range(3)).sink("out", out)
            >>> report = job.run()
            >>> sorted(row.id for row in out.rows)
            [0, 1, 2]
        """
        from tidegate.runtime.driver.launch import run_job  # Late: Spark is needed from here on.
        from tidegate.runtime.epochs.run_options import RunOptions

        chosen = RunOptions(
            checkpoint=checkpoint,
            trigger=trigger,
            drain=drain,
            state_backend=state_backend,
            options=options or {},
            fresh=fresh,
            force=force,
            listeners=listeners,
        )
        return run_job(self._startable_graph(listeners), self._with_parallelism(chosen), spark)

    def start(  # noqa: PLR0913 one parameter for each choice
        self,
        spark: SparkSessionLike | None = None,
        *,
        checkpoint: Checkpointing | str | None = None,
        trigger: str | None = None,
        drain: bool = False,
        state_backend: str | None = None,
        options: Mapping[str, object] | None = None,
        fresh: bool = False,
        force: bool = False,
        listeners: Sequence[JobListener] = (),
        restart: bool = False,
    ) -> JobRun:
        """Start the job on streaming DataFrames and return immediately, with a handle to monitor, stop and await it.

        Args:
            spark: As for `run`, like all parameters up to `listeners`.
            checkpoint: How checkpoints are taken: a `Checkpointing`, or only its directory.
            trigger: How often an epoch starts, as in `"5 s"`. By default, as often as possible.
            drain: With `trigger="available-now"`: let all event time pass after the last row.
            state_backend: `"hashmap"` or `"rocksdb"`.
            options: Any option by its key.
            fresh: Discard the history of the job, and start without state.
            force: Take the job over from a driver that hangs although its heartbeat moves.
            listeners: Objects of classes derived from `JobListener`.
            restart: If this process already runs the job, stop that run first, as by `JobRun.stop`: for cells of notebooks,
                which are run again and again. Otherwise, such a start is refused.

        Examples:
            >>> job = tg.Job("rates", parallelism=1)
            >>> rates = spark.readStream.format("rate").load()
            >>> job.source("rates", rates).sink("out", tg.DiscardSink())
            >>> run = job.start()
            >>> run.stop()
            >>> run.status
            'CANCELED'
        """
        from tidegate.runtime.driver.launch import start_job  # Late: Spark is needed from here on.
        from tidegate.runtime.epochs.run_options import RunOptions

        chosen = RunOptions(
            checkpoint=checkpoint,
            trigger=trigger,
            drain=drain,
            state_backend=state_backend,
            options=options or {},
            fresh=fresh,
            force=force,
            listeners=listeners,
            restart=restart,
        )
        return start_job(self._startable_graph(listeners), self._with_parallelism(chosen), spark)

    def _startable_graph(self, listeners: Sequence[JobListener]) -> Graph:
        """Return the graph of a job that may be started now. Raises before Spark is asked for anything."""
        _check_may_start()
        check_listeners(listeners)
        return check_runnable(self.graph())

    def _with_parallelism(self, options: RunOptions) -> RunOptions:
        """Add what was chosen for the job, rather than for this run."""
        return replace(
            options,
            parallelism=self.parallelism,
            max_parallelism=self.max_parallelism,
        )

    def __repr__(self) -> str:
        return f"<Job {self.name!r}: {len(self._nodes)} nodes>"


def _once_only(graph: Graph) -> dict[Uid, str]:
    """Return the sources that, according to Spark, cannot be read again."""
    # Without a DataFrame of Spark's, as in a test, nothing of the runtime is imported: it would need a JVM.
    frames = [source for source in graph.sources if type(source.frame).__module__.startswith("pyspark.")]
    if not frames:
        return {}
    from tidegate.runtime.sources.source_checks import not_rereadable, plan_of

    reasons = {source.uid: not_rereadable(plan_of(source)) for source in frames if not source.bounded}
    return {uid: reason for uid, reason in reasons.items() if reason is not None}


def _check_may_start() -> None:
    file = LOADED_FILE.get()
    if file is not None:
        raise GraphError(
            f"{file} starts its job while it is loaded, but the command that loads it only wants to know the job. Let a function "
            "build(spark) return it, and write job.run(…) below if __name__ == '__main__':."
        )
