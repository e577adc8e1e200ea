"""How many rows wait in a source, from what Spark reports about the last batch. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def pending_rows(progress: Mapping[str, Any]) -> int | None:
    """Return the rows between the end of the last batch and the end of the source. None if the source has no positions of
    the form {topic: {partition: offset}}, which Spark's and tidegate's Kafka sources have.
    """
    end, latest = _offsets(progress.get("endOffset")), _offsets(progress.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, offset - end.get(place, 0)) for place, offset in latest.items())


def _offsets(text: object) -> dict[tuple[str, str], int] | None:
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    if not isinstance(found, dict) or not found or not all(isinstance(each, dict) for each in found.values()):
        return None
    flat = {(topic, partition): offset for topic, each in found.items() for partition, offset in each.items()}
    return flat if all(isinstance(offset, int) for offset in flat.values()) else None
