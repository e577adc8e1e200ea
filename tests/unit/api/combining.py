"""Spark SQL's part in Python: rows of an epoch combined as `graph.combine` describes, for tests without a JVM."""

from __future__ import annotations

from collections import defaultdict

from tidegate.core.times import time_ms
from tidegate.graph.combine import SessionParts
from tidegate.graph.output_columns import batch_from_rows
from tidegate.state import distinct


def interval(intervals, ms):
    """The start of the interval that a time belongs to, and the end of the first window that a row at that time is in."""
    if isinstance(intervals, SessionParts):
        return ms - ms % intervals.gap_ms, ms + intervals.gap_ms
    pane = ms - (ms - intervals.offset_ms) % intervals.length_ms
    return pane, pane - (pane - intervals.offset_ms - intervals.size_ms) % intervals.slide_ms + intervals.slide_ms


def combined(node, rows, watermark_ms):
    """Combined rows by key, those that may be late last. `rows` are tuples in the columns of the operator's input."""
    combine, schema = node.combine, node.input.schema
    of_windows = combine.event_time is not None
    function = node.function._contents.fold.function if of_windows else node.function.aggregates
    time_at = schema.index(combine.event_time) if of_windows else None
    keys = [schema.index(name) for name in node.input.key]
    groups = defaultdict(list)
    for number, row in enumerate(rows):
        if not of_windows:
            groups[tuple(row[i] for i in keys), None, None].append(row)
            continue
        ms = time_ms(row[time_at])
        pane, first_end = interval(combine.intervals, ms)
        alone = number if first_end - 1 <= watermark_ms else None
        groups[tuple(row[i] for i in keys), pane, alone].append(row)
    made = defaultdict(list)
    for (key, pane, alone), members in sorted(groups.items(), key=lambda group: group[0][2] is not None):
        parts = function.create_accumulator()
        for row in members:
            parts = function.add(row, parts)
        late = () if combine.rows is None else (None if alone is None else members[0],)
        newest = max(row[time_at] for row in members) if of_windows else None
        place = (pane,)
        if isinstance(combine.intervals, SessionParts):
            times = [time_ms(row[time_at]) for row in members]
            place = min(times), max(times) - min(times)
        told = [list(distinct._codes(part)) if isinstance(part, bytes) else part for part in parts]
        made[key].append((*key, *place, len(members), newest, *late, *told))
    return made


def feed(h, rows, watermark_ms):
    """One epoch of rows, combined, into a harness of an operator that takes such."""
    for key, found in combined(h.node, rows, watermark_ms).items():
        group, subtask = h._owner(key[0] if len(key) == 1 else key)
        columns = batch_from_rows(found, h.node.combine.schema).columns
        subtask.operator.accept_combined(columns, [group] * len(found))
