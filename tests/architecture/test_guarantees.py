"""The page of sinks says of each what the sink says of itself."""

from __future__ import annotations

import re

import pytest

import tidegate as tg
from tests.sparks import ROOT
from tidegate.core.guarantee import Guarantee

SINKS = {
    "CallbackSink": tg.CallbackSink(print),
    "CollectSink": tg.CollectSink(),
    "DeltaSink": tg.DeltaSink("/t"),
    "DiscardSink": tg.DiscardSink(),
    "IcebergSink": tg.IcebergSink("c", "db.t"),
    "KafkaSink": tg.KafkaSink("localhost:9092", "t"),
    'KafkaSink(…, delivery_guarantee="at-least-once")': tg.KafkaSink(
        "localhost:9092", "t", delivery_guarantee="at-least-once"
    ),
    "FileSink": tg.FileSink("out"),
    "PostgresSink": tg.PostgresSink("", "t"),
    "PrintSink": tg.PrintSink(),
    "WriteAheadSink": tg.WriteAheadSink(print),
    "WriteAheadSink(…, idempotent=True)": tg.WriteAheadSink(print, idempotent=True),
}


@pytest.mark.feature("J13")
def test_every_public_sink_is_on_the_page_with_its_guarantee():
    page = (ROOT / "docs" / "connectors" / "README.md").read_text()
    told = {match[1]: match[2] for match in re.finditer(r"^\| \[?`(.+?)`.*? \| (.+?) \|", page, re.MULTILINE)}
    assert told == {name: str(sink.guarantee) for name, sink in SINKS.items()}  # type: ignore[attr-defined]
    protocol = {"Sink"}
    assert {name for name in tg.__all__ if name.endswith("Sink")} - protocol == {  # type: ignore[attr-defined]
        name.partition("(")[0] for name in SINKS
    }


@pytest.mark.feature("J13")
@pytest.mark.parametrize("page", ["files", "postgres", "write-ahead"])
def test_the_page_of_a_sink_states_its_guarantee(page):
    assert f"**Guarantee: {Guarantee.EXACTLY_ONCE}" in (ROOT / "docs" / "connectors" / f"{page}.md").read_text()


@pytest.mark.feature("J13")
def test_every_kind_of_source_is_on_the_page_with_its_guarantee():
    page = (ROOT / "docs" / "connectors" / "README.md").read_text()
    sources = page[page.index("## Sources") : page.index("## Sinks")]
    rows = re.findall(r"^\| (.+?) \| (at most once|exactly once) \|", sources, re.MULTILINE)
    told = {re.sub(r"\]\(.*?\)|[\[`]", "", name): guarantee for name, guarantee in rows}
    assert told == {
        "Kafka, by tg.kafka_source": "exactly once",
        'Kafka, by Spark\'s format("kafka")': "exactly once",
        "Files: parquet, json, csv, orc, text": "exactly once",
        "Files with cleanSource=delete or archive": "at most once",
        "Generated rows: rate, rate-micro-batch": "exactly once",
        "A table format's stream (Delta, Iceberg)": "exactly once",
        "Your Python Data Source": "exactly once",
        'A socket (format("socket"))': "at most once",
    }
