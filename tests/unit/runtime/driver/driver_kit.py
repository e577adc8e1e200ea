"""A driver and its task without Spark: real options, real checkpoints, real files, and a clock that stands still."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.runtime.driver.epoch_kit import epoch_report
from tidegate.checkpoint.completed.retained import resolve
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.task.version_upload import UploadOrder, VersionUpload
from tidegate.config import Checkpointing
from tidegate.config.choices import JobEnd
from tidegate.core.ids import AttemptId, EpochId, Slot, TaskId, Uid
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.history import JobHistory
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.checkpoints.ownership import Ownership
from tidegate.runtime.checkpoints.sink_threads import SinkThreads
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.epochs.run_options import RunOptions
from tidegate.runtime.epochs.settings import read_settings
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.runtime.exchange.messages import Uploaded
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import state_prefix
from tidegate.state.version import VersionId
from tidegate.storage import RoutedStorage, open_storage
from tidegate.testing.clock import ManualClock
from tidegate.testing.storage import FaultyStorage

TASK = TaskId(1, Slot(0))
GROUPS = (0, 7)
KEYS = 8
VALUE_BYTES = 4_000
"""Of the value of each key, which does not compress: the values of all keys exceed the inline threshold."""


class Driver:
    """A run of a job with one task, whose epochs change its state. Use it as a context; leaving it suspends the job.

    Times among `checkpointing` may be milliseconds, which tests count with.
    """

    def __init__(
        self, folder: Path, job: str = "job", *, options: Mapping[str, Any] | None = None, path: str | None = None,
        listening: frozenset[int] = frozenset(), accepted: tuple[EpochId, ...] = (), **checkpointing: Any,
    ) -> None:  # fmt: skip
        times = ("interval", "timeout", "min_pause")
        written = {
            name: f"{value} ms" if name in times and isinstance(value, int) else value
            for name, value in checkpointing.items()
        }
        chosen = Checkpointing(**{"dir": str(folder / "checkpoints"), "interval": "1 s"} | written)
        settings, durability = read_settings(
            2, RunOptions(parallelism=1, max_parallelism=KEYS, checkpoint=chosen, options=options or {})
        )
        assert durability is not None
        self.folder, self.clock, self.layout = folder, ManualClock(), JobLayout(job)
        self.epoch_ms = 1
        """How long epochs take, as they report it."""
        self.storage = FaultyStorage(open_storage(durability.archive.url))
        routed = RoutedStorage(self.storage)
        history = JobHistory(routed, self.layout, durability.checkpoints, durability.recovery.uids, self.clock)
        source = None if path is None else resolve(routed, self.layout, path)[0]
        self.owned = Ownership.claim(history, Start(source=source, accepted=accepted), force=True)
        found = self.owned.restore_point()
        described = JobDescription(
            job=job, parallelism=1, max_parallelism=KEYS, backend=settings.state_backend, levels=1, sources=(Uid("rows"),),
            operators=(), state_ids={}, spark_version="4.3.0", listening=listening,
        )  # fmt: skip
        self.backend = backend_named(settings.task_backend, {})
        self.home = folder / "local" / str(found.lineage) / str(TASK)
        self.epoch, self.version = EpochId(found.term, 0), None if found.snapshot is None else self._brought_back()
        self.loop = CheckpointLoop(self.owned, described, SinkThreads({}, routed))
        self.loop.begin_at(self._snapshot())
        self.settle()

    def note_position(self, text: str) -> None:
        """Let the source note where it stands, as sources do in the directory of the query."""
        notes = self.folder / "query" / "sources" / "0"
        notes.mkdir(parents=True, exist_ok=True)
        (notes / "0").write_text(text)

    def _brought_back(self) -> VersionId | None:
        snapshot = self.owned.restore_point().snapshot
        assert snapshot is not None
        return snapshot.tasks[0].version if snapshot.tasks else None

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *error: object) -> None:
        self.end(JobEnd.SUSPENDED)

    def end(self, end: JobEnd) -> None:
        if self.owned.store.entry.outcome is None:
            self.loop.finish(end)

    def settle(self) -> None:
        """Return when the driver has done all that is due."""
        self.loop._thread.call(lambda: self.loop.edge.run(self.loop.checkpointer.tick()))

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.settle()

    def run_epoch(self, *keys: int, uploads: bool = True, error: str | None = None) -> EpochId:
        """Run an epoch whose rows change these keys. First the task does what checkpoints wait for, unless its uploads
        are slow, or fail with an error."""
        work = self.begin_epoch()
        stores = uploads or error is not None
        done = tuple((TASK, self._upload(order, error)) for order in work.uploads[0]) if stores else ()
        self.epoch = self.epoch.next()
        if keys:
            self._write(keys)
        self._report(done, None if work.early is None else work.early.checkpoint_id)
        return self.epoch

    def begin_epoch(self, empty: bool = False) -> CheckpointWork:
        """Begin an epoch, and return what its task does for checkpoints."""
        return self.loop.uploads.work(empty)[1]

    def end_epoch(self, *keys: int, took_ms: int = 1) -> EpochId:
        """End an epoch that began without an announcement, and whose rows have changed these keys. No keys: it had no rows."""
        self.epoch = self.epoch.next()
        if keys:
            self._write(keys)
        self._report((), rows_in=len(keys), duration_ms=took_ms)
        return self.epoch

    def run_announced_epoch(self, *keys: int, stores: bool = True) -> EpochId:
        """Run an epoch whose task stores its version as soon as it has sealed it, if a checkpoint is announced and `stores`."""
        work = self.begin_epoch()
        done = [(TASK, self._upload(order, None)) for order in work.uploads[0]]
        self.epoch = self.epoch.next()
        self._write(keys)
        assert self.version is not None
        if work.early is not None and stores:
            done.append((TASK, self._upload(work.early.order(TASK.slot, self.version), None)))
        self._report(tuple(done), None if work.early is None else work.early.checkpoint_id)
        return self.epoch

    def store_ack(self, order: UploadOrder) -> None:
        """Upload, and store the acknowledgement, as the thread of an upload does while an epoch takes long."""
        part = self._upload(order, None).part
        assert part is not None
        self.storage.put(self.layout.ack(self.epoch.term, order.checkpoint_id, TASK, "unique"), part)

    def orders(self) -> tuple[UploadOrder, ...]:
        """Begin an epoch, and return what its task is asked to upload."""
        return self.begin_epoch().uploads[0]

    def checkpoint(self, *keys: int) -> int:
        """Take a checkpoint after an epoch that changes these keys, and return its id."""
        self.run_epoch(*(keys or (0,)))
        answer = self.loop.request()
        self.settle()
        self.run_epoch()
        return answer.result(30).id

    def _write(self, keys: tuple[int, ...]) -> None:
        after = VersionId(self.epoch, AttemptId(1))
        store = self.backend.begin(self.home, self.version, after, GROUPS)
        values = random.Random(str(self.epoch))
        store.write([(state_prefix(key, 1) + b"key", values.randbytes(VALUE_BYTES)) for key in keys], ())
        store.seal()
        self.version = after

    def _upload(self, order: UploadOrder, error: str | None) -> Uploaded:
        if error is not None:
            return Uploaded(order.checkpoint_id, None, error)
        upload = VersionUpload(RoutedStorage(self.storage), self.layout, self.home, TASK, self.epoch.term, order)
        manifest = self.backend.manifest(self.home, order.version)
        return Uploaded(order.checkpoint_id, upload.run(manifest, AttemptId(1), lambda: True, lambda: None), None)

    def _report(self, done: tuple[tuple[TaskId, Uploaded], ...], announced: int | None = None, **figures: int) -> None:
        report = epoch_report(self.epoch, uploads=done, **{"duration_ms": self.epoch_ms, **figures})
        self.loop.epoch_finished(report, replace(self._snapshot(), announced=announced), moved=True)
        self.settle()

    def _snapshot(self) -> EpochSnapshot:
        versions = {} if self.version is None else {TASK: self.version}
        return EpochSnapshot(self.epoch, versions, None, self.folder / "query", Clocks())

    @property
    def pending(self) -> list[int]:
        """Checkpoints under way."""
        return [each.id for each in self.loop.checkpointer._coordinator.pending]

    @property
    def completed(self) -> int:
        return self.loop.statistics.counts.completed

    def files(self, below: str = "") -> set[str]:
        """Names of all files of the job below a folder, relative to the job's own."""
        root = self.folder / "checkpoints" / self.layout.root
        return {str(path.relative_to(root)) for path in (root / below).rglob("*") if path.is_file()}

    def checkpoints(self) -> set[str]:
        return {name for name in self.files() if name.startswith("chk-") and name.endswith("_metadata")}
