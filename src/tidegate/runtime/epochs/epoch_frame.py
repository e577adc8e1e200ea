"""The DataFrame of one epoch: source stage, shuffle, level, shuffle, level … ended by control rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.core.times import MIN_WATERMARK
from tidegate.graph.levels import Edge
from tidegate.graph.model import Source
from tidegate.runtime.exchange.channel import PACKED_TYPES
from tidegate.runtime.exchange.sql_rows import flat_name, is_flat, struct_name
from tidegate.runtime.exchange.task_parts import PackedAssignment
from tidegate.runtime.placement.anchor import Anchor
from tidegate.schema.schema import DataType
from tidegate.state.keys.key_groups import key_group_sql, slot_sql

LAST = "ctl binary"
_PACKED_DDL = ", ".join(f"{name} {type_}" for name, type_ in PACKED_TYPES.items())
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def source_column(place: int) -> str:
    """Return the column that holds the rows of a source in the single query that reads all sources."""
    return f"s{place}"


def combine(sources: Sequence[Source]) -> DataFrame:
    """Combine all sources into one DataFrame, so that one batch id and one set of offsets covers
    them: a struct column for each.
    """
    frames: list[DataFrame] = []
    types = [source.frame.schema for source in sources]
    for place, source in enumerate(sources):
        # A struct for each source: their columns may have the same names, and the null structs show whose row it is.
        own = F.struct(*[F.col(_quoted(name)) for name in source.frame.columns])
        columns = [own if i == place else F.lit(None).cast(type_) for i, type_ in enumerate(types)]
        frames.append(source.frame.select(*[c.alias(source_column(i)) for i, c in enumerate(columns)]))
    # One query, not one for each source: Spark then logs one set of offsets for a batch, which is what a checkpoint needs.
    return reduce(DataFrame.union, frames)


def source_rows(
    batch: DataFrame,
    sources: Sequence[Source],
    edges: Sequence[Edge],
    salts: Sequence[int],
    parallelism: int,
    max_parallelism: int,
    watermark_ms: int = MIN_WATERMARK,
) -> DataFrame:
    """The source stage in plain SQL: rows of each source, once for each edge that leaves it, with their slot's salt.

    `watermark_ms` is the watermark that applies while these rows are processed.
    """
    if len(edges) == 1 and edges[0].combine is not None:
        return _combined_rows(batch, sources[0], edges[0], salts, parallelism, max_parallelism, watermark_ms)

    places = {source.id: place for place, source in enumerate(sources)}
    table = F.array(*[F.lit(salt) for salt in salts])
    outputs: list[tuple[Column, Edge, Column, Column]] = []
    for edge in edges:
        name = source_column(places[edge.source.node])
        if edge.broadcast:
            continue
        if edge.key:
            group = F.expr(key_group_sql(edge.key, max_parallelism, name))
            slot = F.expr(slot_sql(edge.key, parallelism, max_parallelism, name))
        else:
            group = F.lit(-1)
            # Rows without a key stay together as Spark read them. Its public API says nothing more stable about a row (decision
            # 0010).
            slot = F.pmod(F.spark_partition_id(), F.lit(parallelism))
        outputs.append((F.col(name).isNotNull(), edge, group.cast("int"), F.element_at(table, slot + F.lit(1))))

    own = {edge.id: F.col(source_column(places[edge.source.node])) for edge in edges}

    def columns(edge: Edge, group: Column, part: Column) -> list[Column]:
        fixed = [part.alias("part"), group.alias("kg")]
        if is_flat(edges):
            names = edge.schema.names
            return [*fixed, *(own[edge.id].getField(name).alias(flat_name(i)) for i, name in enumerate(names))]
        data = [own[edge.id] if other.id == edge.id else F.lit(None).cast(_struct_ddl(other)) for other in edges]
        return [
            *fixed,
            F.lit(edge.id).alias("edge"),
            *(column.alias(struct_name(other)) for column, other in zip(data, edges)),
        ]

    to_all = [edge for edge in edges if edge.broadcast]
    # From the cheapest plan to the most general: `explode` of an array of structs costs more than a projection.
    if len(outputs) == 1 and len(places) == 1 and not to_all:
        return batch.select(*columns(*outputs[0][1:]))
    if len(edges) == len(places) and len({edge.source.node for edge in edges}) == len(edges) and not to_all:
        return _one_edge_each(batch, outputs, edges, places)

    # A row that several operators read is sent once to each of them.
    targets = [F.when(condition, F.struct(*columns(edge, group, part))) for condition, edge, group, part in outputs]
    copies = [F.array_compact(F.array(*targets))] if targets else []
    for edge in to_all:
        copies.append(
            _copied(F.col(source_column(places[edge.source.node])).isNotNull(), table, partial(columns, edge))
        )
    every = copies[0] if len(copies) == 1 else F.concat(*copies)
    return batch.select(F.explode(every).alias("x")).select("x.*")


def _combined_rows(
    batch: DataFrame,
    source: Source,
    edge: Edge,
    salts: Sequence[int],
    parallelism: int,
    max_parallelism: int,
    watermark_ms: int,
) -> DataFrame:
    """Return the rows of the only source, for the only operator that reads it, combined where possible."""
    combine = edge.combine
    assert combine is not None
    rows = batch.select(f"{source_column(0)}.*")
    for step in combine.steps_sql(watermark_ms):
        rows = rows.selectExpr("*", step)
    keys = [F.col(_quoted(name)) for name in edge.key]
    made = rows.groupBy(*keys, *combine.grouping()).agg(*map(F.expr, combine.aggregates_sql(source.watermark_column)))
    group = key_group_sql(edge.key, max_parallelism)
    slot = F.expr(slot_sql(edge.key, parallelism, max_parallelism))
    named = [*edge.key, *edge.schema.names[len(edge.key) :]]
    return made.select(
        F.element_at(F.array(*[F.lit(salt) for salt in salts]), slot + F.lit(1)).alias("part"),
        F.expr(group).cast("int").alias("kg"),
        *[
            F.col(_quoted(name)).cast(_ddl(field.type)).alias(flat_name(place))
            for place, (name, field) in enumerate(zip(named, edge.schema.fields))
        ],
    )


def _copied(condition: Column, salts: Column, columns: Callable[[Column, Column], list[Column]]) -> Column:
    """Return an array with a row for every slot, or an empty one."""
    kept = F.filter(salts, lambda _: condition)
    return F.transform(kept, lambda salt: F.struct(*columns(F.lit(-1).cast("int"), salt)))


def _one_edge_each(
    batch: DataFrame,
    outputs: Sequence[tuple[Column, Edge, Column, Column]],
    edges: Sequence[Edge],
    places: dict[Any, int],
) -> DataFrame:
    """The common case: every source feeds one operator, and no row has to be sent twice."""

    def choose(values: Sequence[Column]) -> Column:
        chosen = F.lit(None)
        for (condition, *_), value in reversed(list(zip(outputs, values))):
            chosen = F.when(condition, value).otherwise(chosen)
        return chosen

    return batch.select(
        choose([part for *_, part in outputs]).cast("int").alias("part"),
        choose([group for _, _, group, _ in outputs]).cast("int").alias("kg"),
        choose([F.lit(edge.id) for _, edge, _, _ in outputs]).cast("int").alias("edge"),
        *[F.col(source_column(places[edge.source.node])).alias(struct_name(edge)) for edge in edges],
    )


def no_rows(spark: SparkSession, edges: Sequence[Edge], packed: bool) -> DataFrame:
    """Return what the sources send in an empty epoch. `packed`: they would be read by Python before the first shuffle."""
    types = _types(edges, packed)
    # A column, not a literal: Spark would fold a literal, hash by a constant, and no
    # longer zip the rows with the anchor.
    part = F.col("id").cast("int").alias("part")
    rest = [F.lit(None).cast(type_).alias(name) for name, type_ in types.items()]
    return spark.range(0).select(part, *rest)


def _types(edges: Sequence[Edge], packed: bool) -> dict[str, str]:
    """The columns after `part`."""
    if packed:
        return {name: type_ for name, type_ in PACKED_TYPES.items() if name != "part"}
    if is_flat(edges):
        return {"kg": "int", **{flat_name(i): _ddl(field.type) for i, field in enumerate(edges[0].schema.fields)}}
    return {"kg": "int", "edge": "int", **{struct_name(edge): _struct_ddl(edge) for edge in edges}}


def source_tasks(batch: DataFrame, assignment: PackedAssignment) -> DataFrame:
    """The source stage where Python functions come before the first shuffle."""
    return batch.mapInArrow(_runner("run_source_stage", assignment, "sources"), _PACKED_DDL)


def level(rows: DataFrame, anchor: Anchor, assignment: PackedAssignment, name: str) -> DataFrame:
    """Add one level over the rows that the previous one sent. Spark's UI shows the plan with this name."""
    columns = _PACKED_DDL if assignment.shared.salts else LAST
    return anchor.join(rows).mapInArrow(_runner("run_level", assignment, name), columns)


@contextmanager
def combine_shuffle(batch: DataFrame | None, edges: Sequence[Edge], partitions: int) -> Iterator[None]:
    """If rows are combined before their shuffle, give Spark's own shuffle for that as many partitions as the job
    has, instead of the default of 200. The session is the query's; in a bounded run it is the user's, and its
    setting is restored afterwards.
    """
    if batch is None or all(edge.combine is None for edge in edges):
        yield
        return
    conf = batch.sparkSession.conf
    before = conf.get(_SHUFFLE_PARTITIONS)
    conf.set(_SHUFFLE_PARTITIONS, str(partitions))
    try:
        yield
    finally:
        if before is not None:
            conf.set(_SHUFFLE_PARTITIONS, before)


def _struct_ddl(edge: Edge) -> str:
    return _ddl(DataType("struct", fields=edge.schema.fields))


def _ddl(type: DataType) -> str:
    return type.without_nullability().ddl()


def _runner(entry: str, assignment: PackedAssignment, name: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 in the worker

        from tidegate.runtime.task import run_level as task  # noqa: PLC0415 in the worker
        from tidegate.runtime.task.background_upload import range_reader  # noqa: PLC0415 in the worker

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        own = assignment.open(partition, range_reader(assignment.shared.archive))
        # `taskAttemptId` and not `attemptNumber`, which starts at 0 again when Spark reruns a stage.
        yield from getattr(task, entry)(own, partition, context.taskAttemptId(), batches)

    run.__name__ = name
    return run


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
