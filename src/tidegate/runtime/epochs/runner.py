"""Runs epochs: one Spark job each, accepted as a whole or discarded and run again. Owned by one thread at a time.

For every task, the driver knows the version of its state and the host that has it. An epoch starts from those versions. If
it is accepted, it replaces them; if it is discarded, it changes nothing.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NoReturn

from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

from tidegate.checkpoint.metadata.operators import declared
from tidegate.checkpoint.task.version_restore import RestoreOrder
from tidegate.connectors.kafka.errors import RecordUnreadable, RowUnwritable
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.errors import EpochFailed, RestoreError, StateError
from tidegate.core.faults import reach
from tidegate.core.history import History
from tidegate.core.ids import EpochId, HostId, Lineage, Slot, TaskId, Term, Uid
from tidegate.core.times import EpochTime
from tidegate.graph import state_ids
from tidegate.graph.levels import plan as plan_levels
from tidegate.graph.model import Graph
from tidegate.runtime.epochs import epoch_frame, failover
from tidegate.runtime.epochs.check import (
    Accepted,
    Expected,
    Unrestorable,
    UserFailed,
    misplaced_tasks,
    verify_epoch,
)
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.deadline import private_session
from tidegate.runtime.epochs.failover import Counters, Fail, Interrupted, Repeat, Rewind
from tidegate.runtime.epochs.job_clock import JobClock
from tidegate.runtime.epochs.own_modules import ship_own_modules
from tidegate.runtime.epochs.phases import epoch_phases
from tidegate.runtime.epochs.pickling import pickled
from tidegate.runtime.epochs.processing_time import ProcessingClock
from tidegate.runtime.epochs.reports import EpochReport, added_rows, committables_of
from tidegate.runtime.epochs.restore_work import homes, restore_work, trusting
from tidegate.runtime.epochs.sent_assignments import SentAssignments
from tidegate.runtime.epochs.settings import Settings
from tidegate.runtime.epochs.slot_placement import PlacedSlots, SlotPlacement
from tidegate.runtime.epochs.watcher import EpochWatcher
from tidegate.runtime.exchange import user_code
from tidegate.runtime.exchange.assignment import Archive, CheckpointWork, TaskAssignment
from tidegate.runtime.exchange.program import exchange, programs
from tidegate.runtime.exchange.progress_marks import SHARE_OF_LIMIT, MarkPlace
from tidegate.runtime.job_label import JobLabels
from tidegate.runtime.placement.local_versions import LocalVersions
from tidegate.runtime.sources.kafka_source import recognise
from tidegate.state.version import VersionId, VersionRef

log = logging.getLogger("tidegate")


class StateLost(StateError):
    """The latest version of a task's state is gone from its host. Only a checkpoint can restore it."""

    code = "STATE_LOST"


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a run: the lineage, the claim, and the state ids that earlier runs of the lineage assigned."""

    lineage: Lineage
    term: Term
    archive: Archive | None = None
    """None: without checkpoints."""
    state_ids: Mapping[tuple[Uid, str], int] = field(default_factory=dict)
    history: History | None = None
    """The claims that the job's log contains: tasks that commit output compare the markers in their target with it."""

    @classmethod
    def ephemeral(cls) -> Identity:
        """The identity of a run without checkpoints: nothing outlives it."""
        return cls(Lineage(uuid.uuid4().hex), Term(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Epoch:
    """One epoch to run. The same for all its tries."""

    id: EpochId
    batch: DataFrame | None
    work: Mapping[int, CheckpointWork]
    time: EpochTime
    only: bool
    started: float

    @property
    def restores(self) -> bool:
        return any(each.restores for each in self.work.values())


class EpochRunner:
    """Runs the epochs of one job, one after the other."""

    def __init__(self, spark: SparkSession, graph: Graph, settings: Settings, identity: Identity) -> None:
        self.spark = spark
        self.graph = graph
        self.settings = settings
        self.identity = identity
        # Jobs that may have to be interrupted need a session in which nothing else runs: see `deadline`.
        self._session = private_session(spark)
        self.lineage = identity.lineage
        self.term = identity.term
        self._number = 0
        """The greatest number given to an epoch. Rewinds do not reset it: no two epochs share an id."""
        self.counters = Counters()
        self.versions: dict[TaskId, VersionRef] = {}
        self._accepted: Mapping[TaskId, VersionRef] = {}
        """Versions that the next restore may use without checksums."""
        self.plan = plan_levels(graph, two_stage=settings.two_stage)
        self.levels = len(self.plan.levels) - 1
        self._labels = JobLabels(graph, self.plan)
        self._clock = JobClock(graph, self.plan, ProcessingClock())
        self.state_ids = state_ids.assign(identity.state_ids, declared(graph))
        # Before the functions are pickled, which is when modules are sent by value or by name.
        ship_own_modules(importable=spark.conf.get("spark.executorEnv.PYTHONPATH", "") or "")
        self._watcher = EpochWatcher(MarkPlace(graph.job, self.lineage, identity.archive, settings.local_dir))
        # Once for a run: pickling user functions is slow, and every epoch sends the same ones.
        self._programs = [pickled(p) for p in programs(graph, self.plan, self.state_ids)]
        self._source_tasks = len(self.plan.levels[0].nodes) > len(graph.sources)
        self._placement = SlotPlacement(self._session, self.levels, LocalVersions(graph.job, self.lineage, {}))
        self._sent = SentAssignments(graph.job, identity.archive)

    @property
    def epoch(self) -> EpochId:
        """The last epoch that was run."""
        return EpochId(self.term, self._number)

    # -- one epoch ---------------------------------------------------------------------------------------------------

    def run_epoch(
        self,
        batch: DataFrame | None,
        *,
        work: Mapping[int, CheckpointWork] | None = None,
        only: bool = False,
        final: bool = False,
        time_stands: bool = False,
    ) -> EpochReport:
        """Run one epoch on a batch of the sources (None: an empty epoch), with as many tries as necessary. `work` is the
        checkpoint work of its tasks, by level. `only`: no other epoch follows, so its versions may be on any host.
        `final`: all event time passes with it. `time_stands`: no timer fires, whatever the clocks say.

        1. Place partitions where the state is.
        2. Run the Spark job; collect control rows.
        3. Verify. If the epoch is not complete, discard it and continue at 1. A crash up to here leaves versions and
           staged rows that nothing refers to.
        4. Record the new versions. The epoch is accepted. What its sinks prepared is in the report.
        """
        # Also for an epoch that fails: tasks may have sealed versions under the number, and a later epoch must not meet them.
        self._number += 1
        # The clocks are read once for all tries: attempts of an epoch see the same time.
        epoch = _Epoch(
            id=EpochId(self.term, self._number),
            batch=batch,
            work=work or {},
            time=self._clock.begin_epoch(final=final, stands=time_stands),
            only=only,
            started=time.monotonic(),
        )

        tries = 0
        failed: UserFailed | None = None
        while True:
            tries += 1
            result = self._try(epoch, self.place(), tries)
            if isinstance(result, tuple):
                break
            if isinstance(result, UserFailed):
                self._check_worth_a_retry(epoch.id, result, failed)
                failed = result
            else:
                self._discard(epoch.id, result, tries)

            # The next try keeps the number of the epoch, so that numbers have no gaps; attempts distinguish the tries.
        check, report = result
        self._accept(epoch, check)
        reach("epoch.4-recorded", epoch=epoch.id)
        return report

    def _try(
        self, epoch: _Epoch, placed: PlacedSlots, tries: int
    ) -> tuple[Accepted, EpochReport] | UserFailed | failover.Cause:
        planned = time.monotonic()
        frame = self._frame(epoch, placed)

        # Both clocks: durations are differences of the first, and tasks report moments in the second.
        ran, began_ms = time.monotonic(), round(time.time() * 1000)

        try:
            edges, p = exchange(self.plan, 1), self.settings.parallelism
            label = self._labels.epoch(epoch.id, restores=epoch.restores, has_rows=epoch.batch is not None)
            with (
                self._bounds(epoch, frame),
                epoch_frame.combine_shuffle(epoch.batch, edges, p),
                label.on(frame.sparkSession),
            ):
                table = frame.toArrow()
        # A plan that Spark rejects is a mistake in the job. No try would do better.
        except AnalysisException:
            raise
        except Exception as error:
            # A program that cannot be unpickled has no acknowledgement: its report is in the text of Spark's error.
            found = user_code.find(str(error))
            if found is not None:
                log.debug("the Spark job of epoch %s failed", epoch.id, exc_info=error)
                raise found from None
            if isinstance(error, PythonException):
                # Spark has tried the task four times; code that raises by itself would do so again.
                raise _of_task(epoch.id, error) from error
            log.debug("the Spark job of epoch %s failed", epoch.id, exc_info=error)
            return Interrupted(failover.first_line(error))

        reach("epoch.2-collected", epoch=epoch.id)
        rows: list[bytes] = table.column("ctl").to_pylist()
        check = verify_epoch(Expected(epoch.id, self.levels, self.settings.parallelism, self._source_tasks), rows)
        if not isinstance(check, Accepted):
            return check

        # After the check: only an accepted epoch names versions. Hosts do not matter to the last epoch of a run.
        misplaced = None if epoch.only else misplaced_tasks(check, placed.anchor.layout)
        if misplaced is not None:
            return misplaced

        now = time.monotonic()
        plan_ms, job_ms = round((ran - planned) * 1000), round((now - ran) * 1000)
        before_ms = round((planned - epoch.started) * 1000)
        return check, EpochReport(
            epoch=epoch.id,
            rows_in=sum(ack.source_rows for ack in check.acks),
            tries=tries,
            duration_ms=round((now - epoch.started) * 1000),
            plan_ms=plan_ms,
            job_ms=job_ms,
            operators=added_rows(ack.operators for ack in check.acks),
            hosts={TaskId(ack.level, Slot(ack.sender)): HostId(ack.host) for ack in check.acks if ack.level > 0},
            ended_ms=SYSTEM_CLOCK.now().wall_ms,
            control_bytes=sum(map(len, rows)),
            committables=committables_of(check.acks, self.lineage, epoch.id),
            uploads=tuple((TaskId(ack.level, Slot(ack.sender)), item) for ack in check.acks for item in ack.uploads),
            watermark_ms=epoch.time.watermark_ms,
            input_watermark_ms=epoch.time.applied_ms,
            late_rows_dropped=sum(ack.late_dropped for ack in check.acks),
            commit_results=tuple(item for ack in check.acks for item in ack.commit_results),
            acks=tuple(check.acks),
            phases=epoch_phases(check.acks, before_ms=before_ms, plan_ms=plan_ms, began_ms=began_ms, run_ms=job_ms),
        )

    def _check_worth_a_retry(self, epoch: EpochId, failed: UserFailed, before: UserFailed | None) -> None:
        """Raise the user's error, unless it is the first of the epoch and another try may succeed: nothing of the epoch
        became visible, and the same rows are available.
        """
        action = failover.after_user_error(failed.reports, None if before is None else before.reports)
        if not isinstance(action, Repeat):
            raise action
        self.counters = failover.count(self.counters, action)
        log.warning("epoch %s discarded and repeated: %s", epoch, action.reason)

    def _discard(self, epoch: EpochId, cause: failover.Cause, tries: int) -> None:
        action = failover.decide(cause, self._hosts(), tries, self.settings.max_tries)
        # Whatever the cause: a place that held may be the reason, and a lost executor has lost its block of the anchor.
        self._placement.discard_anchor()
        match action:
            case Repeat(reason):
                self.counters = failover.count(self.counters, action)
                log.warning("epoch %s discarded and repeated: %s", epoch, reason)
            case Rewind(reason):
                self._rewind(reason)
            case Fail(reason):
                if isinstance(cause, Unrestorable):
                    raise RestoreError(reason)
                raise EpochFailed(f"Epoch {epoch} was {reason}")

    def _rewind(self, reason: str) -> NoReturn:
        self.counters = failover.count(self.counters, Rewind(reason))
        raise StateLost(f"{reason.removesuffix('.')}. {_after_loss(self.identity.archive)}.")

    def _accept(self, epoch: _Epoch, check: Accepted) -> None:
        for ack in check.acks:
            if ack.version is not None:
                task = TaskId(ack.level, Slot(ack.sender))
                self.versions[task] = VersionRef(VersionId.parse(ack.version), HostId(ack.host))
        # Versions and clocks move together, after all tries: from here the next epoch builds on this one.
        self._clock.accept(epoch.time, check.acks)

    # -- the Spark job -----------------------------------------------------------------------------------------------

    def _frame(self, epoch: _Epoch, placed: PlacedSlots) -> DataFrame:
        p, max_p = self.settings.parallelism, self.settings.max_parallelism
        edges = exchange(self.plan, 1)

        if epoch.batch is None:
            frame = epoch_frame.no_rows(self._session, edges, packed=self._source_tasks)
        elif self._source_tasks:
            frame = epoch_frame.source_tasks(epoch.batch, self._sent.send(self._assignment(epoch, placed, 0), placed))
        else:
            salts, applied = placed.salts(1), epoch.time.applied_ms
            frame = epoch_frame.source_rows(epoch.batch, self.graph.sources, edges, salts, p, max_p, applied)

        for level in range(1, self.levels + 1):
            assignment = self._sent.send(self._assignment(epoch, placed, level), placed)
            frame = epoch_frame.level(frame, placed.anchor, assignment, self._labels.level(level))
        return frame

    def _bounds(self, epoch: _Epoch, frame: DataFrame) -> AbstractContextManager[None]:
        """Interrupts an epoch that makes no progress. An `only` epoch is not: it reads all rows, in the user's session."""
        limit_ms = 0 if epoch.only else self.settings.epoch_timeout_ms
        return self._watcher.watching(frame.sparkSession, epoch.id, limit_ms, restores=epoch.restores)

    def _assignment(self, epoch: _Epoch, placed: PlacedSlots, level: int) -> TaskAssignment:
        s = self.settings
        # Level 0 reads sources. Above level 1, plain SQL sends no barriers, and only Spark knows the number of Python tasks.
        if level == 0:
            senders: int | None = 0
        elif level == 1:
            senders = None if self._source_tasks else 0
        else:
            senders = s.parallelism

        work = epoch.work.get(level, CheckpointWork())

        refs = [self.versions.get(TaskId(level, Slot(slot))) for slot in range(s.parallelism)]
        restored = [order is not None for order in work.restores] or [False] * s.parallelism
        # A task that restores has no version yet, and its timers are unknown until it has.
        has_state = [ref is not None or is_restored for ref, is_restored in zip(refs, restored)]

        return TaskAssignment(
            job=self.graph.job,
            lineage=self.lineage,
            epoch=epoch.id,
            parallelism=s.parallelism,
            max_parallelism=s.max_parallelism,
            program=self._programs[level],
            slots=placed.slots(level) if level > 0 else (),
            salts=placed.salts(level + 1) if level < self.levels else (),
            versions=tuple(ref.version if ref is not None else None for ref in refs),
            backend=s.task_backend,
            backend_options=s.backend_options,
            local_dir=s.local_dir,
            senders=senders,
            archive=self.identity.archive,
            work=work,
            time=epoch.time,
            wake=self._clock.wake(level, epoch.time, has_state),
            measuring=s.measuring,
            history=self.identity.history if work.commits else None,
            mark_every_ms=0 if epoch.only else s.epoch_timeout_ms // SHARE_OF_LIMIT,
        )

    # -- placement ---------------------------------------------------------------------------------------------------

    def place(self) -> PlacedSlots:
        """Place every slot on the host of its version, unless they are already placed. If a host is unavailable longer than
        allowed, its versions are lost: raise `StateLost`.
        """
        placed = self._placement.place(self._hosts(), self.settings, self._watcher.place, self.term)
        if isinstance(placed, Rewind):
            self._rewind(placed.reason)
        return placed

    def _hosts(self) -> dict[TaskId, HostId]:
        """The host of each version."""
        return {task: ref.host for task, ref in self.versions.items()}

    def discard_anchor(self) -> None:
        """Release the anchor."""
        self._placement.discard_anchor()

    def close(self, leave: bool = False) -> None:
        """The run ends gracefully: remove its local versions, or `leave` them to the next run, which may start with them."""
        # What was stored for the tasks of the last epoch. Nobody else deletes it before the next sweep.
        self._sent.discard()
        if self.versions:
            self._placement.remove_versions(self.graph.job, self.lineage, self.settings.local_dir, leave)

    # -- state and time ----------------------------------------------------------------------------------------------

    def restore(self, orders: Mapping[TaskId, RestoreOrder]) -> EpochReport:
        """Return to a checkpoint: restore its state in the tasks, in an epoch without rows. Timers that are due do not
        fire: their output belongs to an epoch whose output is awaited. Nothing of the epochs after the checkpoint
        counts any more. Hosts that still have versions are preferred, not required.
        """
        accepted = self._accepted
        self._accepted = {}
        # The hosts of the discarded versions: they probably still have files of the checkpoint.
        self._placement.prefer(homes(orders, self._hosts()), LocalVersions.of(self.graph.job, self.lineage, orders))
        # From here no task has a version, so none can be on the wrong host, and the restore may place each of them anywhere.
        self.versions = {}
        trusted = trusting(orders, accepted, starts=self._number == 0)
        work = restore_work(trusted, self.levels, self.settings.parallelism)
        self._clock.forget_timers()
        return self.run_epoch(None, work=work, time_stands=True)

    def change_parallelism(self, parallelism: int) -> None:
        """Use so many slots from the next restore on, which returns to the last accepted epoch."""
        self.settings = replace(self.settings, parallelism=parallelism)
        # Accepted a moment ago by this driver, and not read since: the next restore may link them without comparing checksums
        # (decision 0020).
        self._accepted = self.versions
        self._placement.discard_anchor()

    def forget_versions(self) -> None:
        """Return to the beginning: no task has state."""
        self._placement.discard_anchor()
        self.versions = {}
        self._clock.forget_timers()

    def continue_under(self, term: Term, history: History | None = None) -> None:
        """Use the new term for epochs from now on: the job was claimed again."""
        self.term = term
        self.identity = replace(self.identity, term=term, history=history)

    @property
    def clocks(self) -> Clocks:
        """The clocks after the last accepted epoch."""
        return self._clock.clocks

    @property
    def has_timers(self) -> bool:
        return self._clock.has_timers

    def timers_due(self) -> bool:
        """Whether an epoch that starts now would fire timers, even without rows. Any thread may ask."""
        return self._clock.timers_due()

    def timers_pending(self) -> bool:
        """Whether there are event-time timers at all."""
        return self._clock.timers_pending()

    def reset_clocks(self, clocks: Clocks) -> None:
        """Continue from the time of a checkpoint. Processing time does not move back."""
        self._clock.reset(clocks)


def _after_loss(archive: Archive | None) -> str:
    """Return what happens next, or what the user has to do."""
    if archive is not None:
        return "The job returns to its last checkpoint"
    return (
        "Without checkpoints the state of the job cannot be restored: run it with "
        "checkpoint=tidegate.Checkpointing(dir=…, interval='10 s'), and start it again"
    )


def _of_task(epoch: EpochId, error: Exception) -> Exception:
    """Return what a task raised if no retry can help: a record that cannot be decoded, a row that cannot be encoded. Else a
    failed epoch. When the epoch is repeated, the driver's reader decides whether rows that a task did not find are lost."""
    ours = recognise(error)
    if isinstance(ours, RecordUnreadable | RowUnwritable):
        return ours
    log.debug("a task of epoch %s failed", epoch, exc_info=error)
    reason = failover.without_java(str(error))
    return EpochFailed(f"A task of epoch {epoch} failed in tidegate itself, or in a sink: {reason}")
