"""A job starts from a savepoint that somebody has rewritten: the driver's own claim, checkpoints and sinks, without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tidegate as tg
from tests.unit.api.shop import Frame
from tests.unit.runtime.checkpoints.test_output import WAIT_S, Place, Target
from tests.unit.runtime.driver.test_launch import claimed
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import decode, encode
from tidegate.checkpoint.output.staging import JobStaging
from tidegate.connectors.files import payload
from tidegate.connectors.files.payload import StagedFile
from tidegate.connectors.outcome import CommitOutcome
from tidegate.connectors.sink import WriterContext
from tidegate.core.ids import AttemptId, EpochId, Slot, Uid
from tidegate.runtime.checkpoints.committers import Committers
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.checkpoints.sink_threads import OutputStopped, SinkThreads
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.schema.schema import Schema
from tidegate.testing.storage import MemoryStorage

OUT = Uid("out")
SCHEMA = Schema.parse("a int")


class Home:
    """The home of a user, below which a job writes to a folder, and what else is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "data" / "out"
        self.out.mkdir(parents=True)
        (folder / ".bashrc").write_text("export PATH\n")
        self.savepoint = self._savepoint()

    def job(self) -> tg.Job:
        job = tg.Job("job", parallelism=1)
        job.source("rows", Frame("a int")).sink("out", tg.FileSink(str(self.out)))
        return job

    def _savepoint(self) -> Path:
        """Return a savepoint of the job that carries output of one epoch: a file that no reader sees yet."""
        down = Target()
        down.error = OSError("down")
        with Place(self.folder).run(out=down) as job:
            point = job.loop.ownership.restore_point()
            epoch, attempt = EpochId(point.term, 2), AttemptId(1)
            context = WriterContext(
                lineage=point.lineage,
                sink=OUT,
                epoch=epoch,
                slot=Slot(0),
                attempt=attempt,
                schema=SCHEMA,
                staging=JobStaging(MemoryStorage(), JobLayout("job"), epoch, OUT, attempt),
            )
            writer = tg.FileSink(str(self.out)).create_writer(context)
            writer.write(pa.RecordBatch.from_pydict({"a": pa.array([1], pa.int32())}))
            staged = writer.prepare_commit()
            assert staged is not None
            assert job.epoch("out", payload=staged) == epoch
            return Path(job.loop.savepoint(str(self.folder / "savepoints"), terminal=True).result(WAIT_S))

    def rewrite(self, final: str | None = None, hidden: str | None = None) -> None:
        """Let the savepoint name other files, and have the checksum of its new content."""
        path = self.savepoint / "_metadata"
        found = decode(path.read_bytes())
        (committable,) = found.committables
        (file,) = payload.decode(committable.payload)
        forged = StagedFile(final or file.final, hidden or file.hidden)
        path.write_bytes(
            encode(replace(found, committables=(replace(committable, payload=payload.encode((forged,))),)))
        )

    @contextlib.contextmanager
    def started(self) -> Iterator[CheckpointLoop]:
        """Start the job from the savepoint, up to its first epoch."""
        job = self.job()
        with claimed(job, self.folder / "ckpt", path=str(self.savepoint)) as owned:
            committers = Committers(job.graph(), owned.history.storage)
            committers.history = owned.store.entry.history
            described = JobDescription(
                job="job",
                parallelism=1,
                max_parallelism=128,
                backend="hashmap",
                levels=1,
                sources=(Uid("rows"),),
                operators=(),
                state_ids={},
                spark_version="4.3.0",
                sink_levels=frozenset({1}),
            )
            loop = CheckpointLoop(owned, described, SinkThreads(committers.committers, owned.history.storage))
            first = EpochId(owned.restore_point().term, 1)
            loop.begin_at(EpochSnapshot(first, {}, None, self.folder / "query", Clocks()))
            try:
                yield loop
            finally:
                loop.leave()
                committers.close()

    def files(self) -> dict[str, bytes]:
        """Everything below the home that is not the job's own."""
        own = ("ckpt/", "savepoints/", "query/")
        found = {str(p.relative_to(self.folder)): p.read_bytes() for p in self.folder.rglob("*") if p.is_file()}
        return {name: content for name, content in found.items() if not name.startswith(own)}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize(
    "forged",
    [
        {"final": "../../.bashrc"},
        {"final": "{home}/.bashrc"},
        {"final": "a=1/../../../.bashrc"},
        {"hidden": "../../../.bashrc"},
        {"hidden": "{home}/.bashrc"},
    ],
    ids=["onto a file above", "onto a file by its path", "onto a file by a partition", "from above", "from a path"],
)
def test_a_start_from_a_savepoint_that_names_a_file_outside_moves_nothing(home: Home, forged: dict[str, str]) -> None:
    home.rewrite(**{name: path.format(home=home.folder) for name, path in forged.items()})
    before = home.files()
    with home.started() as loop:
        with pytest.raises(OutputStopped, match="No writer of this sink left that") as stopped:
            loop.output_committed().result(WAIT_S)
        assert stopped.value.outcome is CommitOutcome.FAILED_KNOWN
        assert loop.broken is stopped.value, "the job ends"
    assert home.files() == before


def test_a_start_from_the_savepoint_as_it_was_written_commits_its_file(home: Home) -> None:
    with home.started() as loop:
        loop.output_committed().result(WAIT_S)
    (file,) = home.out.glob("*.json")
    assert file.read_text() == '{"a": 1}\n'
    assert (home.folder / ".bashrc").read_text() == "export PATH\n"
