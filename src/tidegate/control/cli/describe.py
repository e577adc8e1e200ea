"""A snapshot's metadata as a document and as tables for people; shared by `checkpoints show` and `savepoint show`."""

from __future__ import annotations

from typing import Any

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorInfo, StateInfo
from tidegate.control.cli.output import Block, Facts, OutputTable, moment, size
from tidegate.core.ids import ordinal
from tidegate.savepoint.schema_codec import show_schema
from tidegate.savepoint.snapshot import StoredSnapshot


def document(snapshot: StoredSnapshot) -> dict[str, Any]:
    """Return the metadata as a document, with the field names of Flink's REST API if it has them."""
    m = snapshot.metadata
    return {
        "id": m.checkpoint_id,
        "job": m.job,
        "external_path": snapshot.url,
        "is_savepoint": m.kind == "savepoint",
        "savepointFormat": m.savepoint_format,
        "trigger_timestamp": m.triggered_ms,
        "latest_ack_timestamp": m.completed_ms,
        "end_to_end_duration": m.completed_ms - m.triggered_ms,
        "checkpointed_size": m.delta_size_bytes,
        "state_size": m.full_size_bytes,
        # From here on, what Flink's REST does not have.
        "lineage": m.lineage,
        "term": ordinal(m.term),
        "epoch": str(m.epoch),
        "parallelism": m.parallelism,
        "max_parallelism": m.max_parallelism,
        "watermark": m.watermark_ms,
        "processing_time": m.clock_ms,
        "waiting_committables": m.waiting_count,
        "tidegate": m.tidegate_version,
        "spark": m.spark_version,
        "states": states(m),
        "tasks": [
            {
                "task": str(task.task),
                "key_groups": list(task.key_groups),
                "backend": task.backend,
                "version": str(task.version),
                "files": len(task.files) + len(task.inline),
                "state_size": task.size_bytes,
            }
            for task in m.tasks
        ],
        "positions": {position.uid: list(position.lines) for position in m.positions},
    }


def states(m: CheckpointMetadata) -> list[dict[str, Any]]:
    return [_state(operator, state) for operator in m.operators for state in operator.states]


def _state(operator: OperatorInfo, state: StateInfo) -> dict[str, Any]:
    return {
        "operator": operator.uid,
        "state": state.name,
        "kind": state.kind,
        "distribution": str(state.distribution),
        "key": show_schema(operator.key),
        "map_key": None if state.map_key is None else show_schema(state.map_key),
        "value": show_schema(state.value),
        "ttl_ms": state.ttl_ms,
        "level": operator.level,
        "parallelism": operator.parallelism,
        "backend": operator.backend,
    }


def state_table(m: CheckpointMetadata) -> OutputTable:
    rows = [
        (s["operator"], s["state"], s["kind"], s["key"], s["map_key"], s["value"], s["backend"], s["parallelism"])
        for s in states(m)
    ]
    return OutputTable(
        "States", ("Operator", "State", "Kind", "Key", "Map key", "Value", "Backend", "Parallelism"), rows
    )


def blocks(snapshot: StoredSnapshot) -> list[Block]:
    m = snapshot.metadata
    kind = f"Savepoint ({snapshot.format})" if m.kind == "savepoint" else "Checkpoint"
    facts = Facts(
        f"{kind} {m.checkpoint_id} of job {m.job}",
        [
            ("Path", snapshot.url),
            ("Trigger time", moment(m.triggered_ms)),
            ("End to end duration", f"{m.completed_ms - m.triggered_ms} ms"),
            # Labels of Flink's dashboard, where it shows the same.
            ("Checkpointed data size", size(m.delta_size_bytes)),
            ("Full checkpoint data size", size(m.full_size_bytes)),
            ("Epoch", str(m.epoch)),
            ("Lineage", m.lineage),
            ("Parallelism", f"{m.parallelism} of {m.max_parallelism}"),
            ("Watermark", moment(m.watermark_ms)),
            ("Processing time", moment(m.clock_ms)),
            ("Output waiting", m.waiting_count),
            ("Written by", f"tidegate {m.tidegate_version}, Spark {m.spark_version}"),
        ],
    )
    tasks = OutputTable(
        "Tasks",
        ("Task", "Key groups", "Backend", "Files", "State size"),
        [
            (
                str(t.task),
                f"{t.key_groups[0]}–{t.key_groups[1]}",
                t.backend,
                len(t.files) + len(t.inline),
                size(t.size_bytes),
            )
            for t in m.tasks
        ],
    )
    positions = OutputTable("Positions", ("Source", "Position"), [(p.uid, " ".join(p.lines)) for p in m.positions])
    return [facts, state_table(m), tasks, *([positions] if m.positions else [])]
