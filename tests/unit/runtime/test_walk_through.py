"""A word count walked through by hand, without Spark: two source tasks, two counting tasks, one sink, and its checkpoints."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

import tidegate as tg
from tests.unit.runtime.driver.epoch_kit import epoch_report
from tidegate.checkpoint.completed.retained import resolve
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata.operators import describe
from tidegate.config import Checkpointing, read_options
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.config.choices import JobEnd
from tidegate.control.cli import main
from tidegate.core.errors import EpochFailed
from tidegate.core.ids import EpochId, Slot, TaskId, ordinal
from tidegate.graph import state_ids
from tidegate.graph.levels import plan
from tidegate.runtime.checkpoints.committers import Committers
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.history import JobHistory
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.checkpoints.ownership import Ownership
from tidegate.runtime.checkpoints.sink_threads import SinkThreads
from tidegate.runtime.epochs.check import Accepted, Broken, EpochCheck, Expected, verify_epoch
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.epochs.pickling import pickled
from tidegate.runtime.epochs.reports import committables_of
from tidegate.runtime.exchange.assignment import Archive, CheckpointWork, TaskAssignment
from tidegate.runtime.exchange.messages import Barrier, decode_barrier
from tidegate.runtime.exchange.program import programs
from tidegate.runtime.sources.query_directory import Positions
from tidegate.runtime.task.run_level import run_level, run_source_stage
from tidegate.state.keys.key_groups import salts
from tidegate.state.version import VersionId
from tidegate.storage import LocalStorage, RoutedStorage

WAIT_S = 60
TASKS = [TaskId(1, Slot(slot)) for slot in (0, 1)]
SALTS = salts(2)
LINE = pa.struct([("line", pa.string())])
T = TypeVar("T")
Sent: TypeAlias = list[pa.RecordBatch]
"""What one task sends to the next level, its barriers last."""


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.word, self.n.value()


class WordCount:
    """The job, its driver and its tasks. What Spark does otherwise, carrying rows between tasks, happens here."""

    def __init__(self, folder: Path, path: str | None = None, clocks: Clocks | None = None, **options: str) -> None:
        """`path` is a snapshot to start from. Options are those of checkpointing, with underscores in their names."""
        self.folder, self.shown, self.clocks = folder, tg.CollectSink(), clocks or Clocks()
        job = tg.Job("words", parallelism=2)
        lines = job.source("lines", tg.testing.frame("line string"))
        words = lines.flat_map(lambda row: [(word,) for word in row.line.split()], schema="word string")
        words.key_by("word").process("count", Count(), schema="word string, n bigint").sink("out", self.shown)
        graph = job.graph()
        layout = plan(graph)
        ids = state_ids.assign({}, [(node.uid, spec.name) for node in graph.processes for spec in node.states])
        self.programs = [pickled(program) for program in programs(graph, layout, ids)]
        self.storage = RoutedStorage(LocalStorage(folder / "checkpoints"))
        chosen = Checkpointing(dir=str(folder / "checkpoints"), interval="1 h", num_retained=3).to_options()
        chosen |= {f"execution.checkpointing.{name.replace('_', '-')}": value for name, value in options.items()}
        history = JobHistory(self.storage, JobLayout("words"), CheckpointConfig.of(read_options(chosen)))
        source = None if path is None else resolve(self.storage, history.layout, path)[0]
        owned = Ownership.claim(history, Start(source=source), force=True)
        self.described = JobDescription(
            job="words",
            parallelism=2,
            max_parallelism=128,
            backend="rocksdb",
            levels=1,
            sources=(graph.sources[0].uid,),
            operators=describe(graph, layout, 2, "rocksdb", ids),
            state_ids=ids,
            spark_version="4.3.0",
        )
        self.loop = CheckpointLoop(
            owned, self.described, SinkThreads(Committers(graph, self.storage).committers, self.storage)
        )
        self.lineage, self.term = owned.restore_point().lineage, owned.restore_point().term
        self.number, self.attempts = 0, itertools.count(1)
        self.versions: dict[TaskId, VersionId] = {}
        self.loop.begin_at(self.snapshot())

    def snapshot(self) -> EpochSnapshot:
        positions = Positions((f'{{"epoch":{self.number}}}',), "{}")
        return EpochSnapshot(self.epoch, dict(self.versions), positions, self.folder / "query", self.clocks)

    @property
    def epoch(self) -> EpochId:
        return EpochId(self.term, self.number)

    def assignment(self, level: int, work: CheckpointWork) -> TaskAssignment:
        return TaskAssignment(
            job="words",
            lineage=self.lineage,
            epoch=self.epoch,
            parallelism=2,
            max_parallelism=128,
            program=self.programs[level],
            slots=(Slot(0), Slot(1)),
            salts=SALTS if level == 0 else (),
            versions=tuple(self.versions.get(task) for task in TASKS),
            backend="rocksdb",
            backend_options={},
            local_dir=str(self.folder / "local"),
            senders=None,
            archive=Archive(str(self.folder / "checkpoints"), {}),
            work=work,
        )

    def send(self, *lines: str) -> list[Sent]:
        """Begin an epoch: each source task reads one line, sends its words, and after them a barrier to each counting task."""
        self.number += 1
        orders = self.assignment(0, CheckpointWork())
        read = [pa.record_batch({"s0": pa.array([{"line": line}] if line else [], LINE)}) for line in lines]
        tasks = [run_source_stage(orders, place, next(self.attempts), [batch]) for place, batch in enumerate(read)]
        return [list(task) for task in tasks]

    def count(self, *inputs: list[Sent]) -> EpochCheck:
        """Run the two counting tasks on what each got of these sources, and let the driver judge what they report."""
        work = replace(self.loop.uploads.work(empty=False)[1], wait_ms=WAIT_S * 1_000)
        orders = self.assignment(1, work)
        outs = [
            run_level(orders, slot, next(self.attempts), arriving(input, slot)) for slot, input in enumerate(inputs)
        ]
        reported = [row for out in outs for batch in out for row in batch.column(0).to_pylist()]
        return verify_epoch(Expected(self.epoch, 1, 2, source_tasks=True), reported)

    def accept(self, checked: EpochCheck, heard: tuple[int, ...] = (0, 1)) -> None:
        """The driver accepts the epoch and goes on. It hears of uploads from these tasks; other reports are lost."""
        assert isinstance(checked, Accepted), checked
        acks = [ack for ack in checked.acks if ack.level == 1]
        self.versions |= {TASKS[ack.sender]: VersionId.parse(ack.version) for ack in acks if ack.version}
        report = epoch_report(
            self.epoch,
            committables=committables_of(acks, self.lineage, self.epoch),
            uploads=tuple((TASKS[ack.sender], item) for ack in acks for item in ack.uploads if ack.sender in heard),
        )
        self.loop.epoch_finished(report, self.snapshot(), True)

    def run(self, *lines: str, heard: tuple[int, ...] = (0, 1)) -> None:
        sent = self.send(*lines)
        self.accept(self.count(sent, sent), heard)
        self.loop._thread.call(lambda: None)  # returns when the thread has done all that came before

    def checkpoint(self) -> CheckpointRef:
        """Ask for a checkpoint of the last epoch, and run empty epochs until it is complete and its output visible."""
        return self.complete(self.loop.request())

    def complete(self, asked: Future[T]) -> T:
        self.loop._thread.call(lambda: None)
        for _ in range(100):
            if asked.done():
                break
            self.run("", "")
        return asked.result(0)


def arriving(sent: list[Sent], slot: int) -> Sent:
    """What Spark's shuffle brings to one task."""
    return [batch.filter(pc.equal(batch.column("part"), SALTS[slot])) for task in sent for batch in task]


def barriers(sent: Sent) -> list[Barrier]:
    return [decode_barrier(raw) for batch in sent for raw in batch.column("ctl").drop_null().to_pylist()]


def counts(folder: Path, checkpoint: int) -> dict[str, int]:
    """What the counting tasks held, as that checkpoint stores it."""
    stored = tg.Savepoint.open(str(folder / "checkpoints" / "words" / f"chk-{checkpoint}"))
    return {entry.key: entry.value for entry in stored.state("count", "n").entries()}


def tables(words: WordCount, checkpoint: int) -> set[str]:
    """The stored table files that a checkpoint refers to."""
    _, metadata = resolve(words.storage, JobLayout("words"), f"words/chk-{checkpoint}")
    return {file.path for task in metadata.tasks for file in task.files if file.name.endswith(".sst")}


@pytest.fixture
def words(tmp_path: Path) -> Iterator[WordCount]:
    started = WordCount(tmp_path)
    yield started
    started.loop.leave()


@pytest.mark.feature("N3")
def test_barriers_cut_the_words_into_successive_checkpoints(words: WordCount, tmp_path: Path) -> None:
    words.run("to sleep", "to dream")
    words.checkpoint()
    words.run("to be", "")
    words.loop.output_committed().result(WAIT_S)  # everything that may be visible by now is
    shown = [tuple(row) for row in words.shown.rows]
    words.run("", "to sleep")
    words.checkpoint()
    assert counts(tmp_path, 1) == {"to": 2, "sleep": 1, "dream": 1}
    assert sorted(shown) == [("dream", 1), ("sleep", 1), ("to", 1), ("to", 2)]
    assert counts(tmp_path, 2) == {"to": 4, "sleep": 2, "dream": 1, "be": 1}
    assert sorted(map(tuple, words.shown.rows[4:])) == [("be", 1), ("sleep", 2), ("to", 3), ("to", 4)]


@pytest.mark.feature("N3")
def test_a_checkpoint_holds_no_output_of_words_that_come_after_its_barrier(words: WordCount) -> None:
    words.run("to sleep", "to dream")
    asked = words.loop.request()
    words.loop._thread.call(lambda: None)
    words.run("to be", "")  # Meanwhile the tasks store what they held before.
    taken = words.complete(asked)
    _, metadata = resolve(words.storage, JobLayout("words"), f"words/chk-{taken.id}")
    assert taken.epoch == EpochId(words.term, 1)
    assert {each.epoch for each in metadata.committables} == {taken.epoch}
    assert len(words.shown.rows) == 4


@pytest.mark.feature("N3")
def test_a_savepoint_holds_no_output_of_words_that_come_after_its_barrier(words: WordCount, tmp_path: Path) -> None:
    words.run("to sleep", "to dream")
    asked = words.loop.savepoint(str(tmp_path / "savepoints"), terminal=False, format="NATIVE")
    words.loop._thread.call(lambda: None)
    words.run("to be", "")
    _, metadata = resolve(words.storage, JobLayout("words"), words.complete(asked))
    assert {each.epoch for each in metadata.committables} == {EpochId(words.term, 1)}


@pytest.mark.feature("N7")
def test_two_sources_and_two_sums_from_their_barriers_to_a_complete_checkpoint(
    words: WordCount, tmp_path: Path
) -> None:
    first, second = words.send("to sleep", "to dream")
    # Each source ends its words with a barrier to each sum: of which epoch, for whom, after how many rows.
    assert [(b.number, b.target, b.rows) for b in barriers(first)] == [(1, 0, 0), (1, 1, 2)]
    assert [(b.number, b.target, b.rows) for b in barriers(second)] == [(1, 0, 1), (1, 1, 1)]
    # While a sum has the input of one source only it is not aligned, and nothing of the epoch counts.
    assert isinstance(words.count([first, second], [first]), Broken)
    words.accept(words.count([first, second], [first, second]))
    assert set(words.versions) == set(TASKS)
    asked = words.loop.request()
    words.loop._thread.call(lambda: None)
    words.run("", "", heard=(0,))
    assert words.loop.statistics.counts.completed == 0
    assert words.shown.rows == []
    words.run("", "", heard=(1,))
    assert asked.result(WAIT_S).epoch == EpochId(words.term, 1)
    assert len(words.shown.rows) == 4


@pytest.mark.feature("N10")
def test_a_checkpoint_of_the_whole_job_is_what_the_next_driver_continues_from(words: WordCount, tmp_path: Path) -> None:
    words.run("to sleep", "to dream")
    words.run("to be", "")
    taken = words.checkpoint()
    words.run("lost with the driver", "")
    words.loop.leave()
    again = WordCount(tmp_path)
    point = again.loop.ownership.restore_point()
    assert (taken.epoch, point.checkpoint_id) == (EpochId(words.term, 2), taken.id)
    assert ordinal(point.term) == ordinal(words.term) + 1
    sources, _ = point.sources(again.described, allow_unclaimed=False)
    assert [source.line for source in sources] == ['{"epoch":2}']
    assert set(point.orders(again.described, False, {})) == set(TASKS)
    assert counts(tmp_path, taken.id) == {"to": 3, "sleep": 1, "dream": 1, "be": 1}
    again.loop.leave()


@pytest.mark.feature("N9", "N11", "O16")
@pytest.mark.parametrize("incremental", ["true", "false"])
def test_an_incremental_checkpoint_refers_to_tables_of_the_one_before_and_a_full_one_does_not(
    tmp_path: Path, incremental: str
) -> None:
    words = WordCount(tmp_path, incremental=incremental, data_inline_threshold="0 b")
    words.run("to sleep", "to dream")
    words.checkpoint()
    words.run("to be", "")
    words.checkpoint()
    words.loop.leave()
    first, second = (tables(words, checkpoint) for checkpoint in (1, 2))
    assert first < second if incremental == "true" else first.isdisjoint(second)


@pytest.mark.feature("N26")
def test_a_cancelled_job_resumes_from_the_metadata_of_the_retained_checkpoint_that_it_is_given(
    words: WordCount, tmp_path: Path
) -> None:
    words.run("to sleep", "to dream")
    words.checkpoint()
    words.run("to be", "")
    assert words.checkpoint().id == 2
    words.loop.finish(JobEnd.CANCELED)
    again = WordCount(tmp_path, path=str(tmp_path / "checkpoints" / "words" / "chk-1" / "_metadata"))
    assert again.loop.ownership.restore_point().checkpoint_id == 1
    assert counts(tmp_path, 1) == {"to": 2, "sleep": 1, "dream": 1}
    again.loop.leave()


@pytest.mark.feature("N34")
def test_the_watermark_of_a_checkpoint_is_that_of_the_job_that_continues_from_it(tmp_path: Path) -> None:
    words = WordCount(tmp_path, clocks=Clocks(clock_ms=5, watermark_ms=60_000, greatest={"lines": 60_001}))
    words.run("to sleep", "to dream")
    words.checkpoint()
    words.loop.leave()
    again = WordCount(tmp_path)
    assert again.loop.ownership.restore_point().clocks() == words.clocks
    again.loop.leave()


@pytest.mark.feature("N24")
def test_a_savepoint_lists_the_position_of_its_source_and_the_state_of_its_operator_and_no_sink(
    words: WordCount, tmp_path: Path
) -> None:
    words.run("to sleep", "to dream")
    words.complete(words.loop.request())
    path = words.complete(words.loop.savepoint(str(tmp_path / "savepoints"), terminal=False))
    shown = CliRunner().invoke(main, ["savepoint", "show", path, "-o", "json"])
    listed = json.loads(shown.stdout)
    assert {state["operator"]: state["state"] for state in listed["states"]} == {"count": "n"}
    assert list(listed["positions"]) == ["lines"]


@pytest.mark.feature("N25")
def test_files_of_checkpoints_and_of_a_savepoint_lie_where_flink_puts_them(tmp_path: Path) -> None:
    words = WordCount(tmp_path, data_inline_threshold="0 b")
    words.run("to sleep", "to dream")
    words.checkpoint()
    path = Path(words.complete(words.loop.savepoint(str(tmp_path / "savepoints"), terminal=False)))
    words.loop.leave()
    job = tmp_path / "checkpoints" / "words"
    assert {found.name for found in job.iterdir()} >= {"chk-1", "shared", "log", "owner"}
    assert (job / "chk-1" / "_metadata").is_file()
    assert {found.parent.parent.name for found in (job / "shared").glob("*/*/*/chk-1-*")} == {"L1-S0", "L1-S1"}
    assert path.name.startswith(f"savepoint-{words.lineage[:6]}-")
    assert {found.name for found in path.iterdir()} == {"_metadata", "count"}


@pytest.mark.feature("N29", "O11")
def test_a_row_that_takes_longer_than_the_timeout_keeps_the_checkpoint_from_completing(tmp_path: Path) -> None:
    """Tasks acknowledge with the end of an epoch, and this one does not end in time."""
    words = WordCount(tmp_path, timeout="200 ms", tolerable_failed_checkpoints="1")
    words.run("to sleep", "to dream")
    asked = words.loop.request()
    slow = words.send("to be", "")
    with pytest.raises(EpochFailed, match="expired before completing"):
        asked.result(20)
    words.accept(words.count(slow, slow))
    words.loop._thread.call(lambda: None)
    assert words.loop.ownership.restore_point().snapshot is None
    words.loop.leave()
