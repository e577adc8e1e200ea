"""DataFrames that cannot be a source are refused before anything runs."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.runtime.sources import check_sources


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
