"""DataFrames that cannot be a source are refused before anything runs."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.runtime.sources.source_checks import check_sources, plan_of


def sources(df):
    job = tg.Job("sources")
    job.source("clicks", df)
    return job.draft().sources


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda df: df.groupBy("value").count(), "streaming aggregation"),
        (lambda df: df.dropDuplicates(["value"]), "dropDuplicates"),
        (lambda df: df.select("value").join(df.select("value"), "value"), "stream-stream join"),
        (lambda df: df.limit(3), "limit"),
    ],
)
def test_state_of_sparks_own_upstream_is_refused(spark, make, words):
    df = spark.readStream.format("rate").load()
    with pytest.raises(tg.errors.PreconditionFailed, match=words):
        check_sources(sources(make(df)))


def test_stateless_sql_and_joins_with_tables_are_fine(spark):
    df = spark.readStream.format("rate").load().where("value > 3")
    table = spark.range(5).withColumnRenamed("id", "value")
    check_sources(sources(df))
    check_sources(sources(df.join(table, "value")))
    check_sources(sources(table.groupBy("value").count()))


def test_the_plan_of_a_stream_shows_the_options_it_is_read_with(spark):
    """By them `minPartitions` of Spark's Kafka source is noticed, which needs a jar that is not here."""
    (source,) = sources(spark.readStream.format("rate").option("rowsPerSecond", 7).load())
    (relation,) = {line.strip() for line in plan_of(source).splitlines() if "StreamingRelationV2" in line}
    assert "RateStreamProvider" in relation
    assert "[rowsPerSecond=7]" in relation
