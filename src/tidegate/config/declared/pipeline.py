"""Options near checkpointing that Flink keeps elsewhere."""

from __future__ import annotations

from tidegate.config.choices import AggregatePhaseStrategy
from tidegate.config.option import INT, Option, enum

TITLE = "Related"

MAX_PARALLELISM: Option[int] = Option(
    "pipeline.max-parallelism",
    INT,
    -1,
    "Number of key groups, fixed for the life of the state. -1: half as much again as the parallelism, rounded up to a "
    "power of two, at least 128. For jobs that name neither `parallelism` nor `max_parallelism`.",
    check=lambda value: None if value == -1 or 1 <= value <= 32_768 else "be -1 or between 1 and 32768",
)
AGGREGATE_PHASES: Option[AggregatePhaseStrategy] = Option(
    "table.optimizer.agg-phase-strategy",
    enum(AggregatePhaseStrategy),
    AggregatePhaseStrategy.AUTO,
    "Whether rows of built-in aggregates are combined before the shuffle, so that a hot key costs little: AUTO and TWO_PHASE do "
    "it wherever it is possible, ONE_PHASE never. State and results are the same, so it may change between two starts.",
)
