"""Starts jobs: claims the job, checks that its latest checkpoint is compatible, and starts the first attempt."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from pyspark.sql import SparkSession

from tidegate.checkpoint.completed.retained import resolve
from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind
from tidegate.checkpoint.metadata.operators import declared, describe
from tidegate.config.choices import CheckpointingMode, ClaimMode
from tidegate.config.declared.reporting import LOG_FORMAT
from tidegate.config.file import shared_options
from tidegate.connectors.outcome import ForeignOutput
from tidegate.core.durations import duration_ms
from tidegate.core.errors import EpochFailed, PreconditionFailed
from tidegate.core.ids import EpochId, Uid
from tidegate.core.log_setup import configure_logging
from tidegate.core.times import MAX_WATERMARK
from tidegate.events.listener import JobListener
from tidegate.graph import state_ids
from tidegate.graph.levels import plan as plan_levels
from tidegate.graph.listening import listening_levels
from tidegate.graph.model import Graph
from tidegate.reporters.reporter import Reporter
from tidegate.reporters.start import create_reporters
from tidegate.runtime.checkpoints.committers import Committers
from tidegate.runtime.checkpoints.history import JobHistory, Origin, carried_epochs
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.checkpoints.ownership import Ownership
from tidegate.runtime.checkpoints.restore_point import plan_return
from tidegate.runtime.checkpoints.sink_threads import SinkThreads
from tidegate.runtime.driver.attempt_directory import remove_left_behind
from tidegate.runtime.driver.autoscaling import Autoscaler
from tidegate.runtime.driver.datasets import read_datasets, written_datasets
from tidegate.runtime.driver.ending import STOP_WITHIN, Ending
from tidegate.runtime.driver.failure_response import kind_of
from tidegate.runtime.driver.interrupts import Interrupt, interrupts_wait
from tidegate.runtime.driver.job_run import JobRun
from tidegate.runtime.driver.lost_driver import LostDriver
from tidegate.runtime.driver.running_job import RunningJob
from tidegate.runtime.driver.runs_here import RUNS_HERE
from tidegate.runtime.driver.session import check_running
from tidegate.runtime.driver.stop_request import StopRequest
from tidegate.runtime.epochs.epoch_frame import combine
from tidegate.runtime.epochs.job_description import JobDescription, task_sinks
from tidegate.runtime.epochs.reports import EpochReport, EpochReports
from tidegate.runtime.epochs.run_options import RunOptions
from tidegate.runtime.epochs.runner import EpochRunner, Identity
from tidegate.runtime.epochs.settings import Durability, Settings, check_outlives_driver, read_settings, within_memory
from tidegate.runtime.epochs.trigger import EpochTrigger
from tidegate.runtime.monitoring.job_events import JobEvents
from tidegate.runtime.monitoring.job_metrics import JobMetrics
from tidegate.runtime.monitoring.progress import Progress
from tidegate.runtime.monitoring.run_report import FailureLine
from tidegate.runtime.monitoring.spark_listener import SparkProgressListener
from tidegate.runtime.sources.source_checks import check_sources
from tidegate.runtime.sources.source_notes import check_claimed
from tidegate.savepoint.compatibility import JobNow, VerdictKind
from tidegate.savepoint.renames import DeclaredNames
from tidegate.savepoint.restore_compatibility import check_names, shown
from tidegate.savepoint.snapshot import location
from tidegate.storage import RoutedStorage, Storage, open_storage, probe
from tidegate.storage.open import is_object_store
from tidegate.storage.probe import check_credentials

log = logging.getLogger("tidegate")


def run_job(graph: Graph, options: RunOptions, spark: object | None = None) -> EpochReport | None:
    """Run a job to its end: a streaming job until it is stopped or fails, a bounded one until its sources are read.

    Without `spark`, the session of its sources is used.
    """
    _configure_logging(options)
    if _is_batch(graph):
        session = _session_of(graph, spark)
        settings, durability = _settings(session, options, bounded=True)
        if durability is not None:
            raise PreconditionFailed(
                "A job on batch DataFrames runs once, to the end, and takes no checkpoints: Spark repeats tasks that "
                "fail. Run it without checkpoint=, or read its sources as streams (spark.readStream) with "
                "trigger='available-now'."
            )
        return run_bounded(graph, session, settings, options.listeners)
    run = start_job(graph, options, spark)
    with Ending(run, duration_ms(STOP_WITHIN) / 1000, second_sigint=signal.default_int_handler).listening():
        run.await_termination()
    return None


def _is_batch(graph: Graph) -> bool:
    """Whether the job ends by itself: all its sources are batch DataFrames."""
    return all(source.bounded for source in graph.sources)


def run_bounded(
    graph: Graph, spark: SparkSession, settings: Settings, listeners: Sequence[JobListener] = ()
) -> EpochReport:
    """Run a job on batch DataFrames once to the end: one pass, no checkpoints; Spark repeats tasks that fail."""
    check_running(spark)
    with _events(graph.job, [*listeners, *_reporters(graph, settings)]) as events:
        # Created before the rows: a committer checks its target, and may have to create it.
        committers = Committers(graph, None)
        committers.check_targets(is_first=True, can_wait=False)
        runner = EpochRunner(spark, graph, settings, Identity.ephemeral())
        events.status("RUNNING")
        try:
            report = runner.run_epoch(combine(graph.sources), only=True, final=True)
            committers.commit(report.committables, for_good=True)
        finally:
            runner.close()
            runner.discard_anchor()
        events.epoch(report)
        events.status("FINISHED")
    events.close()
    return report


@contextmanager
def _events(job: str, listeners: Sequence[JobListener]) -> Iterator[JobEvents]:
    """The events of a run. An error within the block ends the run, and the listeners with it."""
    events = JobEvents(job, listeners)
    with events.log_context.entered():
        events.status("INITIALIZING")
        try:
            yield events
        except BaseException as error:
            events.failure(error, kind_of(error), can_restart=False)
            events.status("FAILED")
            events.close()
            raise


def start_job(graph: Graph, options: RunOptions, spark: object | None = None) -> JobRun:
    """Start a job on streaming DataFrames and return immediately.

    Claims the job, checks that its latest checkpoint is compatible, and starts the query. Raises before any
    epoch runs if one of these fails. An interrupt waits until the job has started, and then stops it: nothing is left behind. A
    start that has failed is not tried again after it.
    It waits from the first question to Spark on, because PySpark's handler asks Spark to cancel jobs over the connection
    that it interrupted, and then both read the other's answer.
    """
    if _is_batch(graph):
        raise PreconditionFailed(
            "start() follows streams, and all sources of this job are batch DataFrames. Call run(), which reads them once, to "
            "the end, and takes no checkpoints; or read them as streams (spark.readStream)."
        )
    with interrupts_wait() as interrupt:
        _configure_logging(options)
        session = _session_of(graph, spark)
        # First the session: the checks of the sources ask it.
        check_running(session)
        settings, durability = _settings(session, options)
        check_sources(graph.sources, durable=durability is not None)
        trigger = EpochTrigger.parse(options.trigger, options.drain)
        # With `force`, the run of this process is treated like one elsewhere: the claim takes the job over from it.
        if durability is None or not durability.force:
            RUNS_HERE.stop_earlier(graph.job, restart=options.restart)
        interrupt.check()
        try:
            run = _start(session, graph, settings, durability, trigger, options.listeners, interrupt)
        except EpochFailed:
            interrupt.check()  # The start was not tried again because of it.
            raise
        if interrupt.has_come:
            log.info("job %s was interrupted while it started, and stops", graph.job)
            run.stop()
            raise KeyboardInterrupt
        return run


def _start(
    session: SparkSession,
    graph: Graph,
    settings: Settings,
    durability: Durability | None,
    trigger: EpochTrigger,
    listeners: Sequence[JobListener],
    interrupt: Interrupt,
) -> JobRun:
    reporters = _reporters(graph, settings)
    with _events(graph.job, [*listeners, *reporters]) as events:
        stop = StopRequest(interrupted=lambda: interrupt.has_come)
        launch = _Launch(spark=session, graph=graph, settings=settings, trigger=trigger, events=events, stop=stop)
        run = launch.ephemeral() if durability is None else launch.durable(durability)
        for reporter in reporters:
            reporter.watch(run.samples)
        for listener in listeners:
            if isinstance(listener, SparkProgressListener):
                listener.watch(run)
        return run


def _reporters(graph: Graph, settings: Settings) -> list[Reporter]:
    if settings.reporting.lineage is None:
        return create_reporters(settings.reporting, graph.job)
    return create_reporters(settings.reporting, graph.job, read_datasets(graph), written_datasets(graph))


class _Launch:
    """The start of one run."""

    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        settings: Settings,
        trigger: EpochTrigger,
        events: JobEvents,
        stop: StopRequest | None = None,
    ) -> None:
        self._spark = spark
        self._graph = graph
        self._settings = settings
        self._trigger = trigger
        self._events = events
        self._stop = stop or StopRequest()
        self._progress = Progress(graph.job)

    def ephemeral(self) -> JobRun:
        """Start without checkpoints."""
        committers = Committers(self._graph, None)
        self._progress.begin()
        runner: EpochRunner | None = None
        try:
            committers.check_targets(is_first=True)
            runner = EpochRunner(self._spark, self._graph, self._settings, Identity.ephemeral())
            return self._follow(
                self._job(None, committers, runner, self._described(runner), None), "without checkpoints"
            )
        except BaseException:
            _free(committers, runner)
            raise

    def durable(self, chosen: Durability) -> JobRun:
        archive = chosen.archive
        opened = open_storage(archive.url, **archive.options)
        check_credentials(opened)
        storage = RoutedStorage(opened, archive.options)
        committers = Committers(self._graph, storage)
        self._progress.begin()

        # Before the claim, which is this run's own entry in the log: the last one is that of the run before.
        lost = LostDriver.before(storage, JobLayout(self._graph.job), force=chosen.force)
        owned = self._claim(chosen, storage, committers)

        before = owned.snapshot
        if before is not None and before.parallelism != self._settings.parallelism:
            self._events.rescaled(before.parallelism, self._settings.parallelism)

        loop: CheckpointLoop | None = None
        runner: EpochRunner | None = None
        try:
            # After the claim, which decides on lineage, term and the numbers of states.
            runner = EpochRunner(self._spark, self._graph, self._settings, _identity(owned, chosen))
            described = self._described(runner, chosen)
            statistics = CheckpointStatsTracker(directory=location(storage.url), on_ended=self._events.checkpoint)
            loop = CheckpointLoop(
                owned, described, SinkThreads(committers.committers, storage, committers.unasked), statistics
            )
            job = self._job(chosen, committers, runner, described, loop)
            if lost is not None:
                job.lost_driver = self._report_lost_driver(lost, before)
            return self._follow(job, _origin(before, chosen.recovery.path))
        except BaseException:
            # The claim is won: without a loop nothing else would end its heartbeat.
            if loop is None:
                # Nobody gets the object, and its heartbeat would keep later starts waiting.
                owned.stop()
            else:
                loop.leave()
            _free(committers, runner)
            raise

    def _report_lost_driver(self, lost: LostDriver, snapshot: CheckpointMetadata | None) -> FailureLine:
        checkpoint_id = None if snapshot is None else snapshot.checkpoint_id
        line = lost.failure(checkpoint_id)
        self._events.driver_lost(line, checkpoint_id)
        return line

    def _job(
        self,
        chosen: Durability | None,
        committers: Committers,
        runner: EpochRunner,
        described: JobDescription,
        loop: CheckpointLoop | None,
    ) -> RunningJob:
        return RunningJob(
            spark=self._spark,
            graph=self._graph,
            settings=self._settings,
            durability=chosen,
            trigger=self._trigger,
            committers=committers,
            runner=runner,
            description=described,
            loop=loop,
            reports=EpochReports(JobRun.HISTORY),
            metrics=self._metrics(chosen, loop),
            progress=self._progress,
            stop=self._stop,
            events=self._events,
            autoscaler=_autoscaler(self._graph.job, self._settings),
        )

    def _metrics(self, chosen: Durability | None, loop: CheckpointLoop | None) -> JobMetrics:
        snapshot = None if loop is None else loop.ownership.restore_point().snapshot
        is_rescaled = snapshot is not None and snapshot.parallelism != self._settings.parallelism
        return JobMetrics(
            (sink.uid for sink in self._graph.sinks),
            interval_ms=None if chosen is None else chosen.checkpoints.interval_ms,
            rescales=int(is_rescaled),
            prices=chosen.checkpoints.prices if chosen is not None and is_object_store(chosen.archive.url) else None,
        )

    def _follow(self, job: RunningJob, origin: str) -> JobRun:
        self._events.log_context.epoch = lambda: job.runner.epoch
        # Not earlier: a start that is refused should change nothing, not even on the local disk.
        remove_left_behind()
        run = JobRun(job)
        log.info("job %s started: parallelism %d, %s, %s", job.name, run.parallelism, run.state_backend, origin)
        RUNS_HERE.add(run)
        run.follow()
        return run

    def _claim(self, chosen: Durability, storage: Storage, committers: Committers) -> Ownership:
        layout = JobLayout(self._graph.job)
        # Storage that lets two writers win the same slot would break everything that follows, so it is asked first.
        probe(storage, f"{layout.root}/probe")
        path, allow = chosen.recovery.path, chosen.recovery.allow_non_restored_state

        source, given = (None, None) if path is None else resolve(storage, layout, path)
        history = JobHistory(
            storage, layout, chosen.checkpoints, chosen.recovery.uids, names=DeclaredNames.of(self._graph)
        )

        # All checks until the claim change nothing of the job, and each may refuse.
        history.check_location(chosen.fresh, chosen.recovery.accept_moved_directory)
        committers.check_targets(is_first=not history.has_checkpoints())

        if not (chosen.fresh and source is None):
            snapshot = history.peek(source)
            self._check_compatible(snapshot, chosen)
            self._check_drain(snapshot, is_given=source is not None)

        accepted: tuple[EpochId, ...] = ()
        carried = () if source is None or given is None else carried_epochs(storage, source, given)
        if not chosen.fresh:  # a new line of history has no markers yet
            foreign = history.foreign_output(committers.markers, source, carried)
            accepted = accept_output(foreign, chosen.recovery.accept_foreign_output)

        origin: Origin | None = None
        if source is not None and given is not None:
            claim = chosen.recovery.claim_mode is ClaimMode.CLAIM
            history.check_origin(source, given, chosen.fresh, claim, chosen.recovery.accept_moved_directory)
            # The first change. It comes last, since a start that is refused after it has to undo it.
            origin = history.take(source, given, claim)

        start = Start(
            source=None if origin is None else origin.ref,
            fresh=chosen.fresh,
            accepted=accepted,
            unbounded=chosen.checkpoints.mode is CheckpointingMode.AT_LEAST_ONCE,
            carried=carried,
            accepts_move=chosen.recovery.accept_moved_directory,
        )

        owned = Ownership.claim(history, start, chosen.force, None if origin is None else origin.pin)
        # Only the claim knows it: markers in targets are compared with the claims of this history.
        committers.history = owned.store.entry.history
        try:
            owned.check_output(committers.committers, allow)
        except BaseException:
            owned.stop()
            raise
        return owned

    def _check_compatible(self, snapshot: CheckpointMetadata | None, chosen: Durability) -> None:
        """Check before anything is written: a start that cannot succeed is rejected, and leaves the job as it was."""
        if snapshot is None:
            return
        graph, recovery = self._graph, chosen.recovery
        numbers = {(n.uid, n.name): n.id for n in snapshot.state_numbers}
        numbered = state_ids.assign(numbers, declared(graph))
        p, backend = self._settings.parallelism, self._settings.state_backend
        operators = describe(graph, plan_levels(graph), p, backend, numbered)
        sources = tuple(source.uid for source in graph.sources)
        now = JobNow(operators, sources, renames=recovery.renamed_fields, drops=recovery.dropped_states)
        allow = recovery.allow_non_restored_state
        # First: with a name that is misspelt, the verdicts would be on what the user did not mean.
        check_names(snapshot, now)
        _, fitted = plan_return(snapshot, now, p, self._settings.max_parallelism, allow)
        check_claimed(snapshot, sources, allow)
        for verdict in fitted.compatibility.verdicts:
            level = logging.WARNING if verdict.outcome is VerdictKind.DROPPED else logging.INFO
            log.log(level, "state of the snapshot, %s", shown(verdict))

    def _check_drain(self, snapshot: CheckpointMetadata | None, *, is_given: bool) -> None:
        """Of a snapshot that was taken after a drain, say what follows. A run that drains ends at once if its predecessor died
        between its last checkpoint and its end. It cannot start from a drained savepoint, nor from one that is given: it would
        have to read rows, and every one of them would be late.
        """
        if snapshot is None or snapshot.watermark_ms != MAX_WATERMARK:
            return
        drained = "the snapshot was taken after a drain: all event time has passed, and"
        if not self._trigger.drain:
            log.warning("%s every row is late", drained)
        elif is_given or snapshot.savepoint_format is not None:
            raise PreconditionFailed(
                "The job would start from a snapshot that was taken after a drain. All event time has passed, so every row "
                "would be late, and there is nothing left to drain. Start from another snapshot (-s), start over (--fresh), or "
                "leave out drain=True (--drain) to read late rows."
            )
        else:
            log.warning("%s no row is read", drained)

    def _described(self, runner: EpochRunner, chosen: Durability | None = None) -> JobDescription:
        """Describe the job. `chosen` decides whether tasks commit output of sinks that allow it."""
        checkpoints = None if chosen is None else chosen.checkpoints
        settings, graph = runner.settings, runner.graph
        p, backend = settings.parallelism, settings.state_backend
        return JobDescription(
            job=graph.job,
            parallelism=p,
            max_parallelism=settings.max_parallelism,
            backend=backend,
            levels=runner.levels,
            sources=tuple(source.uid for source in graph.sources),
            operators=describe(graph, runner.plan, p, backend, runner.state_ids),
            state_ids=runner.state_ids,
            spark_version=self._spark.version,
            task_sinks={}
            if checkpoints is None or not checkpoints.publishes_in_tasks
            else task_sinks(graph, runner.plan, checkpoints.publisher),
            listening=listening_levels(graph, runner.plan),
            dropped_states=frozenset() if chosen is None else chosen.recovery.dropped_states,
            sink_levels=frozenset(runner.plan.level_of(sink.id) for sink in graph.sinks),
        )


def accept_output(foreign: Mapping[Uid, Sequence[EpochId]], accepts: bool) -> tuple[EpochId, ...]:
    """Return the output of another history that targets have, if the user accepts it. Raises `ForeignOutput` otherwise."""
    for sink, epochs in foreign.items():
        if not accepts:
            raise ForeignOutput(sink, epochs)
        log.warning(
            "the target of sink %s has output up to epoch %s that the job's checkpoint directory does not know; the job "
            "continues after it",
            sink,
            max(epochs),
        )
    return tuple(epoch for epochs in foreign.values() for epoch in epochs)


def _autoscaler(job: str, settings: Settings) -> Autoscaler | None:
    config = settings.autoscaler
    return Autoscaler(job, config, settings.max_parallelism) if config.enabled else None


def _free(committers: Committers, runner: EpochRunner | None) -> None:
    """After a start that failed: close connections to targets, and free what the job has cached in Spark."""
    committers.close()
    if runner is not None:
        runner.discard_anchor()


def _identity(owned: Ownership, chosen: Durability) -> Identity:
    found = owned.restore_point()
    numbers = {} if found.snapshot is None else {(n.uid, n.name): n.id for n in found.snapshot.state_numbers}
    return Identity(
        found.lineage, found.term, archive=chosen.archive, state_ids=numbers, history=owned.store.entry.history
    )


def _origin(snapshot: CheckpointMetadata | None, given: str | None) -> str:
    """Describe where the run starts. The caller reads `snapshot` before it starts: the first checkpoint may complete at once."""
    if snapshot is None:
        return "from the beginning"
    if given is not None:
        return f"restored from {given}, a {snapshot.kind} of job {snapshot.job!r}"
    if snapshot.kind is SnapshotKind.SAVEPOINT:
        return f"restored from a savepoint of job {snapshot.job!r}"
    return f"restored from checkpoint {snapshot.checkpoint_id}"


def _configure_logging(options: RunOptions) -> None:
    """Set up logging first: reading the other options may already log something."""
    found = options.options.get(LOG_FORMAT.key, shared_options().get(LOG_FORMAT.key))
    try:
        configure_logging(format=None if found is None else LOG_FORMAT.parse(str(found)))
    except ValueError:
        configure_logging()  # `read_settings` refuses it, together with everything else that is wrong.


def _session_of(graph: Graph, given: object | None) -> SparkSession:
    """Return the session that the user gave, or that of the sources."""
    # A cast: `api` declares the parameter without importing pyspark.
    return cast(SparkSession, given or graph.sources[0].frame.sparkSession)


def _settings(spark: SparkSession, options: RunOptions, bounded: bool = False) -> tuple[Settings, Durability | None]:
    settings, durability = read_settings(_cores(spark), options, bounded=bounded)
    if durability is not None and durability.checkpoints.dir is not None:
        check_outlives_driver(durability.checkpoints.dir, spark.conf.get)
    return within_memory(settings, spark.conf.get), durability


def _cores(spark: SparkSession) -> int:
    master = spark.conf.get("spark.master", "") or ""
    if master.startswith("local[") and master[6:-1].split(",")[0].isdigit():
        return int(master[6:-1].split(",")[0])
    return os.cpu_count() or 2
