"""The snapshots of one job, and the state in them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from tidegate.checkpoint.statistics import StatisticsReport
from tidegate.control.job_errors import NotFound
from tidegate.control.messages.state import KeyLookup, SnapshotLine, SnapshotList, StateEntries, StateOverview
from tidegate.control.state_view import first_entries, look_up, state_overview
from tidegate.control.stored_jobs import StoredJob
from tidegate.core.errors import TidegateError
from tidegate.core.redaction import redacted
from tidegate.savepoint.snapshot import StoredSnapshot


class JobSnapshots:
    """The retained checkpoints of a job, savepoints that it was given, and those that its last run took and that exist.

    `statistics` are those of the last run; `show_values`: whether answers contain keys and values.
    """

    def __init__(self, job: StoredJob, statistics: StatisticsReport | None, show_values: bool) -> None:
        self._job, self._show_values = job, show_values
        self._retained = list(job.snapshots())
        history = () if statistics is None else statistics.history
        self._savepoints = [each.external_path for each in history if each.is_savepoint and each.external_path]

    def listed(self) -> SnapshotList:
        """All of them, newest first."""
        lines = [_line(snapshot, ref.claimed, ref == self._job.newest.base) for ref, snapshot in self._retained]
        known = {snapshot.url for _, snapshot in self._retained}
        lines += [_line(each) for each in self._taken() if each.url not in known]
        return SnapshotList(sorted(lines, key=lambda line: -line.at_ms))

    def state(self, path: str | None = None) -> StateOverview:
        """What a snapshot holds; the newest checkpoint, if none is named."""
        return state_overview(self._snapshot(path))

    def look_up(self, uid: str, key: Sequence[str], path: str | None = None) -> KeyLookup:
        return look_up(self._snapshot(path), uid, key, self._show_values)

    def entries(self, uid: str, state: str, limit: int, path: str | None = None) -> StateEntries:
        return first_entries(self._snapshot(path), uid, state, limit, self._show_values)

    def _snapshot(self, path: str | None) -> StoredSnapshot:
        """The snapshot at `path`, which must be one of the job's: a caller cannot make the server read another place."""
        retained = [snapshot for _, snapshot in self._retained]
        if path is None:
            if not retained:
                raise NotFound("The job has no checkpoint yet.")
            return retained[-1]
        for snapshot in (*retained, *self._taken()):
            if path in (snapshot.url, redacted(snapshot.url)):
                return snapshot
        raise NotFound(f"{path} is not a retained checkpoint or a savepoint of this job.")

    def _taken(self) -> list[StoredSnapshot]:
        found = []
        for path in self._savepoints:
            with contextlib.suppress(TidegateError):
                found.append(StoredSnapshot.open(path))
        return found


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
