"""What the sources and sinks of a job read and write, as lineage services name it."""

from __future__ import annotations

import re

from tidegate.connectors.dataset_names import DatasetName, of_path, of_topic
from tidegate.graph.model import Graph, Source
from tidegate.reporters.dataset import Dataset
from tidegate.runtime.sources.source_checks import plan_of
from tidegate.schema.schema import Schema

_FILES = re.compile(r"(?:FileSource|FileStreamSource)\[([^\]\s]+)\]")
_BROKERS = re.compile(r"\b(?:kafka\.bootstrap\.servers|servers)=([^,\]\s]+(?:,[^,\]\s=]+:\d+)*)")
_TOPICS = re.compile(r"\b(?:subscribe=([^\s\]]+)|topics=\[([^\]]*)\])")
_UNKNOWN = "tidegate"
"""The namespace of what nobody else would name: a sink of memory, a source of generated rows."""


def read_datasets(graph: Graph) -> list[Dataset]:
    return [
        Dataset(namespace, name, _columns(source.schema))
        for source in graph.sources
        for namespace, name in _read(graph.job, source)
    ]


def written_datasets(graph: Graph) -> list[Dataset]:
    """Sinks name what they write themselves, in `dataset`."""
    found = []
    for sink in graph.sinks:
        namespace, name = getattr(sink.target, "dataset", None) or (_UNKNOWN, f"{graph.job}.{sink.uid}")
        found.append(Dataset(namespace, name, _columns(sink.input.schema)))
    return found


def _read(job: str, source: Source) -> list[DatasetName]:
    """Read from the text of the plan what Spark reads."""
    return in_plan(plan_of(source)) or [(_UNKNOWN, f"{job}.{source.uid}")]


def in_plan(plan: str) -> list[DatasetName]:
    """Return the files and topics that the text of a plan names, as (namespace, name)."""
    brokers, topics = _BROKERS.search(plan), _TOPICS.search(plan)
    if brokers and topics:
        names = [name.strip(' "') for name in (topics[1] or topics[2]).split(",")]
        return [of_topic(brokers[1], name) for name in names if name]
    return sorted({of_path(path) for path in _FILES.findall(plan)})


def _columns(schema: Schema) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.type.ddl()) for field in schema.fields)
