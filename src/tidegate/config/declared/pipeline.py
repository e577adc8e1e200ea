"""Options near checkpointing that Flink keeps elsewhere."""

from __future__ import annotations

from tidegate.config.option import BOOL, DURATION, INT, TEXT, Effect, Option, at_least

TITLE = "Related"

PAUSE_SOURCES: Option[bool] = Option(
    "pipeline.sources.pause-until-first-checkpoint",
    BOOL,
    False,
    "Read nothing before the first checkpoint.",
    effect=Effect.NONE,
    reason="A job always takes a checkpoint before its first batch, with the start positions in it.",
)
MAX_PARALLELISM: Option[int] = Option(
    "pipeline.max-parallelism",
    INT,
    -1,
    "Number of key groups, fixed for the life of the state. -1: half as much again as the parallelism, rounded up to a "
    "power of two, at least 128. For jobs that name neither `parallelism` nor `max_parallelism`.",
    check=lambda value: None if value == -1 or 1 <= value <= 32_768 else "be -1 or between 1 and 32768",
)
AUTO_UIDS: Option[bool] = Option(
    "pipeline.auto-generate-uids",
    BOOL,
    True,
    "Make up uids that the user did not give.",
    effect=Effect.NONE,
    reason="Whatever has state, positions or output is declared with its uid; there is nothing to make up.",
)
FAILOVER: Option[str] = Option(
    "jobmanager.execution.failover-strategy",
    TEXT,
    "region",
    "`region` or `full`.",
    effect=Effect.NONE,
    reason="Spark reruns the tasks that were lost, and the epoch is repeated as a whole where that is not enough.",
)
CANCELLATION_TIMEOUT: Option[int] = Option(
    "task.cancellation.timeout",
    DURATION,
    180_000,
    "End the process of a task that does not stop.",
    effect=Effect.NONE,
    reason="Spark ends cancelled tasks: spark.task.reaper.enabled and spark.task.reaper.killTimeout.",
)
COMMITTER_RETRIES: Option[int] = Option(
    "sink.committer.retries",
    INT,
    10,
    "Attempts to commit the output of a checkpoint.",
    check=at_least(0),
    effect=Effect.NONE,
    reason="Output is offered until its target takes it, with pauses that grow from one second to 30.",
)
CHECKPOINT_HISTORY: Option[int] = Option(
    "web.checkpoints.history",
    INT,
    10,
    "Checkpoints whose statistics are kept for display.",
    check=at_least(1),
    effect=Effect.LATER,
    reason="Ten are kept.",
)
EXCEPTION_HISTORY: Option[int] = Option(
    "web.exception-history-size",
    INT,
    16,
    "Failures kept for display.",
    check=at_least(0),
    effect=Effect.LATER,
    reason="A thousand are kept, and REST shows twenty unless asked for more.",
)
ASYNC_STORE: Option[int] = Option(
    "rest.async.store-duration",
    DURATION,
    300_000,
    "How long the answer to an asynchronous request is kept.",
    effect=Effect.NONE,
    reason="The last thousand are kept, whatever their age.",
)
CLIENT_TIMEOUT: Option[int] = Option(
    "client.timeout",
    DURATION,
    60_000,
    "How long a command waits for its answer.",
    effect=Effect.NONE,
    reason="A request may take 60 s; a command waits for a savepoint or a stop until it has ended.",
)
SPAN_DETAIL: Option[str] = Option(
    "traces.checkpoint.span-detail-level",
    TEXT,
    "SPAN_PER_CHECKPOINT",
    "Detail of trace spans.",
    effect=Effect.LATER,
    reason="No spans are written yet.",
)
