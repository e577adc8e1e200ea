"""The guarantee of a whole job: the weakest of its sources, its engine and its sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.core.guarantee import Guarantee
from tidegate.core.ids import Uid
from tidegate.graph.model import Graph, SinkNode, Source


@dataclass(frozen=True, slots=True)
class JobGuarantee:
    level: Guarantee
    weakest: tuple[str, ...]
    """The parts that limit it to less than exactly once: "the engine", or nodes as `source 'uid'` and `sink 'uid'`."""


def of_sink(sink: SinkNode) -> Guarantee:
    """The guarantee that the target declares. A target that declares none may repeat rows."""
    found = getattr(sink.target, "guarantee", None)
    return found if isinstance(found, Guarantee) else Guarantee.AT_LEAST_ONCE


def of_source(source: Source) -> Guarantee:
    """Spark sources can re-read from a recorded position; a user who chose one that cannot has declared it."""
    return Guarantee.AT_MOST_ONCE if source.at_most_once else Guarantee.EXACTLY_ONCE


def of_job(
    graph: Graph, engine: Guarantee = Guarantee.EXACTLY_ONCE, sources: Mapping[Uid, Guarantee] | None = None
) -> JobGuarantee:
    """`engine`: exactly once with checkpoints, at most once without. `sources`: those known to be weaker than Spark's
    promise to re-read from a recorded position."""
    weaker = sources or {}
    parts = {"the engine": engine}
    parts |= {
        str(source): min(of_source(source), weaker.get(source.uid, Guarantee.EXACTLY_ONCE)) for source in graph.sources
    }
    parts |= {str(sink): of_sink(sink) for sink in graph.sinks}
    level = min(parts.values())
    exact = level is Guarantee.EXACTLY_ONCE
    return JobGuarantee(level, () if exact else tuple(name for name, found in parts.items() if found is level))
