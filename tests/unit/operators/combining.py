"""Spark SQL's part in Python, for tests without a JVM: it evaluates the expressions that `graph.combine` gives to Spark."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

from tidegate.core.times import time_ms
from tidegate.schema.output_columns import batch_from_rows
from tidegate.state.keys import distinct

_AS = re.compile(r"(.+) as (_\w+)", re.DOTALL)
_PYTHON = (
    (re.compile(r"\b(\d+)L\b"), r"\1"),
    (re.compile(r"`(\w+)`"), r"_col('\1')"),
    (re.compile(r"\bif\("), "_if("),
    (re.compile(r"count\(\*\)"), "count()"),
    (re.compile(r"(\w+) is null"), r"(\1 is None)"),
    (re.compile(r"cast\(null as \w+\)"), "None"),
    (re.compile(r"\bnull\b"), "None"),
)
"""What the expressions of `graph.combine` contain, and what it is in Python. Anything else fails."""


@cache
def translated(sql):
    for pattern, text in _PYTHON:
        sql = pattern.sub(text, sql)
    return compile(sql, sql, "eval")


def evaluated(sql, row, functions):
    """The value of an expression for a row or, with aggregate functions, for a group."""
    return eval(translated(sql), {"__builtins__": {}, **functions}, row)


def stepped(combine, rows, watermark_ms):
    """Each row with the columns that Spark adds to it before it groups them."""
    for number, row in enumerate(rows):
        functions = {
            "_col": row.__getitem__,
            "_if": lambda condition, yes, no: yes if condition else no,
            "pmod": lambda value, by: value % by,
            "unix_millis": time_ms,
            "monotonically_increasing_id": lambda number=number: number,
            "named_struct": lambda *parts: tuple(parts[1::2]),
        }
        for step in combine.steps_sql(watermark_ms):
            sql, name = _AS.fullmatch(step).groups()
            row = row | {name: evaluated(sql, row, functions)}
        yield row


def placed(combine, members):
    """The columns of a group before its parts: where it is in time, its rows, and the greatest event time."""
    functions = {
        "_col": lambda name: [row[name] for row in members],
        "min": min,
        "max": max,
        "count": lambda: len(members),
        "unix_millis": time_ms,
    }
    group = {name: members[0][name] for name in combine.grouping()}
    for column in combine.aggregates_sql(combine.event_time)[: -len(combine.parts)]:
        sql, _ = _AS.fullmatch(column).groups()
        yield evaluated(sql, group, functions)


def combined(node, rows, watermark_ms):
    """Combined rows by key, those that may be late last. `rows` are tuples in the columns of the operator's input."""
    combine, names = node.combine, node.input.schema.names
    of_windows = combine.event_time is not None
    function = node.function.contents.fold.function if of_windows else node.function.aggregates
    groups = defaultdict(list)
    for row in stepped(combine, [dict(zip(names, row)) for row in rows], watermark_ms):
        place = tuple(row[name] for name in combine.grouping())
        groups[tuple(row[name] for name in node.input.key), place].append(row)
    made = defaultdict(list)
    late_last = sorted(groups.items(), key=lambda group: any(part is not None for part in group[0][1][1:]))
    for (key, _), members in late_last:
        parts = function.create_accumulator()
        for row in members:
            parts = function.add(tuple(row[name] for name in names), parts)
        late = () if combine.rows is None else (members[0].get("_late"),)
        told = [list(distinct._codes(part)) if isinstance(part, bytes) else part for part in parts]
        made[key].append((*key, *placed(combine, members), *late, *told))
    return made


def feed(h, rows, watermark_ms):
    """One epoch of rows into a harness, combined if the plan of the job says so."""
    if h.tested.node.combine is None:
        h.process(*rows)
        return
    for key, found in combined(h.tested.node, rows, watermark_ms).items():
        group, subtask = h._owner(key[0] if len(key) == 1 else key)
        columns = batch_from_rows(found, h.tested.node.combine.schema).columns
        subtask.operator.accept_combined(columns, [group] * len(found))
