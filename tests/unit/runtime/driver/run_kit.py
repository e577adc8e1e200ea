"""A report of a run, for tests that need one and care about some of it."""

from __future__ import annotations

from typing import Any

from tidegate.core.ids import Lineage, Term
from tidegate.graph.outline import Outline, OutlineEdge, OutlineNode, OutlineState
from tidegate.runtime.monitoring.run_report import EpochLine, RunReport, SinkLine, SourceLine, StateSizeLine, TaskLine

TASK_LINE = TaskLine(
    task="L1-S0", level=1, slot=0, host="h1", busy=0.5, idle=0.25, held=0.25, rows_in=10, rows_out=4, bytes_in=800, bytes_out=90,
    fired_timers=2, late_dropped=1, state_bytes=4096, resident_bytes=1 << 20, restore_ms=7, seal_ms=3,
)  # fmt: skip
GRAPH = Outline(
    (
        OutlineNode(uid="lines", name="lines", kind="source", label="", level=0),
        OutlineNode(
            uid="totals", name="totals", kind="process", label="Totals", level=1,
            states=(OutlineState(name="total", kind="value", type="ValueState[float]", ttl_ms=None),),
        ),
        OutlineNode(uid="out", name="out", kind="sink", label="FileSink", level=1),
    ),
    (
        OutlineEdge(source="lines", target="totals", exchange="keyed", key="word"),
        OutlineEdge(source="totals", target="out", exchange="chained"),
    ),
)  # fmt: skip


def run_report(**more: Any) -> RunReport:
    return RunReport(
        **{
            "job": "orders",
            "lineage": Lineage("f" * 32),
            "term": Term(3),
            "status": "RUNNING",
            "started_ms": 1_000,
            "written_ms": 9_000,
            "ended_ms": None,
            "host": "h1 (process 12)",
            "process": "",
            "versions": {"tidegate": "1"},
            "restarts": 0,
            "parallelism": 2,
            "max_parallelism": 128,
            "state_backend": "rocksdb",
            "graph": GRAPH,
            "epochs": (
                EpochLine(
                    epoch="3.41", ended_ms=8_000, duration_ms=500, rows_in=6200, tries=1, phases={"plan": 50}, operators={}
                ),
            ),
            "tasks": (TASK_LINE,),
            "states": (StateSizeLine(operator="totals", state="total", bytes=4096),),
            "sources": (SourceLine(source="lines", event_time_lag_ms=12),),
            "sinks": (SinkLine(sink="out", guarantee="EXACTLY_ONCE"),),
            "held_by": None,
            "watermark_ms": None,
            "failures": (),
            "checkpoints": None,
            "checkpoint_config": None,
            "operators": {"totals": (10, 4)},
            "options": (),
        }
        | more
    )  # fmt: skip
