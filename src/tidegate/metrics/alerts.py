"""The alert rules that tidegate ships for Prometheus. Queries are made from the catalog, so none can name a metric that does
not exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tidegate.metrics import catalog as c
from tidegate.metrics.metric import Metric

ONE_JOB = "on (job, instance)"
"""Matches samples of one run, whatever other labels they have."""


class Severity(StrEnum):
    CRITICAL = "critical"
    """Wake someone: rows do not arrive where they should, or will soon not."""
    WARNING = "warning"
    """Look at it in the morning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """When alerts fire. Durations in seconds."""

    evaluation_s: int = 30
    """How often Prometheus evaluates the rules."""
    checkpoint_intervals: int = 3
    """A checkpoint older than that many intervals is too old."""
    output_wait_s: int = 300
    """How long output may wait for its target."""
    stall_s: int = 600
    """How long a source may deliver nothing, and how long the watermark may stand still."""
    window_s: int = 600
    """How far back failures and restarts are counted."""
    restarts: int = 3
    """More restarts than that within the window are a loop."""
    memory_share: float = 0.9
    disk_share: float = 0.1
    runbook: str = ""
    """Address of the page `docs/operations/runbook.md` where readers of alerts can open it. Empty: alerts have no link."""

    def __post_init__(self) -> None:
        whole = (self.evaluation_s, self.checkpoint_intervals, self.output_wait_s, self.stall_s, self.window_s)
        if min(whole) < 1 or self.restarts < 0:
            raise ValueError("Durations of alert rules are at least one second, and numbers at least one.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    name: str
    severity: Severity
    expr: str
    for_s: int = 0
    """How long it must hold before the alert fires."""
    summary: str
    """One line for a pager. `{{ $labels.… }}` is replaced by Prometheus."""
    meaning: str
    action: str
    """What to do, for someone on call."""

    @property
    def anchor(self) -> str:
        """The section of this alert in the runbook, as it stands behind the `#` of an address."""
        return self.name.lower()


def rules(settings: AlertSettings | None = None) -> tuple[AlertRule, ...]:
    chosen = settings or AlertSettings()
    return (
        *_of_the_driver(chosen),
        *_of_checkpoints(chosen),
        *_of_output(chosen),
        *_of_input(chosen),
        *_of_hosts(chosen),
    )


def _of_the_driver(s: AlertSettings) -> Iterator[AlertRule]:
    yield AlertRule(
        name="TidegateDriverDown",
        severity=Severity.CRITICAL,
        # The only sample whose `job` is that of the scrape configuration. All others carry the name of the job
        # (`honor_labels`).
        expr='up{job="tidegate"} == 0',
        for_s=s.evaluation_s,
        summary="No tidegate job answers at {{ $labels.instance }}",
        meaning="Prometheus cannot read the metrics of a job. Its driver has ended or hangs, its REST server has moved to "
        "another port, or the token has changed.",
        action="Look at the log of the driver: its last lines say why it ended. Start the job again under the same name; it "
        "continues from its last checkpoint. If the driver runs, ask it with `tidegate list -m HOST:PORT`. A job that was "
        "stopped on purpose needs no metrics: remove it from the scrape configuration.",
    )
    yield AlertRule(
        name="TidegateJobRestarting",
        severity=Severity.CRITICAL,
        # An ordinary restart takes about 25 s, and two evaluations must see the same outage.
        expr=f"{_(c.DOWNTIME)} > {max(60, 2 * s.evaluation_s)}",
        summary="Job {{ $labels.job }} has been down for {{ $value | humanizeDuration }}",
        meaning="The job has failed and has not been able to return to its last checkpoint.",
        action="Read the last failure (`/jobs/JOB/exceptions`, or the log). Typical causes are executors that do not come "
        "back, storage that cannot be read, and a function that raises in `open`. The job keeps trying as its restart "
        "strategy says.",
    )
    yield AlertRule(
        name="TidegateRestartLoop",
        severity=Severity.CRITICAL,
        expr=f"increase({_(c.RESTARTS)}[{_d(s.window_s)}]) > {s.restarts}",
        summary="Job {{ $labels.job }} restarted {{ $value | humanize }} times within " + _d(s.window_s),
        meaning="The job fails again soon after each return to its checkpoint. It makes little or no progress.",
        action="Read the failures (`/jobs/JOB/exceptions`). If the same row fails each time, fix the function, or let it pass "
        'with `on_error="dead-letter"`, and start the new code from the last checkpoint. If executors die, look for memory '
        "(TidegateMemoryNearBudget).",
    )


def _of_checkpoints(s: AlertSettings) -> Iterator[AlertRule]:
    interval = _(c.CHECKPOINT_INTERVAL)
    age = _(c.UNPROTECTED_AGE)

    # With short intervals, a checkpoint would be too old between one evaluation and the next.
    limit = f"clamp_min({s.checkpoint_intervals} * {interval}, {2 * s.evaluation_s})"
    yield AlertRule(
        name="TidegateCheckpointsFailing",
        severity=Severity.WARNING,
        # A later checkpoint has made up for the failure if the unprotected work is younger than two intervals.
        expr=f"increase({_(c.CHECKPOINTS_FAILED)}[{_d(s.window_s)}]) > 0\nunless {ONE_JOB}\n{age} < 2 * {interval}",
        summary="Checkpoints of job {{ $labels.job }} fail",
        meaning="A checkpoint has failed, and none has completed since. Output waits for a checkpoint, so readers of the "
        "targets see nothing new meanwhile.",
        action="The reason is in the checkpoint history (`/jobs/JOB/checkpoints`, `tidegate top JOB`) and in the log. Check "
        "that the storage is reachable, writable and not full, and that its credentials are valid. The job keeps trying, "
        "and fails when more checkpoints in a row have failed than `execution.checkpointing.tolerable-failed-checkpoints` "
        "allows.",
    )
    yield AlertRule(
        name="TidegateCheckpointTooOld",
        severity=Severity.CRITICAL,
        expr=f"{age} > {limit}",
        summary="Work of job {{ $labels.job }} is in no checkpoint for {{ $value | humanizeDuration }}",
        meaning=f"For more than {s.checkpoint_intervals} intervals the job has done work that no checkpoint contains. After a "
        "failure it would repeat all of it. (A job without new rows takes no checkpoints; that is no reason for this alert.)",
        action="If checkpoints fail, see TidegateCheckpointsFailing. If one is in progress and slow, the job's page of "
        "checkpoints shows the slowest task: its upload takes long, or it waits for a core. If none is in progress, the epoch "
        "takes long: a checkpoint is taken when it ends. Bound epochs with `target_epoch_duration` or `max_offsets_per_trigger`.",
    )


def _of_output(s: AlertSettings) -> Iterator[AlertRule]:
    yield AlertRule(
        name="TidegateTargetRefuses",
        severity=Severity.WARNING,
        # Without `for`: the metric stays 1 until a commit succeeds, so it does not flap.
        expr=f"{_(c.SEND_ERRORS)} == 1",
        summary="The target of sink {{ $labels.sink }} of job {{ $labels.job }} does not accept output",
        meaning="The last commit to the target failed. Nothing is lost: rows are kept in the checkpoints and offered again, "
        "at most 30 seconds later.",
        action="Check that the target runs and is reachable from the driver and the executors, and that its credentials "
        "are valid. The text of the error is in the log and on the job's page of output. When the target is back, the job "
        "commits everything in order without help.",
    )
    yield AlertRule(
        name="TidegateOutputWaiting",
        severity=Severity.CRITICAL,
        # The age itself is the delay, so `for` would only add to it.
        expr=f"{_(c.OLDEST_WAITING)} > {s.output_wait_s}",
        summary="Output of job {{ $labels.job }} has waited {{ $value | humanizeDuration }} for sink {{ $labels.sink }}",
        meaning="Completed checkpoints carry output that the target has not taken. Readers of the target see old data.",
        action="As for TidegateTargetRefuses. If the target accepts output but is slow, compare the commit duration with the "
        "checkpoint interval: the target needs to be faster, or the interval longer.",
    )
    yield AlertRule(
        name="TidegateInputHeld",
        severity=Severity.CRITICAL,
        expr=f"{_(c.HELD_BATCHES)} == 1",
        # A batch may wait for one slow commit; an alert needs two evaluations of it.
        for_s=s.evaluation_s,
        summary="Job {{ $labels.job }} reads nothing because too much output waits",
        meaning="More epochs or bytes wait for a sink than `execution.output.max-waiting-epochs` and "
        "`execution.output.max-waiting-size` allow, so the job reads no further batch. Its sources fill up.",
        action="Bring the target back (TidegateTargetRefuses). Check that the source keeps rows for as long as this may last.",
    )


def _of_input(s: AlertSettings) -> Iterator[AlertRule]:
    rows = _(c.SOURCE_RECORDS)
    watermark = _(c.WATERMARK)
    stall = _d(s.stall_s)
    running = f'{ONE_JOB} {_(c.STATE)}{{status="RUNNING"}} == 1'
    yield AlertRule(
        name="TidegateSourceStalled",
        severity=Severity.WARNING,
        # A counter that has not moved. `> 0` leaves out a source that has never delivered, such as that of a new job.
        expr=f"{rows} == {rows} offset {stall}\nand {rows} > 0\nand {running}\nunless {ONE_JOB} {_(c.HELD_BATCHES)} == 1",
        summary=f"Source {{{{ $labels.source }}}} of job {{{{ $labels.job }}}} has delivered no row for {stall}",
        meaning="The job runs, rows have come before, and now none come. Either nothing is produced, or the job cannot see it.",
        action="Look at the source itself: are rows written to the topic or directory? If its `pendingRecords` grow, the job "
        "does not get to them: look at the epoch in progress. A source that is quiet every night needs a longer time: "
        "`tidegate dashboards --stall 12h`.",
    )
    yield AlertRule(
        name="TidegateWatermarkStuck",
        severity=Severity.WARNING,
        expr=f"{watermark} == {watermark} offset {stall}\n"
        f"and {ONE_JOB} sum by (job, instance) (increase({rows}[{stall}])) > 0",
        summary=f"The watermark of job {{{{ $labels.job }}}} has not moved for {stall}",
        meaning="Rows arrive, but event time does not advance: windows do not close, and timers do not fire.",
        action="The slowest source or partition holds the watermark back. Compare `currentEmitEventTimeLag` by source: one "
        "that grows has no new rows. If it may be silent, declare it with `idleness`. If all stand still, the rows have "
        "old or wrong event times.",
    )


def _of_hosts(s: AlertSettings) -> Iterator[AlertRule]:
    used = f"{_(c.MEMORY_USED)} / {_(c.MEMORY_BUDGET)}"
    free = f"{_(c.DISK_FREE)} / {_(c.DISK_SIZE)}"
    yield AlertRule(
        name="TidegateMemoryNearBudget",
        severity=Severity.WARNING,
        expr=f"{used} > {s.memory_share:g}",
        for_s=2 * s.evaluation_s,
        summary="Task {{ $labels.task }} of job {{ $labels.job }} runs where {{ $value | humanizePercentage }} of the memory "
        "is in use",
        meaning="The container, the Python worker's limit or the host is nearly full. If it fills up, the kernel or Spark kills "
        "the worker, and the epoch is repeated.",
        action="Compare `residentMemory` of the tasks: one that is much larger has a hot key or keeps much in a function. Give "
        "executors more memory (`spark.executor.memoryOverhead`, `spark.executor.pyspark.memory`), use the backend `rocksdb` "
        "instead of `hashmap`, or raise the parallelism.",
    )
    yield AlertRule(
        name="TidegateDiskNearlyFull",
        severity=Severity.CRITICAL,
        expr=f"{free} < {s.disk_share:g}",
        summary="Only {{ $value | humanizePercentage }} of the disk are free where task {{ $labels.task }} of job "
        "{{ $labels.job }} keeps its state",
        meaning="State versions are kept on a local disk. When it is full, epochs fail.",
        action="See what fills it: `du` of the directory in `TIDEGATE_LOCAL_DIR` (by default `/tmp/tidegate-UID`) and of "
        "Spark's `spark.local.dir`. Give the host a larger disk, put the state on another one, or raise the parallelism on "
        "more hosts.",
    )


def rules_file(settings: AlertSettings | None = None) -> str:
    """Return the rules as Prometheus reads them (YAML)."""
    chosen = settings or AlertSettings()
    lines = ["groups:", "  - name: tidegate", f"    interval: {_d(chosen.evaluation_s)}", "    rules:"]
    for rule in rules(chosen):
        lines += [
            f"      - alert: {rule.name}",
            "        expr: |",
            *(f"          {line}" for line in rule.expr.splitlines()),
            *([f"        for: {_d(rule.for_s)}"] if rule.for_s else []),
            "        labels:",
            f"          severity: {rule.severity}",
            "        annotations:",
            f"          summary: {json.dumps(rule.summary)}",
            f"          description: {json.dumps(f'{rule.meaning} {rule.action}')}",
            *([f"          runbook_url: {json.dumps(f'{chosen.runbook}#{rule.anchor}')}"] if chosen.runbook else []),
        ]
    return "\n".join(lines) + "\n"


def _(metric: Metric) -> str:
    return metric.prometheus_name


def _d(seconds: int) -> str:
    """`90` as `90s`, `600` as `10m`: a duration as Prometheus writes it."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
