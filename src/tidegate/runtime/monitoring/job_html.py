"""A job as HTML, for notebooks: one piece without scripts or links, readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from tidegate.checkpoint.coordination.statistics import CheckpointStatsSnapshot
from tidegate.core.durations import show_ms
from tidegate.core.redaction import redacted
from tidegate.runtime.monitoring.health import Tone, answers, end_text
from tidegate.runtime.monitoring.run_report import EpochLine, FailureLine, RunReport, SinkLine

_COLOURS = {"RUNNING": "#1a7f37", "RESTARTING": "#9a6700", "CANCELLING": "#9a6700", "FAILED": "#cf222e"}
"""Dark enough for white text; pages may be of any colour."""
_LINE = "1px solid rgba(128,128,128,.4)"
_CELL = "padding:2px 16px 2px 0;text-align:left;vertical-align:top;background:none;border:0"


def job_html(report: RunReport) -> str:
    # Not the clock of whoever shows it: a record may be days old, and the ages are those that it had.
    now_ms = report.written_ms
    rows = [
        *_answers(report, now_ms),
        *_epochs(report.epochs),
        *_times(report.watermark_ms, now_ms),
        ("Checkpoints", _checkpoints(report.checkpoints, now_ms)),
        ("Output", _output(report.sinks, report.held_by)),
        *_failure(report.failures),
    ]
    cells = "".join(
        f'<tr><th style="{_CELL};opacity:.7">{name}</th><td style="{_CELL}">{text}</td></tr>' for name, text in rows
    )
    up = _ago((report.ended_ms or now_ms) - report.started_ms)
    return (
        f'<div style="border:{_LINE};border-radius:6px;padding:8px 12px;max-width:60em;font-variant-numeric:tabular-nums">'
        f"<div><strong>{escape(report.job)}</strong> {_badge(report)} up {up}, restarts {report.restarts}</div>"
        f'<table style="border-collapse:collapse;margin:6px 0 0">{cells}</table></div>'
    )


def _badge(report: RunReport) -> str:
    colour = _COLOURS.get(report.status, "#57606a")
    style = f"background:{colour};color:#fff;border-radius:4px;padding:1px 8px;font-size:90%"
    return f'<span style="{style}">{escape(end_text(report) or report.status)}</span>'


def _answers(report: RunReport, now_ms: int) -> Iterator[tuple[str, str]]:
    """Whether the job is healthy, and whether it keeps up; the rows below say the rest."""
    for each in answers(report, now_ms)[:2]:
        age = "" if each.at_ms is None else f" {_ago(max(0, now_ms - each.at_ms))} ago"
        text = f"{each.answer}{', ' if each.detail else ''}{each.detail}{age}"
        yield each.question, _warn(text) if each.tone in (Tone.BAD, Tone.WARN) else escape(redacted(text))


def _epochs(epochs: Sequence[EpochLine]) -> Iterator[tuple[str, str]]:
    if not epochs:
        yield "Epochs", "none yet"
        return
    last = epochs[-1]
    rate = last.rows_in * 1000 / max(1, last.duration_ms)
    yield "Last epoch", f"{last.epoch}: {last.rows_in:,} rows in {show_ms(last.duration_ms)}, {rate:,.0f} rows/s"
    chart = _chart([each.duration_ms for each in epochs], "Duration of the last epochs")
    longest = show_ms(max(each.duration_ms for each in epochs))
    yield "Durations", f"{chart} the longest of {len(epochs)}: {longest}"


def _chart(values: Sequence[int], title: str) -> str:
    """Bars in the colour of the text."""
    width, height, greatest = 4, 24, max(1, *values)
    bars = "".join(
        f'<rect x="{place * width}" y="{height - size}" width="{width - 1}" height="{size}"/>'
        for place, size in enumerate(max(1, round(height * value / greatest)) for value in values)
    )
    return (
        f'<svg role="img" aria-label="{escape(title)}" width="{width * len(values)}" height="{height}" '
        f'style="vertical-align:middle;opacity:.8" fill="currentColor">{bars}</svg>'
    )


def _times(watermark_ms: int | None, now_ms: int) -> Iterator[tuple[str, str]]:
    if watermark_ms is not None:
        yield "Watermark", f"{_ago(now_ms - watermark_ms)} behind"


def _checkpoints(found: CheckpointStatsSnapshot | None, now_ms: int) -> str:
    if found is None:
        return "not enabled"
    counts, last, failed = found.counts, found.latest_completed, found.latest_failed
    text = f"{counts.completed} completed, {counts.failed} failed, {counts.in_progress} in progress"
    if last is not None:
        age_ms = max(0, now_ms - last.trigger_timestamp - last.end_to_end_ms)
        text += f"; the last ({last.id}) {_ago(age_ms)} ago, took {show_ms(last.end_to_end_ms)}"
    if failed is not None and (last is None or failed.id > last.id):
        text += f"<br>{_warn(f'{failed.id} failed: {failed.failure_message}')}"
    return text


def _output(sinks: Iterable[SinkLine], held_by: str | None) -> str:
    lines = [_waiting(each) for each in sinks if each.waiting_epochs]
    held = [_warn(f"the job reads nothing until {held_by} has taken its output")] if held_by is not None else []
    return "<br>".join([*held, *lines]) or "nothing waits"


def _waiting(sink: SinkLine) -> str:
    many = f"{sink.waiting_epochs} epoch{'' if sink.waiting_epochs == 1 else 's'}"
    text = f"{sink.sink}: output of {many} waits"
    return escape(text) if sink.error is None else _warn(f"{text}: {sink.error}")


def _failure(failures: Sequence[FailureLine]) -> Iterator[tuple[str, str]]:
    for last in failures[:1]:
        did = "the job restarted" if last.restarted else "the job ended"
        first = next(iter(last.message.splitlines()), "")
        yield "Last failure", _warn(f"{last.kind}; {did}. {first}")


def _warn(text: str) -> str:
    """In the colour of the page, with a mark: red text is hard to read on dark pages."""
    return f'<span style="border-left:3px solid #cf222e;padding-left:6px">{escape(redacted(text))}</span>'


def _ago(ms: int) -> str:
    """Rounded, since it changes each second: `12 s`, `3 min`, `2.5 h`."""
    if ms < 60_000:
        return f"{ms / 1000:.0f} s"
    return f"{ms / 60_000:.0f} min" if ms < 3_600_000 else f"{ms / 3_600_000:.1f} h"
