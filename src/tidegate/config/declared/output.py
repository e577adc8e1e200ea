"""How output that waits for its sinks is published. None of these is Flink's."""

from __future__ import annotations

from tidegate.config.choices import Publisher
from tidegate.config.option import BOOL, DURATION, INT, SIZE, Option, at_least, at_most, enum

TITLE = "Output"
_P = "execution.output."

STOP_TIMEOUT: Option[int | None] = Option(
    _P + "stop-timeout",
    DURATION,
    None,
    "How long a stop, with or without a savepoint, waits until all output is published. After that it fails, and names the "
    "savepoint and what still waits; the next start publishes it. Unset: as long as execution.checkpointing.timeout.",
    check=at_least(0),
)
PUBLISHER: Option[Publisher] = Option(
    _P + "publisher",
    enum(Publisher),
    Publisher.AUTO,
    "TASKS publish to Kafka, PostgreSQL, files and write-ahead functions, many at a time, with the epoch that follows the "
    "checkpoint, and rows do not pass through the driver, except the few in `_metadata`. AUTO: as TASKS, but as long as no more "
    "than 4 MB wait for Kafka or PostgreSQL, the driver publishes them as soon as the checkpoint is complete; if it cannot, "
    "tasks do. DRIVER: the driver publishes everything, for targets that only it can reach. Table formats, and all sinks in "
    "mode AT_LEAST_ONCE, are always published by the driver.",
)
MAX_WAITING_EPOCHS: Option[int] = Option(
    _P + "max-waiting-epochs",
    INT,
    1_000,
    "Epochs of completed checkpoints whose output may wait for one sink. Above it the job reads no further batch until the "
    "sink has caught up; checkpoints and other sinks continue, timers wait. Each checkpoint carries the waiting output.",
    check=at_least(1),
)
MAX_WAITING_SIZE: Option[int] = Option(
    _P + "max-waiting-size",
    SIZE,
    10 << 30,
    "The same for the size of the rows that wait for one sink.",
    check=at_least(1),
)
INLINE_THRESHOLD: Option[int] = Option(
    _P + "inline-threshold",
    SIZE,
    8 << 10,
    "Rows that a task stages for its sinks in an epoch travel with its acknowledgement and wait in `_metadata`, up to this size; "
    "what does not fit becomes an object in storage. It concerns sinks whose target cannot hide rows: Kafka, PostgreSQL "
    "and write-ahead functions. 0: all rows are stored.",
    check=at_most(1 << 20, "1 mb"),
)
MAX_INLINE_SIZE: Option[int] = Option(
    _P + "max-inline-size",
    SIZE,
    8 << 20,
    "The same for all output that waits: the driver holds it, and each checkpoint writes it. When it is used up, tasks store "
    "their rows until some are published. With many tasks, each gets an equal share of what is left.",
    check=at_most(256 << 20, "256 mb"),
)
REFUSE_UNPUBLISHED: Option[bool] = Option(
    _P + "refuse-unpublished",
    BOOL,
    False,
    "Refuse to start under another name from a snapshot whose output may not be published, as `run --strict`. That output "
    "belongs to the job that took the snapshot, and only a start of that job publishes it. Otherwise the start warns.",
)
