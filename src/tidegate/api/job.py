"""The job: declares sources, and can be explained and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

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
from tidegate.graph.schema import Schema
from tidegate.graph.validate import check, check_event_time, check_name, check_runnable, check_split

if TYPE_CHECKING:
    from tidegate.config import Checkpointing
    from tidegate.events.listener import JobListener
    from tidegate.runtime.driver.job_run import JobRun
    from tidegate.runtime.epochs.reports import EpochReport


LOADED_FILE: ContextVar[str | None] = ContextVar("LOADED_FILE", default=None)
"""The file that is being loaded for the job in it. No job may be started meanwhile."""


class Job(GraphBuilder):
    """A named graph of operators. The name is the job's identity in storage.

    Declaring changes nothing outside this object; only `run` does. `parallelism` may change at any restart; by
    default, it is derived from the Spark session. `max_parallelism` is fixed once the job has run; by default, it is
    Flink's default for the parallelism.
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
        self, uid: str, df: SparkFrame, *, event_time: str | None = None, out_of_orderness: Duration | None = None,
        idleness: Duration | None = None, at_most_once: bool = False, split: str | None = None,
        watermark: str | Callable[[int, int], int] | None = None, files_kept: bool = False,
    ) -> Stream:  # fmt: skip
        """Read a DataFrame, streaming or not. Its read positions permanently belong to `uid`.

        `event_time` names the timestamp column from which the watermark is derived, and `out_of_orderness` is how late a
        row may arrive: `"5 s"`, a timedelta, or milliseconds. A source without rows for as long as `idleness` does not hold
        back the watermark of the job; without `idleness`, it does so indefinitely. A job with checkpoints rejects a source
        that cannot be read again, unless `at_most_once` allows the loss of rows. Files in an object store, which
        `cleanSource` or a lifecycle rule may remove unnoticed, are rejected unless `files_kept` declares that they stay as
        long as a retained checkpoint needs them.

        `split` names a column that distinguishes the splits of the source, such as Kafka's partition or the file name:
        the watermark is then that of the slowest split, and `idleness` applies to each of them. `watermark` is for
        custom watermarks: the name of another timestamp column to derive them from, null in rows that carry none; or a
        function of the greatest time of a split and the clock, in milliseconds, that returns the watermark. It is
        called in the driver, before each epoch.
        """
        checked = self.new_uid(uid, f"source {uid!r}")
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
        column = watermark if isinstance(watermark, str) else None
        if column is not None:
            check_event_time(column, schema)
        elif watermark is not None and (not callable(watermark) or out_of_orderness is not None):
            raise GraphError(
                f"watermark of source {uid!r} is a column, or a function of the greatest event time and the clock. The function "
                "allows for disorder by itself: leave out out_of_orderness."
            )
        generator = None if watermark is None or isinstance(watermark, str) else watermark
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
        """Return the side output of that tag, whichever operator of the job declares it."""
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
        """Describe how the job will run: levels, operators, states, shuffles. Returns the text: `print(job.explain())`.

        `"mermaid"` returns a flowchart for Markdown pages.
        """
        graph = self.graph()
        match format:
            case "text":
                return explain_text(graph, plan(graph), self.parallelism, self.max_parallelism, _forgetful(graph))
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
        """Run the job with Spark until it ends or fails. Without `spark`, the session of its sources is used.

        `trigger` is how often an epoch starts: `"5 s"`, None for as often as possible, `"available-now"` to process all
        available input and end. With `drain`, such a run ends the job: after the last row, event-time timers fire, windows
        close, and the job has finished. Without it, open windows stay in the last checkpoint for the next run.
        `state_backend` is `"hashmap"` (the default, as in Flink) or `"rocksdb"`.
        With `checkpoint`, a `Checkpointing`, the job resumes from its latest checkpoint. `fresh` discards its history and
        starts without state; `force` takes the job over from a driver that hangs although its heartbeat moves.
        `listeners` are told of epochs, checkpoints, failures and changes of status, each in a thread of its own.
        A job on batch DataFrames runs once, to the end, and returns the report of that one epoch; a streaming job returns None.
        """
        from tidegate.runtime.driver.launch import run_job

        _check_may_start()
        check_listeners(listeners)
        graph = check_runnable(self.graph())
        chosen = self._choices(spark, checkpoint, trigger, state_backend, options, fresh, force)
        return run_job(graph, drain=drain, listeners=listeners, **chosen)

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
        """Start the job and return immediately, with a handle to monitor, stop and await it. For streaming DataFrames.

        The arguments are those of `run`. If this process already runs the job, the start is refused; with `restart`, the old run
        is stopped first, as by `stop`. That is for cells of notebooks, which are run again and again.
        """
        from tidegate.runtime.driver.launch import start_job

        _check_may_start()
        check_listeners(listeners)
        graph = check_runnable(self.graph())
        chosen = self._choices(spark, checkpoint, trigger, state_backend, options, fresh, force)
        return start_job(graph, drain=drain, listeners=listeners, restart=restart, **chosen)

    def _choices(
        self, spark: SparkSessionLike | None, checkpoint: Checkpointing | str | None, trigger: str | None,
        state_backend: str | None, options: Mapping[str, object] | None, fresh: bool, force: bool,
    ) -> dict[str, Any]:  # fmt: skip
        return {
            "parallelism": self.parallelism,
            "max_parallelism": self.max_parallelism,
            "spark": spark,
            "checkpoint": checkpoint,
            "trigger": trigger,
            "state_backend": state_backend,
            "options": options,
            "fresh": fresh,
            "force": force,
        }

    def __repr__(self) -> str:
        return f"<Job {self.name!r}: {len(self._nodes)} nodes>"


def _forgetful(graph: Graph) -> dict[Uid, str]:
    """Return the sources that, according to Spark, cannot be read again."""
    frames = [source for source in graph.sources if type(source.frame).__module__.startswith("pyspark.")]
    if not frames:
        return {}
    from tidegate.runtime.sources.source_checks import forgetful, plan_of

    found = {source.uid: forgetful(plan_of(source)) for source in frames if not source.bounded}
    return {uid: words for uid, words in found.items() if words is not None}


def _check_may_start() -> None:
    file = LOADED_FILE.get()
    if file is not None:
        raise GraphError(
            f"{file} starts its job while it is loaded, but the command that loads it only wants to know the job. Let a function "
            "build(spark) return it, and write job.run(…) below if __name__ == '__main__':."
        )
