"""Runs epochs: one Spark job each, accepted whole or thrown away and run again. Owned by one thread at a time.

The driver knows, for every task, the version its state is in and the host that has it. An epoch starts from those versions
and, once accepted, replaces them; a discarded one changes nothing.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

from tidegate.checkpoint.operators import declared
from tidegate.checkpoint.version_restore import RestoreOrder
from tidegate.connectors.sink import CommitRequest
from tidegate.core.errors import EpochFailed, RestoreFailed, StateLost, UserCodeError
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, HostId, Lineage, Slot, TaskId, Term, Uid
from tidegate.core.times import MIN_WATERMARK, EpochTime
from tidegate.graph import state_ids
from tidegate.graph.levels import plan as plan_levels
from tidegate.graph.model import Graph
from tidegate.graph.states import StateKind
from tidegate.runtime.driver import epoch_frame, failover
from tidegate.runtime.driver.clocks import Clocks, Pending, is_due
from tidegate.runtime.driver.deadline import deadline, private_session
from tidegate.runtime.driver.epoch_check import (
    Accepted,
    EpochCheck,
    Expected,
    Unrestorable,
    UserFailed,
    misplaced_tasks,
    verify_epoch,
)
from tidegate.runtime.driver.failover import Counters, Fail, Interrupted, Repeat, Rewind
from tidegate.runtime.driver.own_modules import ship_own_modules
from tidegate.runtime.driver.pickling import pickled
from tidegate.runtime.driver.processing_time import ProcessingClock
from tidegate.runtime.driver.settings import Settings
from tidegate.runtime.exchange import user_code
from tidegate.runtime.exchange.assignment import Archive, CheckpointWork, TaskAssignment
from tidegate.runtime.exchange.messages import TaskPublished, Uploaded
from tidegate.runtime.exchange.program import exchange, programs
from tidegate.runtime.placement import executor_quota
from tidegate.runtime.placement import permutation as placement
from tidegate.runtime.placement.anchor import Anchor, drop_anchor
from tidegate.runtime.placement.permutation import Placed, Unplaceable, place
from tidegate.state.version import VersionId, VersionRef

log = logging.getLogger("tidegate")

_TIDY_MS = 10_000
"""How long the end of a job may take to remove its local versions."""

_COLD_START_MS = 15_000
"""What new executors and Python workers may need before the first of our tasks runs."""
_START_MS = 120_000
"""How long a new job waits for executors."""
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_STANDING = EpochTime(MIN_WATERMARK)
"""The clocks of an epoch in which no timer fires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """What one accepted epoch did."""

    epoch: EpochId
    rows_in: int
    """Rows of the sources, however many operators read them."""
    tries: int
    duration_ms: int
    plan_ms: int
    job_ms: int
    operators: dict[str, tuple[int, int]]
    """Rows in and out by operator."""
    hosts: dict[TaskId, HostId] = field(repr=False)
    control_bytes: int = 0
    committables: tuple[CommitRequest, ...] = field(default=(), repr=False)
    """What the sinks prepared, to be committed by whoever decides when."""
    uploads: tuple[tuple[TaskId, Uploaded], ...] = field(default=(), repr=False)
    """What was said of uploads for checkpoints."""
    watermark_ms: int = MIN_WATERMARK
    """Applied at the end of the epoch."""
    late_rows_dropped: int = 0
    """Rows that came too late for all their windows, and had no side output to go to."""
    published: tuple[TaskPublished, ...] = field(default=(), repr=False)
    """What was said of output that tasks publish."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who runs: the line of history, the claim, and what earlier runs of the line gave out."""

    lineage: Lineage
    term: Term
    archive: Archive | None = None
    """None: without checkpoints."""
    state_ids: Mapping[tuple[Uid, str], int] = field(default_factory=dict)

    @classmethod
    def ephemeral(cls) -> Identity:
        """The identity of a run without checkpoints: nothing outlives it."""
        return cls(Lineage(uuid.uuid4().hex), Term(1))


class EpochRunner:
    def __init__(self, spark: SparkSession, graph: Graph, settings: Settings, identity: Identity) -> None:
        self.spark, self.graph, self.settings, self.identity = spark, graph, settings, identity
        self._session = private_session(spark)
        self.lineage, self.term = identity.lineage, identity.term
        self._number = 0
        """The greatest number given to an epoch. Rewinds do not take it back: no two epochs share an id."""
        self.counters = Counters()
        self.versions: dict[TaskId, VersionRef] = {}
        self._processing_clock = ProcessingClock()
        self.clocks = Clocks().began(graph.sources, self._processing_clock.advance())
        self._time = EpochTime()
        self._pending: dict[TaskId, Pending] = {}
        """The earliest timers of the tasks that have looked. Copied on change: the thread that paces a run reads it."""
        self.plan = plan_levels(graph)
        self.levels = len(self.plan.levels) - 1
        timed = {node.id for node in graph.processes if any(spec.kind is StateKind.TIMERS for spec in node.states)}
        self._timed_levels = frozenset(level.index for level in self.plan.levels if timed.intersection(level.nodes))
        self.state_ids = state_ids.assign(identity.state_ids, declared(graph))
        ship_own_modules(importable=spark.conf.get("spark.executorEnv.PYTHONPATH", "") or "")
        self._programs = [pickled(p) for p in programs(graph, self.plan, self.state_ids)]
        self._source_tasks = len(self.plan.levels[0].nodes) > len(graph.sources)
        self._work: Mapping[int, CheckpointWork] = {}
        self._wished: dict[TaskId, HostId] = {}
        """Where tasks would find files of theirs when they are brought back."""
        self._anchor: Anchor | None = None
        self._placed: list[Placed] = []

    @property
    def epoch(self) -> EpochId:
        """The last one that was run."""
        return EpochId(self.term, self._number)

    # -- one epoch ---------------------------------------------------------------------------------------------------

    def run_epoch(
        self, batch: DataFrame | None, *, work: Mapping[int, CheckpointWork] | None = None, only: bool = False,
        final: bool = False, time_stands: bool = False,
    ) -> EpochReport:  # fmt: skip
        """Run one epoch on a batch of the sources (None: an empty epoch), however many tries it takes. `work` are what its
        tasks do for checkpoints, by level. `only`: there will be no other, so it does not matter where its versions lie.
        `final`: all event time passes with it. `time_stands`: no timer fires, whatever the clocks say.

        1. Place partitions where the state is.
        2. Run the Spark job; collect control rows.
        3. Judge. Not whole: throw away, go to 1. A crash up to here leaves versions and staged rows that nobody names.
        4. Record the new versions. The epoch has happened. What its sinks prepared is in the report.
        """
        self._number += 1
        epoch = EpochId(self.term, self._number)
        self._work = work or {}
        # Once for all tries: attempts of an epoch see one clock.
        next_time = self.clocks.next(self.graph.sources, self._processing_clock.advance(), final=final)
        self._time = _STANDING if time_stands else next_time
        started = time.monotonic()
        tries = 0
        failed: UserFailed | None = None
        while True:
            tries += 1
            self.place()
            check, report = self._try(epoch, batch, tries, started, only)
            if isinstance(check, Accepted) and not only:
                assert self._anchor is not None
                check = misplaced_tasks(check, self._anchor.layout) or check
            if isinstance(check, Accepted):
                break
            if isinstance(check, UserFailed):
                self._check_worth_a_retry(epoch, check, failed)
                failed = check
                continue
            self._discard(epoch, check, tries)
            # A fresh number for a fresh try would leave gaps; attempts tell tries apart, so the epoch keeps its own.
        self._accept(epoch, check)
        reach("epoch.4-recorded", epoch=epoch)
        assert report is not None
        return report

    def _try(
        self, epoch: EpochId, batch: DataFrame | None, tries: int, started: float, only: bool
    ) -> tuple[EpochCheck | Interrupted, EpochReport | None]:
        planned = time.monotonic()
        frame = self._frame(epoch, batch)
        ran = time.monotonic()
        try:
            with self._bounds(epoch, frame, only), self._as_wide_as_the_job(batch):
                table = frame.toArrow()
        except AnalysisException:
            raise
        except Exception as error:
            found = user_code.find(str(error))
            if found is not None:
                log.debug("the Spark job of epoch %s failed", epoch, exc_info=error)
                raise found from None
            if isinstance(error, PythonException):
                # Spark has tried the task four times; code that raises by itself would do so again.
                raise EpochFailed(
                    f"A task of epoch {epoch} failed in tidegate itself, or in a sink: {error}"
                ) from error
            log.debug("the Spark job of epoch %s failed", epoch, exc_info=error)
            return Interrupted(_first_line(error)), None
        reach("epoch.2-collected", epoch=epoch)
        rows: list[bytes] = table.column("ctl").to_pylist()
        expected = Expected(epoch, self.levels, self.settings.parallelism, self._source_tasks)
        check = verify_epoch(expected, rows)
        if not isinstance(check, Accepted):
            return check, None
        now = time.monotonic()
        return check, EpochReport(
            epoch=epoch,
            rows_in=sum(ack.source_rows for ack in check.acks),
            tries=tries,
            duration_ms=round((now - started) * 1000),
            plan_ms=round((ran - planned) * 1000),
            job_ms=round((now - ran) * 1000),
            operators=_by_operator(check),
            hosts={TaskId(ack.level, Slot(ack.sender)): HostId(ack.host) for ack in check.acks if ack.level > 0},
            control_bytes=sum(map(len, rows)),
            committables=self._prepared(epoch, check),
            uploads=tuple((TaskId(ack.level, Slot(ack.sender)), item) for ack in check.acks for item in ack.uploads),
            watermark_ms=self._time.watermark_ms,
            late_rows_dropped=sum(ack.late_dropped for ack in check.acks),
            published=tuple(item for ack in check.acks for item in ack.published),
        )

    @property
    def has_timers(self) -> bool:
        return bool(self._timed_levels)

    def timers_due(self) -> bool:
        """Whether an epoch that began now would fire timers, even without rows. May be asked by any thread."""
        time = self.clocks.next(self.graph.sources, self._processing_clock.peek())
        return any(is_due(pending, time) for pending in self._pending.values())

    def timers_pending(self) -> bool:
        """Whether there are event-time timers at all."""
        return any(event is not None for event, _ in self._pending.values())

    def restore(self, orders: Mapping[TaskId, RestoreOrder]) -> EpochReport:
        """Go back to a checkpoint: bring its state to the tasks, in an epoch without rows. Timers that are due stay where
        they are: what they would emit belongs to an epoch whose output is awaited.

        Nothing of the epochs after it counts any more. Hosts that have versions still are preferred, not required.
        """
        self._lift_anchor()
        self._wished = {task: ref.host for task, ref in self.versions.items()}
        self.versions = {}
        slots = [Slot(slot) for slot in range(self.settings.parallelism)]
        records = tuple({order.stored for order in orders.values() if order.stored is not None})
        work = {
            level: CheckpointWork(records=records, restores=tuple(orders.get(TaskId(level, slot)) for slot in slots))
            for level in range(1, self.levels + 1)
        }
        self._pending = {}
        return self.run_epoch(None, work=work, time_stands=True)

    def _check_worth_a_retry(self, epoch: EpochId, failed: UserFailed, before: UserFailed | None) -> None:
        """Raise the user's error, unless it is the first of the epoch and the next try may be better: nothing of the epoch was
        made visible, and the same rows are at hand."""
        action = failover.after_user_error(failed.reports, None if before is None else before.reports)
        if isinstance(action, UserCodeError):
            raise action
        self.counters = failover.count(self.counters, action)
        log.warning("epoch %s discarded and repeated: %s", epoch, action.reason)

    def _discard(self, epoch: EpochId, cause: Any, tries: int) -> None:
        homes = {task: ref.host for task, ref in self.versions.items()}
        action = failover.decide(cause, homes, tries, self.settings.max_tries)
        self._lift_anchor()
        match action:
            case Repeat(reason):
                self.counters = failover.count(self.counters, action)
                log.warning("epoch %s discarded and repeated: %s", epoch, reason)
            case Rewind(reason):
                self._rewind(reason)
            case Fail(reason):
                if isinstance(cause, Unrestorable):
                    raise RestoreFailed(reason)
                raise EpochFailed(f"Epoch {epoch} was {reason}")

    def _rewind(self, reason: str) -> NoReturn:
        self.counters = failover.count(self.counters, Rewind(reason))
        advice = (
            "The job goes back to its last checkpoint"
            if self.identity.archive is not None
            else "Without checkpoints the state of the job cannot be brought back: run it with "
            "checkpoint=tidegate.Checkpointing(dir=…, interval='10 s'), and start it again"
        )
        raise StateLost(f"{reason}. {advice}.")

    def _accept(self, epoch: EpochId, check: Accepted) -> None:
        for ack in check.acks:
            if ack.version is not None:
                task = TaskId(ack.level, Slot(ack.sender))
                self.versions[task] = VersionRef(VersionId.parse(ack.version), HostId(ack.host))
        looked = {TaskId(a.level, Slot(a.sender)): a.timers for a in check.acks if a.timers is not None}
        self._pending = {**self._pending, **looked}
        if self._time is not _STANDING:
            seen: dict[str, int] = {}
            for ack in check.acks:
                for name, greatest in ack.event_times.items():
                    seen[name] = max(greatest, seen.get(name, greatest))
            self.clocks = self.clocks.after(self._time, seen, self.graph.sources)

    def _prepared(self, epoch: EpochId, check: Accepted) -> tuple[CommitRequest, ...]:
        return tuple(
            CommitRequest(
                lineage=self.lineage,
                sink=Uid(item.sink),
                epoch=epoch,
                slot=Slot(ack.sender),
                payload=item.payload,
                staged=item.staged,
                size_bytes=item.size_bytes,
            )
            for ack in check.acks
            for item in ack.committables
        )

    # -- the Spark job -----------------------------------------------------------------------------------------------

    def _frame(self, epoch: EpochId, batch: DataFrame | None) -> DataFrame:
        anchor = self._anchor
        assert anchor is not None
        p, max_p = self.settings.parallelism, self.settings.max_parallelism
        edges = exchange(self.plan, 1)
        salts = self._salts(1)
        if batch is None:
            frame = epoch_frame.no_rows(self._session, edges)
        elif self._source_tasks:
            frame = epoch_frame.source_tasks(batch, self._orders(epoch, 0), edges)
        else:
            applied = self._time.applied_ms
            frame = epoch_frame.source_rows(batch, self.graph.sources, edges, salts, p, max_p, applied)
        for level in range(1, self.levels + 1):
            frame = epoch_frame.level(frame, anchor, self._orders(epoch, level), exchange(self.plan, level + 1))
        return frame

    @contextmanager
    def _as_wide_as_the_job(self, batch: DataFrame | None) -> Iterator[None]:
        """While rows are combined before their shuffle, Spark's own shuffle for that has as many partitions as the job, and not
        the 200 of a session that nobody has tuned. The session is the query's; in a bounded run, where it is the user's, it is
        left as it was."""
        if batch is None or all(edge.combine is None for edge in exchange(self.plan, 1)):
            yield
            return
        conf = batch.sparkSession.conf
        before = conf.get(_SHUFFLE_PARTITIONS)
        conf.set(_SHUFFLE_PARTITIONS, str(self.settings.parallelism))
        try:
            yield
        finally:
            if before is not None:
                conf.set(_SHUFFLE_PARTITIONS, before)

    def _orders(self, epoch: EpochId, level: int) -> TaskAssignment:
        s = self.settings
        if level == 0:
            senders: int | None = 0
        elif level == 1:
            senders = None if self._source_tasks else 0
        else:
            senders = s.parallelism
        refs = [self.versions.get(TaskId(level, Slot(slot))) for slot in range(s.parallelism)]
        return TaskAssignment(
            job=self.graph.job,
            lineage=self.lineage,
            epoch=epoch,
            parallelism=s.parallelism,
            max_parallelism=s.max_parallelism,
            program=self._programs[level],
            slots=self._placed[level - 1].slots() if level > 0 else (),
            salts=self._salts(level + 1) if level < self.levels else (),
            versions=tuple(ref.version if ref is not None else None for ref in refs),
            backend=s.state_backend,
            backend_options=s.backend_options,
            local_dir=s.local_dir,
            senders=senders,
            archive=self.identity.archive,
            work=self._work.get(level, CheckpointWork()),
            time=self._time,
            wake=self._wake(level),
        )

    def _wake(self, level: int) -> tuple[bool, ...]:
        """Slots whose tasks have to look at their timers although no row may come. Where nobody has looked yet, there may
        be some: in state that was brought back."""
        if level not in self._timed_levels:
            return ()
        restores = self._work.get(level, CheckpointWork()).restores
        tasks = [TaskId(level, Slot(slot)) for slot in range(self.settings.parallelism)]
        return tuple(
            is_due(self._pending[task], self._time)
            if task in self._pending
            else task in self.versions or (bool(restores) and restores[task.slot] is not None)
            for task in tasks
        )

    def _salts(self, level: int) -> tuple[int, ...]:
        """For each slot of a level the salt of the partition that serves it."""
        assert self._anchor is not None
        return tuple(self._anchor.salts[partition] for partition in self._placed[level - 1].partitions)

    # -- placement ---------------------------------------------------------------------------------------------------

    def place(self) -> None:
        """Anchor until every version is at home, unless that is so. A host that stays away longer than allowed is lost, with
        its versions."""
        if self._anchor is not None:
            return
        # Where there is no state yet, none can be lost: executors that are only starting up are waited for.
        timeout_ms = self.settings.host_timeout_ms if self.versions else max(self.settings.host_timeout_ms, _START_MS)
        latest = time.monotonic() + timeout_ms / 1000
        spread_ms = self.settings.spread_ms
        steer: executor_quota.Quotas | None = None
        problem: Unplaceable | str | None = None
        while True:
            left_ms = round((latest - time.monotonic()) * 1000)
            if problem is not None and left_ms <= 0:
                match problem:
                    case Unplaceable(slots, hosts):
                        self._rewind(
                            f"The state of slots {list(slots)} lies on the hosts {', '.join(hosts)}, which did not come back "
                            f"or had no free core for {timeout_ms} ms (host_timeout_ms)"
                        )
                    case _:
                        raise EpochFailed(f"No place could be found for the tasks within {timeout_ms} ms: {problem}")
            # A host that neither answers nor is given up by Spark must not eat up all the time; nor may the others, whose
            # Python workers are ended with an interrupted job and start cold again, be interrupted too soon.
            problem, seen = self._anchor_once(spread_ms, max(timeout_ms // 3, _COLD_START_MS), steer)
            if problem is None:
                return
            log.info("tasks have no place yet: %s", problem)
            # Hosts that are all there but not with as many partitions as they have state: Spark's spread must be steered.
            spread_ms = min(spread_ms * 2, 2_000)
            steer = None
            if isinstance(problem, Unplaceable) and seen.issuperset(problem.hosts):
                steer = executor_quota.quotas(placement.quotas(self._homes()), max(spread_ms, 500))
            time.sleep(0.2)

    def _anchor_once(
        self, spread_ms: int, timeout_ms: int, steer: executor_quota.Quotas | None
    ) -> tuple[Unplaceable | str | None, set[HostId]]:
        """None when the anchor holds, otherwise what is wrong; and the hosts that were seen."""
        s = self.settings
        try:
            with deadline(self._session, "placing the tasks", timeout_ms):
                anchor = drop_anchor(self._session, s.parallelism, s.local_dir, spread_ms, steer)
        except Exception as error:
            return _first_line(error), set()
        seen = set(anchor.layout)
        placed: list[Placed] = []
        for homes in self._homes():
            result = place(anchor.layout, homes)
            if isinstance(result, Unplaceable) and not self.versions:
                # Only wishes: what is not on its host any more is fetched.
                result = place(anchor.layout, [None if i in result.slots else home for i, home in enumerate(homes)])
            if isinstance(result, Unplaceable):
                anchor.release()
                return result, seen
            placed.append(result)
        self._anchor, self._placed = anchor, placed
        return None, seen

    def _homes(self) -> list[list[HostId | None]]:
        """For each level, the host of each slot's version."""
        slots = [Slot(slot) for slot in range(self.settings.parallelism)]
        levels = range(1, self.levels + 1)
        hosts = {task: ref.host for task, ref in self.versions.items()} or self._wished
        return [[hosts.get(TaskId(level, slot)) for slot in slots] for level in levels]

    def _lift_anchor(self) -> None:
        if self._anchor is not None:
            self._anchor.release()
            self._anchor = None

    def continue_under(self, term: Term) -> None:
        """The job was claimed again: from now on epochs carry the new term."""
        self.term = term
        self.identity = replace(self.identity, term=term)

    def forget_versions(self) -> None:
        """Go back to the beginning: no task has state."""
        self._lift_anchor()
        self.versions = {}
        self._pending = {}

    def reset_clocks(self, clocks: Clocks) -> None:
        """Go on from the time of a checkpoint. The clock of this run does not go back."""
        self.clocks = clocks.began(self.graph.sources, self._processing_clock.resume(clocks.clock_ms))

    def release(self) -> None:
        """Let go of the anchor."""
        self._lift_anchor()

    def close(self) -> None:
        """Remove the local versions: the run ends in order, and a later one starts from a checkpoint, or from nothing."""
        if self._anchor is not None and self.versions:
            try:
                with deadline(self._session, "tidying up", _TIDY_MS):
                    self._anchor.forget(self.graph.job, self.lineage, self.settings.local_dir)
            except Exception as error:
                log.warning("local state of this run was left behind: %s", _first_line(error))

    def _bounds(self, epoch: EpochId, frame: DataFrame, only: bool) -> AbstractContextManager[None]:
        """The deadline of an epoch. An only epoch reads all there is, in the user's own session, and takes its time."""
        if only:
            return nullcontext()
        restoring = any(each.restores for each in self._work.values())
        limit_ms = self.settings.restore_timeout_ms if restoring else self.settings.epoch_timeout_ms
        return deadline(frame.sparkSession, f"epoch {epoch}", limit_ms)


def _by_operator(check: Accepted) -> dict[str, tuple[int, int]]:
    total: dict[str, tuple[int, int]] = {}
    for ack in check.acks:
        for name, (rows_in, rows_out) in ack.operators.items():
            before = total.get(name, (0, 0))
            total[name] = (before[0] + rows_in, before[1] + rows_out)
    return total


def _first_line(error: BaseException) -> str:
    """What happened, in one line. An error of the JVM's begins with the call it happened in and wraps its cause."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if causes and lines[0].startswith("An error occurred while calling"):
        return causes[-1][:500]
    return lines[0][:500]
