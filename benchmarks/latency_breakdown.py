"""Where the time of a row went on its way through tidegate: from what the job reports about epochs, checkpoints and commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.latency_load import Seen

WAIT = "waits for its epoch"
STREAMING = "Structured Streaming: plan, offset log"
BEFORE = "placement, repeated tries"
PLAN = "plans the Spark job"
CHECKPOINT = "waits for a checkpoint"
UPLOAD = "upload and acknowledgement"
PUBLISH = "metadata and log entry"
RELEASE = "waits for the commit"
COMMIT = "commit to Kafka"
READER = "reader sees it"
_PHASES = {"repeat": BEFORE, "plan": PLAN, "source": "source tasks", "collect": "acknowledgements to the driver"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTimes:
    """One epoch. Times are milliseconds since 1970."""

    number: int
    rows: int
    fixed_ms: float
    """When its offsets were fixed."""
    started_ms: float
    ended_ms: float
    phases: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTimes:
    """A completed checkpoint of an epoch."""

    number: int
    triggered_ms: float
    acked_ms: float
    completed_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTimes:
    """A commit that published the output of a checkpoint."""

    started_ms: float
    ended_ms: float


def breakdown(
    seen: Seen, begin_s: float, end_s: float, epochs: Sequence[EpochTimes], checkpoints: Sequence[CheckpointTimes],
    commits: Sequence[CommitTimes],
) -> dict[str, float]:  # fmt: skip
    """Return the mean milliseconds that a row sent in this time spent in each step. Rows belong to epochs in the order in
    which they were sent.
    """
    totals: dict[str, float] = {}
    rows = 0
    for epoch, first, last in _with_rows(epochs):
        sent = seen.sent_s[first:last] * 1000
        shown = seen.seen_s[first:last] * 1000
        chosen = (sent >= begin_s * 1000) & (sent < end_s * 1000) & ~np.isnan(shown)
        taken = next((each for each in checkpoints if each.number >= epoch.number), None)
        if not chosen.any() or taken is None:
            continue
        count = int(chosen.sum())
        shown_ms = float(shown[chosen].mean())
        steps = {WAIT: epoch.fixed_ms - float(sent[chosen].mean())}
        steps |= _inside(epoch)
        steps |= _after(epoch, taken, commits, shown_ms)
        for name, value in steps.items():
            totals[name] = totals.get(name, 0.0) + value * count
        rows += count
    return {name: total / rows for name, total in totals.items()} if rows else {}


def _with_rows(epochs: Iterable[EpochTimes]) -> Iterable[tuple[EpochTimes, int, int]]:
    at = 0
    for epoch in epochs:
        yield epoch, at, at + epoch.rows
        at += epoch.rows


def _inside(epoch: EpochTimes) -> dict[str, float]:
    parts = {name: took for name, took in epoch.phases.items() if name not in ("run", "streaming")}
    named = {_PHASES.get(name, f"{name} tasks"): float(took) for name, took in parts.items()}
    rest = epoch.ended_ms - epoch.started_ms - sum(named.values())
    return {STREAMING: epoch.started_ms - epoch.fixed_ms, **named, BEFORE: named.get(BEFORE, 0.0) + rest}


def _after(
    epoch: EpochTimes, taken: CheckpointTimes, commits: Sequence[CommitTimes], shown_ms: float
) -> dict[str, float]:
    triggered_ms = max(epoch.ended_ms, taken.triggered_ms)
    acked_ms = max(triggered_ms, taken.acked_ms)
    completed_ms = max(acked_ms, taken.completed_ms)
    steps = {
        CHECKPOINT: triggered_ms - epoch.ended_ms,
        UPLOAD: acked_ms - triggered_ms,
        PUBLISH: completed_ms - acked_ms,
    }
    commit = next((each for each in commits if each.started_ms >= completed_ms - 2), None)
    if commit is None or commit.started_ms > shown_ms:
        return steps | {RELEASE: shown_ms - completed_ms}
    ended_ms = min(commit.ended_ms, shown_ms)
    return steps | {
        RELEASE: max(0.0, commit.started_ms - completed_ms),
        COMMIT: ended_ms - max(completed_ms, commit.started_ms),
        READER: shown_ms - ended_ms,
    }
