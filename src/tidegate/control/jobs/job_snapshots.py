"""The snapshots of one job, and the state in them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.checkpoint.coordination.statistics import CheckpointStatsSnapshot
from tidegate.checkpoint.metadata import SnapshotKind
from tidegate.control.jobs.export import TooLargeToExport, export_state
from tidegate.control.jobs.job_errors import NotFound, NotPossible
from tidegate.control.jobs.state_view import first_entries, look_up, state_overview
from tidegate.control.jobs.stored_jobs import UNREADABLE, StoredJob
from tidegate.control.messages.state import (
    KeyLookup,
    SnapshotCheck,
    SnapshotLine,
    SnapshotList,
    SnapshotProblem,
    StateEntries,
    StateOverview,
)
from tidegate.core.errors import TidegateError
from tidegate.core.redaction import redacted
from tidegate.savepoint.snapshot import StoredSnapshot, location
from tidegate.savepoint.verify import verify
from tidegate.storage import open_storage

CHECK_S = 15.0
EXPORT_S = 15.0
"""A server closes a connection that it has not answered for thirty seconds."""
EXPORT_BYTES = 256 << 20
"""The largest state that is exported by a request: size of the files of its level."""
MOST_SAVEPOINTS = 50
"""Folders of the savepoint directory that are looked at."""
_EXPORTING = threading.Lock()


class JobSnapshots:
    """The retained checkpoints of a job, savepoints that it was given, those that its last run took and that exist, and those
    in its savepoint directory, whichever run took them.

    `statistics` are those of the last run; `savepoint_dir` is where its savepoints go; `show_values`: whether answers contain
    keys and values.
    """

    def __init__(
        self, job: StoredJob, statistics: CheckpointStatsSnapshot | None, savepoint_dir: str | None, show_values: bool
    ) -> None:
        self._job = job
        self._savepoint_dir = savepoint_dir
        self._show_values = show_values
        history = () if statistics is None else statistics.history
        self._savepoints = [each.external_path for each in history if each.is_savepoint and each.external_path]

    def listed(self) -> SnapshotList:
        """Return all snapshots, newest first."""
        retained, _ = self._job.readable_snapshots()
        lines = [_line(snapshot, ref.claimed, ref == self._job.newest.base) for ref, snapshot in retained]
        urls = {snapshot.url for _, snapshot in retained}
        lines += [_line(each) for each in self._taken() if each.url not in urls]
        return SnapshotList(sorted(lines, key=lambda line: -line.at_ms))

    def state(self, path: str | None = None) -> StateOverview:
        """Return what a snapshot holds; the newest checkpoint, if none is named."""
        return state_overview(self._snapshot(path))

    def look_up(self, uid: str, key: Sequence[str], path: str | None = None) -> KeyLookup:
        return look_up(self._snapshot(path), uid, key, self._show_values)

    def entries(self, uid: str, state: str, limit: int, path: str | None = None) -> StateEntries:
        return first_entries(self._snapshot(path), uid, state, limit, self._show_values)

    def check(self, path: str | None = None) -> SnapshotCheck:
        """Return whether all files of a snapshot exist with their sizes, as far as `CHECK_S` seconds suffice."""
        snapshot = self._snapshot(path)
        seen = _FilesSeen(time.monotonic() + CHECK_S)
        problems: list[SnapshotProblem] = []
        with contextlib.suppress(_TimeIsOver):
            for problem in verify(snapshot, checksums=False, progress=seen.file):
                problems.append(SnapshotProblem(problem.where, redacted(problem.what)))
        return SnapshotCheck(
            snapshot=redacted(snapshot.url), files=seen.files, bytes=seen.bytes, whole=not seen.over, problems=problems
        )

    def export(self, uid: str, state: str, target: str, path: str | None = None) -> None:
        """Write all entries of a state to `target`, whose suffix is the format. Refused where values are hidden."""
        if not self._show_values:
            raise NotPossible("Values are hidden. Start the server with --show-values (tg.serve(…, show_values=True)).")
        snapshot = self._snapshot(path)
        snapshot.layout(uid, state)
        # Files are fetched before their entries are read.
        if sum(task.size_bytes for task in snapshot.tasks_of(uid)) > EXPORT_BYTES:
            raise TooLargeToExport(uid, state, redacted(snapshot.url))
        # One at a time in this process: each fetches up to `EXPORT_BYTES` to local disk.
        if not _EXPORTING.acquire(blocking=False):
            raise NotPossible("Another state is being exported. Try again when that is done.")
        try:
            export_state(snapshot, uid, state, target, within_s=EXPORT_S)
        finally:
            _EXPORTING.release()

    def _snapshot(self, path: str | None) -> StoredSnapshot:
        """Return the snapshot at `path`, which must be one of the job's: a caller cannot make the server read another place."""
        if path is None:
            newest = next(self._job.snapshots(newest_first=True), None)
            if newest is None:
                raise NotFound("The job has no checkpoint yet.")
            return newest[1]
        for snapshot in (*(each for _, each in self._job.readable_snapshots()[0]), *self._taken()):
            # A page knows the path as it was shown, with secrets replaced.
            if path in (snapshot.url, redacted(snapshot.url)):
                return snapshot
        raise NotFound(f"{path} is not a retained checkpoint or a savepoint of this job.")

    def _taken(self) -> list[StoredSnapshot]:
        """Return the savepoints of the job that exist."""
        savepoints: dict[str, StoredSnapshot] = {}
        # The record of a run may be a stranger's, too.
        for path in filter(self._job.may_open, self._savepoints):
            with contextlib.suppress(TidegateError):
                savepoints[path] = StoredSnapshot.open(path)
        for path in self._in_directory():
            # A folder that is no savepoint, or a damaged one, is left out: the directory belongs to the user.
            with contextlib.suppress(*UNREADABLE):
                snapshot = savepoints[path] if path in savepoints else StoredSnapshot.open(path)
                if snapshot.metadata.kind is SnapshotKind.SAVEPOINT and snapshot.metadata.job == self._job.name:
                    savepoints[path] = snapshot
        return list(savepoints.values())

    def _in_directory(self) -> list[str]:
        """Return the folders of the savepoint directory. Nothing is read of a directory in another store than the job's."""
        directory = self._savepoint_dir
        if directory is None or not self._job.may_open(directory):
            return []
        try:
            url = location(directory)
            names = open_storage(url, confined=True).folders()
        except UNREADABLE:
            return []
        # Each costs a request or two. Those that the job named itself come first.
        own = f"savepoint-{self._job.newest.lineage[:6]}-"
        names = sorted(names, key=lambda name: not name.startswith(own))[:MOST_SAVEPOINTS]
        return [f"{url}/{name}" for name in names]


def _line(snapshot: StoredSnapshot, claimed: bool = False, restart_from: bool = False) -> SnapshotLine:
    m = snapshot.metadata
    return SnapshotLine(
        id=m.checkpoint_id,
        kind=m.kind.upper(),
        path=redacted(snapshot.url),
        at_ms=m.completed_ms,
        size_bytes=m.full_size_bytes,
        format=snapshot.format,
        claimed=claimed,
        restart_from=restart_from,
        operators=[str(operator.uid) for operator in m.operators],
    )


class _TimeIsOver(Exception):
    pass


@dataclass(slots=True)
class _FilesSeen:
    """Counts files until it is time to answer."""

    latest: float
    files: int = 0
    bytes: int = 0
    over: bool = False

    def file(self, size_bytes: int) -> None:
        self.files += 1
        self.bytes += size_bytes
        if time.monotonic() > self.latest:
            self.over = True
            raise _TimeIsOver
