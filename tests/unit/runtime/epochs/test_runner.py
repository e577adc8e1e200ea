"""What the driver assigns to the tasks of an epoch: the choices of the job, and the state they start from. No Spark."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import tidegate as tg
from tidegate.checkpoint.metadata import TaskState
from tidegate.checkpoint.task.assignment import KeyedShare, TaskRestore
from tidegate.checkpoint.task.version_restore import RestoreOrder
from tidegate.connectors.kafka.errors import KafkaUnavailable, RecordUnreadable, RowsGone, RowUnwritable
from tidegate.core.errors import EpochFailed
from tidegate.core.ids import EpochId, HostId, Lineage, Partition, Slot, TaskId, Term
from tidegate.runtime.epochs.check import Accepted, Missed
from tidegate.runtime.epochs.run_options import RunOptions
from tidegate.runtime.epochs.runner import EpochRunner, Identity, StateLost, _Epoch, _of_task
from tidegate.runtime.epochs.settings import read_settings
from tidegate.runtime.epochs.slot_placement import PlacedSlots
from tidegate.runtime.exchange.assignment import Archive, TaskAssignment
from tidegate.runtime.exchange.messages import TaskAck
from tidegate.runtime.placement.anchor import Anchor
from tidegate.runtime.placement.local_versions import LocalVersions
from tidegate.runtime.placement.permutation import Placed
from tidegate.state.version import VersionId, VersionRef

HOSTS = (HostId("a"), HostId("b"))
ARCHIVE = Archive("s3://bucket/checkpoints", {"region": "eu"})
HEAP_TIMERS = {"state.backend.rocksdb.timer-service.factory": "heap"}
OWN = "tests.unit.runtime.task.test_task.OwnFactory"


class Session:
    """As much of a SparkSession as is asked before the first Spark job."""

    class conf:
        getAll: ClassVar[dict[str, str]] = {}

        @staticmethod
        def get(key: str, default: str | None = None) -> str | None:
            return default

    def newSession(self) -> Session:
        return self


class Forgets(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        yield row.k, self.n.value()

    def on_timer(self, timestamp, ctx):
        self.n.clear()


def runner_of(in_python: bool = False, **choices: Any) -> EpochRunner:
    """Of a job with two levels, whose source stage runs Python or not."""
    job = tg.Job("counts", parallelism=2)
    rows = job.source("rows", tg.testing.frame("k string"))
    rows = rows.map(lambda row: row) if in_python else rows
    one = rows.key_by("k").process("one", Forgets(), schema="k string, n bigint")
    one.key_by("k").process("two", Forgets(), schema="k string, n bigint").sink("out", tg.CollectSink())
    settings, _ = read_settings(1, RunOptions(**{"parallelism": 2, "max_parallelism": 40} | choices))
    session: Any = Session()
    return EpochRunner(session, job.graph(), settings, Identity(Lineage("line"), Term(3), ARCHIVE))


def epoch_of(runner: EpochRunner) -> _Epoch:
    time = runner._clock.begin_epoch(final=False, stands=False)
    return _Epoch(id=EpochId(Term(3), 7), batch=None, work={}, time=time, only=False, started=0.0)


def assignment(runner: EpochRunner, level: int) -> TaskAssignment:
    """Of an epoch for which the second level is placed the other way round."""
    nothing: Any = None
    levels = (Placed((Partition(0), Partition(1))), Placed((Partition(1), Partition(0))))
    return runner._assignment(epoch_of(runner), PlacedSlots(Anchor(nothing, HOSTS, (70, 71)), levels), level)


@pytest.mark.feature("B3", "B4", "F2", "F20", "F22")
@pytest.mark.parametrize(
    ("choices", "backend", "options"),
    [
        ({}, "hashmap", {}),
        ({"state_backend": "rocksdb", "options": HEAP_TIMERS}, "rocksdb", HEAP_TIMERS),
        ({"options": {"state.backend.type": OWN} | HEAP_TIMERS}, OWN, HEAP_TIMERS),
    ],
)
def test_tasks_of_all_levels_use_the_backend_that_the_job_chose_and_its_options(choices, backend, options):
    runner = runner_of(**choices)
    for level in (1, 2):
        assigned = assignment(runner, level)
        assert (assigned.backend, assigned.backend_options) == (backend, options)


@pytest.mark.feature("G10")
@pytest.mark.parametrize(("on", "backend"), [(True, "rocksdb+changelog"), (False, "rocksdb")])
def test_tasks_of_all_levels_write_what_they_change_only_if_the_job_switches_the_changelog_on(on, backend):
    chosen = tg.Checkpointing(dir="s3://bucket/checkpoints", interval="1 s", options={"state.changelog.enabled": on})
    runner = runner_of(state_backend="rocksdb", checkpoint=chosen)
    assert [assignment(runner, level).backend for level in (1, 2)] == [backend, backend]


@pytest.mark.feature("D31", "F10", "F23")
def test_tasks_keep_state_in_the_local_directory_of_the_job_and_checkpoints_in_its_storage():
    runner = runner_of(options={"execution.checkpointing.local-backup.dirs": "/fast"})
    assigned = assignment(runner, 1)
    assert (assigned.local_dir, assigned.archive) == ("/fast", ARCHIVE)
    marks = runner._watcher.place
    assert (marks.local_dir, marks.archive) == ("/fast", ARCHIVE), "the driver looks for signs of progress there"


@pytest.mark.feature("A8", "A13", "A14", "H14")
def test_tasks_know_the_parallelism_and_the_number_of_key_groups_of_the_job():
    runner = runner_of(parallelism=2, max_parallelism=40)
    found = [assignment(runner, level) for level in (1, 2)]
    assert [(each.parallelism, each.max_parallelism) for each in found] == [(2, 40), (2, 40)]


@pytest.mark.feature("C12", "C17", "C21")
def test_a_task_awaits_barriers_of_all_tasks_above_it_and_none_of_plain_sql():
    assert [assignment(runner_of(), level).senders for level in (1, 2)] == [0, 2]
    # How many tasks read the sources is known to Spark only.
    assert [assignment(runner_of(in_python=True), level).senders for level in (0, 1, 2)] == [0, None, 2]


@pytest.mark.feature("A12")
def test_a_task_starts_from_the_newest_version_of_its_slot_and_its_rows_go_where_that_is():
    runner = runner_of()
    for number in (6, 7):
        ack = TaskAck(3, number, 2, 1, 0, 5, "b", f"3/v{number}-5", b"", 1, 1)
        runner._accept(epoch_of(runner), Accepted((ack,)))
    newest = VersionId.parse("3/v7-5")
    assert runner.versions == {TaskId(2, Slot(1)): VersionRef(newest, HostId("b"))}
    assert runner._hosts() == {TaskId(2, Slot(1)): "b"}
    first, second = assignment(runner, 1), assignment(runner, 2)
    assert (first.versions, second.versions) == ((None, None), (None, newest))
    assert (first.slots, second.slots) == ((0, 1), (1, 0))
    assert (first.salts, second.salts) == ((71, 70), ())


@pytest.mark.feature("B1", "C19")
def test_a_task_with_state_checks_its_timers_by_the_clocks_of_the_epoch_until_it_has_reported_them():
    runner = runner_of()
    runner.versions[TaskId(1, Slot(1))] = VersionRef(VersionId.parse("3/v6-5"), HOSTS[0])
    assigned = assignment(runner, 1)
    assert assigned.wake == (False, True)
    assert assigned.time.clock_ms >= runner.clocks.clock_ms > 0
    ack = TaskAck(3, 7, 1, 1, 1, 5, "b", "3/v7-5", b"", 1, 1, timers=(None, assigned.time.clock_ms + 3_600_000))
    runner._accept(epoch_of(runner), Accepted((ack,)))
    assert assignment(runner, 1).wake == (False, False)


@pytest.mark.feature("D31")
def test_at_its_end_a_run_removes_its_versions_from_the_local_directory_of_the_job():
    runner, told = runner_of(options={"execution.checkpointing.local-backup.dirs": "/fast"}), []
    runner._placement = SimpleNamespace(remove_versions=lambda *place: told.append(place))
    runner.close()
    assert told == [], "there are none"
    runner.versions[TaskId(1, Slot(0))] = VersionRef(VersionId.parse("3/v6-5"), HOSTS[0])
    runner.close()
    runner.close(leave=True)
    assert told == [("counts", "line", "/fast", False), ("counts", "line", "/fast", True)]


class Restoring(EpochRunner):
    """Tells what it would run."""

    def run_epoch(self, batch, **more):
        return more


@pytest.mark.feature("H2", "H11", "H12")
def test_a_return_to_a_checkpoint_prefers_hosts_with_versions_and_keeps_what_they_know_of_its_files():
    runner, task = runner_of(), TaskId(1, Slot(1))
    plan = TaskRestore(task=task, key_groups=(20, 39), as_is=task)
    order = RestoreOrder(plan=plan, sources=(task_state(1, "3/v4-1", (20, 39)),), root="job", stored=(Term(2), 7))
    runner.__class__ = Restoring
    runner.versions[task] = VersionRef(VersionId.parse("3/v6-5"), HOSTS[1])
    ran = runner.restore({task: order})
    assert runner._placement._preferred == {task: HOSTS[1]}
    assert runner._placement._looked_for == LocalVersions("counts", "line", {task: VersionId.parse("3/v4-1")})
    assert runner.versions == {}, "nothing after the checkpoint counts"
    at_the_start = replace(order, trusts_boot=True)
    assert (ran["work"][1].restores, ran["work"][2].restores) == ((None, at_the_start), (None, None))
    assert (ran["work"][1].records, ran["time_stands"]) == (((Term(2), 7),), True)


@pytest.mark.feature("H11")
def test_after_an_epoch_has_run_no_restore_trusts_a_version_without_checksums():
    """It returns to a checkpoint because something has failed, perhaps for a damaged file."""
    runner, task = runner_of(), TaskId(1, Slot(1))
    plan = TaskRestore(task=task, key_groups=(20, 39), as_is=task)
    order = RestoreOrder(plan=plan, sources=(task_state(1, "3/v4-1", (20, 39)),), root="job", stored=(Term(2), 7))
    runner.__class__ = Restoring
    runner._number = 1
    assert runner.restore({task: order})["work"][1].restores == (None, order)
    assert (order.trusts_boot, order.trusted) == (False, {})


def task_state(slot: int, version: str, key_groups: tuple[int, int]) -> TaskState:
    task = TaskId(1, Slot(slot))
    return TaskState(task=task, key_groups=key_groups, backend="rocksdb", version=VersionId.parse(version))


def test_after_a_rescale_tasks_run_where_most_of_their_state_is_and_use_it_in_place():
    runner = runner_of()
    runner.__class__ = Restoring
    accepted = {0: "3/v6-5", 1: "3/v5-2"}
    runner.versions = {
        TaskId(1, Slot(slot)): VersionRef(VersionId.parse(version), HOSTS[slot]) for slot, version in accepted.items()
    }
    runner.change_parallelism(3)
    old = [task_state(0, "3/v6-5", (0, 19)), task_state(1, "3/v4-1", (20, 39))]  # the second is not the accepted one
    shares = [[(0, (0, 13))], [(0, (14, 19)), (1, (20, 26))], [(1, (27, 39))]]
    orders = {}
    for slot, parts in enumerate(shares):
        keyed = tuple(KeyedShare(TaskId(1, Slot(source)), groups, (1,), True) for source, groups in parts)
        plan = TaskRestore(task=TaskId(1, Slot(slot)), key_groups=(0, 0), keyed=keyed, parallelism=3)
        orders[plan.task] = RestoreOrder(plan=plan, sources=tuple(old[n] for n, _ in parts), root="job", stored=None)
    work = runner.restore(orders)["work"][1]
    preferred = runner._placement._preferred
    assert [preferred[TaskId(1, Slot(slot))] for slot in range(3)] == [HOSTS[0], HOSTS[1], HOSTS[1]]
    assert [order.trusted for order in work.restores] == [
        {TaskId(1, Slot(0)): HOSTS[0]},
        {TaskId(1, Slot(0)): HOSTS[0]},
        {},
    ]
    assert work.keep == ((old[0].version,), (old[1].version,), ()), "others may take from them"
    again = runner.restore(orders)["work"][1]
    assert [order.trusted for order in again.restores] == [{}, {}, {}], "once"


@pytest.mark.feature("H1")
def test_a_version_that_its_own_host_misses_is_lost_and_one_that_another_host_misses_is_not():
    runner = runner_of()
    runner.versions[TaskId(1, Slot(1))] = VersionRef(VersionId.parse("3/v6-5"), HOSTS[1])
    elsewhere, at_home = (Missed((TaskAck(3, 7, 1, 1, 1, 5, host, None, b"", 0, 0),)) for host in HOSTS)
    runner._discard(EpochId(Term(3), 7), elsewhere, 1)
    assert runner.counters.replacements == 1, "the epoch is repeated on other hosts"
    with pytest.raises(StateLost, match="The job returns to its last checkpoint"):
        runner._discard(EpochId(Term(3), 7), at_home, 2)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (RecordUnreadable("The value of the record at offset 1 …"), RecordUnreadable),
        (RowUnwritable("A row for topic 't' …"), RowUnwritable),
        (RowsGone(["partition 0 of 't' at 4"]), EpochFailed),
        (KafkaUnavailable("Kafka did not …"), EpochFailed),
    ],
)
def test_only_a_record_or_a_row_that_no_retry_can_mend_ends_the_job(raised, expected):
    """Rows that a task did not find may be lost or not; the driver tells, after its grace period, as the user chose."""
    through_spark = RuntimeError(f"[…] Traceback …\n{type(raised).__module__}.{type(raised).__name__}: {raised}\n")
    found = _of_task(EpochId(Term(3), 7), through_spark)
    assert type(found) is expected
    assert str(raised) in str(found)
