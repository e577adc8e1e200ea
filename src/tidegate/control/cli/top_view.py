"""One frame of `tidegate top`: the report of a job as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidegate.control.cli.output import size, visible
from tidegate.core.durations import show_ms

Report = Mapping[str, Any]

_BARS = " ▁▂▃▄▅▆▇█"
_STATUS_STYLES = {
    "RUNNING": "bold green",
    "RESTARTING": "bold yellow",
    "CANCELLING": "bold yellow",
    "FAILED": "bold red",
    "LOST": "bold red",
}
_DONE = ("CANCELED", "FINISHED", "FAILED", "LOST")
_MOST_SPANS = 10
_MOST_STATES = 20
_WIDE = 24
"""Characters of the bar that shows busy, idle and held."""


def has_ended(report: Report) -> bool:
    return report.get("status") in _DONE


def frame(report: Report, most_tasks: int = 20, problem: str | None = None) -> RenderableType:
    """Draw a report. `problem`: why there is no newer one; then the frame is dimmed and shows its age."""
    # From "is anything wrong" to "where", so that a short terminal cuts off what matters least.
    parts: list[RenderableType] = [_headline(report)]
    if problem is not None:
        parts.append(Text(visible(problem), style="bold red"))
    parts += [
        *_answers(report),
        _section("Epochs", _epochs(report)),
        _section("Checkpoints", _checkpoints(report)),
        *_listed("Sources", ("source", "event-time lag", "rows waiting"), _sources(report), right=(1, 2)),
        *_listed(
            "Sinks",
            ("sink", "guarantee", "committed up to", "waiting epochs", "waiting bytes", "oldest", "error"),
            _sinks(report),
            right=(3, 4, 5),
        ),
        *_listed(
            "Tasks, the busiest first",
            ("task", "busy, idle, held", "busy", "rows in", "rows out", "state", "memory", "host"),
            _tasks(report, most_tasks),
            right=(2, 3, 4, 5, 6),
        ),
        *_listed(
            "States, the largest first (sizes are estimates)",
            ("operator", "state", "size", "share"),
            _states(report),
            right=(2, 3),
        ),
        *_listed(
            "Parts of functions, the most time first",
            ("operator", "ctx.span", "uses", "total", "mean", "longest", "key of the longest"),
            _spans(report),
            right=(2, 3, 4, 5),
        ),
        *_failures(report),
    ]
    body = Group(*parts)
    return body if problem is None else Panel(body, style="dim")


def _headline(report: Report) -> Text:
    status = str(report.get("status"))
    now = report.get("now_ms")
    started = report.get("started_ms")
    shown = visible(str(report.get("end_text") or status))
    line = Text.assemble((visible(str(report.get("job"))), "bold"), "  ", (shown, _STATUS_STYLES.get(status, "bold")))
    if now is not None and started is not None:
        ended = report.get("ended_ms")
        line.append(f"  up {duration((ended or now) - started)}")
    line.append(f"  restarts {report.get('restarts', 0)}")
    holder = report.get("held_by")
    if holder:
        line.append(f"  reads nothing: too much output waits for {visible(str(holder))}", style="bold red")
    if now is not None:
        line.append(f"  {clock(now)} UTC", style="dim")
    return line


_TONES = {"ok": ("●", "green"), "warn": ("▲", "yellow"), "bad": ("■", "bold red"), "none": ("○", "dim")}
"""The shapes of the web UI: they differ without colour, too."""


def _answers(report: Report) -> Iterable[RenderableType]:
    """Yield the server's answers, with ages as of its report."""
    now = report.get("now_ms")
    lines = []
    for each in report.get("answers") or ():
        shape, style = _TONES.get(str(each.get("tone")), _TONES["none"])
        answer = _age(now, each.get("answer_at_ms")) or str(each.get("answer") or "")
        detail = f"{each.get('detail') or ''} {_age(now, each.get('at_ms'))}".strip()
        lines.append(
            Text.assemble(
                (f"{each.get('question')!s:<16}", "dim"),
                (shape, style),
                " ",
                (visible(answer), style),
                (f"  {visible(detail)}" if detail else "", "dim"),
            )
        )
    if lines:
        yield _section("Health", lines)


def _age(now_ms: int | None, at_ms: int | None) -> str:
    # Whole seconds: the frame is drawn about once a second, and flickering digits are hard to read.
    return "" if now_ms is None or at_ms is None else f"{duration(max(0, (now_ms - at_ms) // 1000 * 1000))} ago"


def _epochs(report: Report) -> Iterable[Text]:
    epochs: Sequence[Mapping[str, Any]] = report.get("epochs") or ()
    if not epochs:
        yield Text("no epoch yet", style="dim")
        return
    last = epochs[-1]
    ms = max(1, last.get("duration_ms") or 0)
    text = f"{last.get('epoch')}: {last.get('rows_in', 0):,} rows in {duration(ms)}, {per_second(last)} rows/s"
    phases = ", ".join(f"{name} {duration(took)}" for name, took in (last.get("phases") or {}).items())
    age = _age(report.get("now_ms"), last.get("ended_ms"))
    text = f"{text}, ended {age}" if age else text
    yield Text(f"{text}  ({phases})" if phases else text)
    yield Text.assemble(("duration  ", "dim"), bars([each.get("duration_ms") or 0 for each in epochs]))
    yield Text.assemble(("rows/s    ", "dim"), bars([per_second_of(each) for each in epochs]))
    lag = report.get("watermark_ms")
    if lag is not None and report.get("now_ms") is not None:
        yield Text(f"watermark {clock(lag)} UTC, {duration(report['now_ms'] - lag)} behind")


def _checkpoints(report: Report) -> Iterable[Text]:
    statistics = report.get("checkpoints")
    if not statistics:
        yield Text("not enabled", style="dim")
        return
    counts = statistics.get("counts") or {}
    latest = statistics.get("latest") or {}
    interval = (report.get("checkpoint_config") or {}).get("interval")
    every = "" if interval is None else f", every {show_ms(interval)}"
    yield Text(
        f"{counts.get('completed', 0)} completed, {counts.get('failed', 0)} failed, "
        f"{counts.get('in_progress', 0)} in progress{every}"
    )
    completed = latest.get("completed")
    failed = latest.get("failed")
    now = report.get("now_ms")
    if completed:
        ended = completed["trigger_timestamp"] + completed["end_to_end_duration"]
        ago = "" if now is None else f"{duration(max(0, now - ended))} ago, "
        yield Text(
            f"last: {completed['id']}, {ago}took {duration(completed['end_to_end_duration'])}, "
            f"{size(completed['checkpointed_size'])} of {size(completed['state_size'])}"
        )

    # A failure counts until a later checkpoint completes.
    if failed and (not completed or failed["id"] > completed["id"]):
        why = str(failed.get("failure_message") or "")
        yield Text(visible(f"{failed['id']} FAILED: {first_line(why)}"), style="bold red")


def _sources(report: Report) -> Iterable[tuple[str, ...]]:
    for each in report.get("sources") or ():
        lag = each.get("event_time_lag_ms")
        pending = each.get("pending_rows")
        yield str(each["source"]), dash(lag, duration), dash(pending, lambda rows: f"{rows:,}")


def _sinks(report: Report) -> Iterable[tuple[str, ...]]:
    now = report.get("now_ms")
    for each in report.get("sinks") or ():
        oldest = each.get("oldest_waiting_ms")
        yield (
            str(each["sink"]),
            str(each.get("guarantee") or "-"),
            str(each.get("published_epoch") or "-"),
            f"{each.get('waiting_epochs') or 0:,}",
            size(each.get("waiting_bytes") or 0),
            "-" if oldest is None or now is None else duration(now - oldest),
            first_line(str(each.get("error") or "-")),
        )


def _tasks(report: Report, most: int) -> Iterable[tuple[str | Text, ...]]:
    tasks = sorted(report.get("tasks") or (), key=lambda each: -(each.get("busy") or 0))
    for each in tasks[:most]:
        yield (
            str(each["task"]),
            share_bar(each),
            f"{each.get('busy') or 0:.0%}",
            f"{each.get('rows_in') or 0:,}",
            f"{each.get('rows_out') or 0:,}",
            dash(each.get("state_bytes"), size),
            dash(each.get("resident_bytes"), size),
            str(each.get("host_name") or each.get("host") or "-"),
        )
    if len(tasks) > most:
        yield (f"and {len(tasks) - most} more",)


def _states(report: Report) -> Iterable[tuple[str, ...]]:
    states: Sequence[Mapping[str, Any]] = report.get("states") or ()
    whole = max(1, sum(each["bytes"] for each in states))
    for each in states[:_MOST_STATES]:
        yield str(each["operator"]), str(each["state"]), f"≈ {size(each['bytes'])}", f"{each['bytes'] / whole:.0%}"
    if len(states) > _MOST_STATES:
        yield (f"and {len(states) - _MOST_STATES} more",)


def _spans(report: Report) -> Iterable[tuple[str, ...]]:
    for each in list(report.get("spans") or ())[:_MOST_SPANS]:
        mean_ms = each["total_ms"] / max(1, each["uses"])
        times = (duration(ms) for ms in (each["total_ms"], mean_ms, each["longest_ms"]))
        key = each.get("longest_key")
        yield str(each["operator"]), str(each["span"]), f"{each['uses']:,}", *times, "-" if key is None else key


def _failures(report: Report) -> Iterable[RenderableType]:
    failures = report.get("failures") or ()
    if failures:
        last = failures[0]
        did = "the job restarted" if last.get("restarted") else "the job ended"
        text = f"{clock(last['at_ms'])} UTC  {last['kind']}; {did}\n{first_line(str(last['message']), 300)}"
        yield _section("Last failure", [Text(visible(text), style="red")])


def _section(title: str, lines: Iterable[RenderableType]) -> RenderableType:
    return Group(Text(f"\n{title}", style="bold underline"), *lines)


def _listed(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]], right: Sequence[int]
) -> Iterable[RenderableType]:
    cells = list(rows)
    if not cells:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    yield _section(title, [table])


def bars(values: Sequence[float]) -> Text:
    """Return a bar for each value, as high as its share of the greatest."""
    greatest = max(values, default=0)
    steps = len(_BARS) - 1
    # A small value is still a low bar: only zero is drawn as none.
    drawn = "".join(
        _BARS[max(1, round(steps * value / greatest))] if value and greatest else _BARS[0] for value in values
    )
    return Text(drawn, style="cyan")


def share_bar(task: Mapping[str, Any]) -> Text:
    """Draw busy, idle and held time of a task. Characters differ as well as colours, for people who cannot distinguish those."""
    line = Text()
    remaining = _WIDE
    for name, letter, style in (("busy", "█", "red"), ("held", "▒", "magenta"), ("idle", "·", "blue")):
        # Three rounded shares can be wider than the bar.
        count = min(remaining, round(_WIDE * (task.get(name) or 0)))
        line.append(letter * count, style=style)
        remaining -= count
    return line


def per_second_of(epoch: Mapping[str, Any]) -> float:
    return (epoch.get("rows_in") or 0) * 1000 / max(1, epoch.get("duration_ms") or 0)


def per_second(epoch: Mapping[str, Any]) -> str:
    return f"{per_second_of(epoch):,.0f}"


def duration(ms: float) -> str:
    """`40 µs`, `7.66 ms`, `840 ms`, `1.2 s`, `3 min 4 s`, `2 h 5 min`, `3 d 4 h`."""
    if ms < 0:
        return f"-{duration(-ms)}"
    if 0 < ms < 1:
        return f"{ms * 1000:.0f} µs"
    if ms < 10 and ms != int(ms):
        return f"{ms:.2f} ms"
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    seconds = round(ms / 1000)
    for big, unit, small, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= big:
            return f"{seconds // big} {unit} {seconds % big // small} {smaller}"
    raise AssertionError


def clock(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(ms)


def first_line(text: str, most: int = 80) -> str:
    line = next(iter(text.splitlines()), "")
    return line if len(line) <= most else f"{line[: most - 1]}…"


def dash(value: Any, show: Any) -> str:
    return "-" if value is None else show(value)
