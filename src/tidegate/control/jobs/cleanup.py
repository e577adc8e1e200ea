"""Leftovers of lineages that no job continues: in the targets of a job's sinks, and in its checkpoint directory.

A lineage is abandoned if a record of a run names it and nothing in the directory continues it, or if the user names it. It is
kept if any job's log continues it, if a checkpoint or savepoint of the directory is of it, or carries output of it that is not
known to be committed. A start can continue no other: see the table of starts (`checkpoint.start`).

1. Read the logs, snapshots and records of the directory, and decide which lineages are abandoned.
2. Ask the targets what those have left, and the directory for files that nothing needs. Nothing is changed so far.
3. If the user says so, end and delete what was found. A crash leaves some of it, and the next call finds that.
No step depends on what happens in between: a lineage that is abandoned stays so. Only a directory that is restored from a backup
continues it, and then the committers refuse to take what was ended for committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tidegate.checkpoint.completed.ended_job import unneeded_files
from tidegate.checkpoint.completed.retained import SnapshotNotFound, resolve
from tidegate.checkpoint.effects import perform
from tidegate.checkpoint.files.contents import contents_of, reader, with_output
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.job_log.pins import read_pins
from tidegate.checkpoint.layout import FileScope, JobLayout
from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.checkpoint.output.committables import record_path
from tidegate.connectors.sink import LeftOutput, OutputCleaner, cleans_up
from tidegate.control.jobs.checkpoint_place import CheckpointPlace
from tidegate.control.jobs.stored_jobs import JobNotFound, StoredJob, jobs_in
from tidegate.core.history import Claims, is_own
from tidegate.core.ids import Lineage, Term, Uid, ordinal
from tidegate.graph.model import Graph
from tidegate.runtime.driver.recorder import recorded_runs
from tidegate.storage import ObjectMissing, Storage
from tidegate.storage.routed import RoutedStorage, is_absolute

_SCOPES = {
    FileScope.SHARED: "state file",
    FileScope.TASKOWNED: "staged rows",
    FileScope.EXCLUSIVE: "file of a checkpoint",
}


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The lineages that no job continues, and why the others are kept."""

    lineages: frozenset[Lineage]
    kept: dict[Lineage, str]
    claims: Claims | None = None
    """The claims of the job whose records name the lineages. None: the user has named them."""

    def knows(self, term: Term) -> bool:
        """Return whether a run of this directory can have written output of this term. A copy of the directory has others."""
        return self.claims is None or is_own(self.claims, term)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that no job needs."""

    what: str
    where: str
    lineage: Lineage | None
    """None: no record says whose it is."""
    sink: Uid | None = None
    """None: it is in the checkpoint directory."""
    epoch: str | None = None
    at_ms: int | None = None
    size_bytes: int | None = None
    kept: str | None = None
    """Why it is not deleted; None if it is."""
    left: LeftOutput | None = field(default=None, repr=False)


class TargetFindings:
    """What is left in the target of one sink."""

    def __init__(self, sink: Uid, cleaner: OutputCleaner) -> None:
        self.sink = sink
        self._cleaner = cleaner

    def find(self, abandoned: Abandoned, now_ms: int, older_than_ms: int) -> Iterator[Finding]:
        for lineage in sorted(abandoned.lineages):
            for leftover in self._cleaner.find(lineage, self.sink):
                reason = None
                if leftover.epoch is not None and not abandoned.knows(leftover.epoch.term):
                    reason = "a copy of the directory wrote it: name its lineage with --lineage if no copy runs"
                elif leftover.at_ms is not None and now_ms - leftover.at_ms < older_than_ms:
                    reason = "too young (--older-than)"
                yield Finding(
                    what=leftover.kind,
                    where=leftover.name,
                    lineage=lineage,
                    sink=self.sink,
                    epoch=None if leftover.epoch is None else str(leftover.epoch),
                    at_ms=leftover.at_ms,
                    size_bytes=leftover.size_bytes,
                    kept=reason,
                    left=leftover,
                )

    def end(self, findings: Iterable[Finding]) -> None:
        self._cleaner.end([each.left for each in findings if each.left is not None and each.kept is None])


def targets_of(graph: Graph) -> tuple[list[TargetFindings], list[Uid]]:
    """Return the targets that can be asked, and the sinks that leave nothing or cannot be asked."""
    targets: list[TargetFindings] = []
    others: list[Uid] = []
    for sink in graph.sinks:
        if cleans_up(sink.target):
            targets.append(TargetFindings(sink.uid, sink.target.create_cleaner()))
        else:
            others.append(sink.uid)
    return targets, others


def all_jobs(place: CheckpointPlace) -> tuple[StoredJob, ...]:
    """Return all jobs of the directory of a place. Raises if one cannot be read: which lineages it continues is unknown."""

    def refuse(job: str, error: Exception) -> None:
        raise JobNotFound(
            f"The job {job!r} in {place.url} cannot be read, so it is unknown what it needs, and nothing is cleaned up: {error}"
        ) from error

    jobs = jobs_in(place.url, refuse, **place.options)
    # The directory of one job was named: others next to it may continue its history, too.
    return jobs_in(jobs[0].storage.url, refuse, **place.options) if len(jobs) == 1 else jobs


def abandoned_lineages(jobs: Sequence[StoredJob], job: StoredJob | None, named: Collection[Lineage] = ()) -> Abandoned:
    """Decide which lineages are abandoned: those `named`, or those that the records of `job` name. `jobs` are all jobs of the
    directory. Raises if a log or a snapshot cannot be read: what it needs is unknown."""
    kept: dict[Lineage, str] = {}
    for each in jobs:
        for lineage, why in _kept_by(each):
            kept.setdefault(lineage, why)
    if jobs:
        for lineage, why in _kept_by_savepoints(jobs[0].storage, jobs):
            kept.setdefault(lineage, why)
    if named:
        return Abandoned(frozenset(named) - kept.keys(), kept)
    if job is None:
        return Abandoned(frozenset(), kept)

    # In a copy of another directory, the records of earlier runs are the original's, which may continue their lines.
    since = ordinal(job.newest.here_since)
    recorded = {run.lineage for run in recorded_runs(job.storage, job.layout) if ordinal(run.term) >= since}
    return Abandoned(frozenset(recorded - kept.keys()), kept, job.newest.claims)


def _kept_by(job: StoredJob) -> Iterator[tuple[Lineage, str]]:
    """Yield the lineages that a job continues, or that its snapshots are of or carry output of."""
    newest = job.newest
    yield newest.lineage, f"the job {job.name!r} continues it"
    refs = [*newest.retained, *newest.owed, *newest.disposing]

    # A base that the job took itself and no longer retains is given up: no start uses it.
    is_discarded = newest.base is not None and newest.base.is_ours and newest.base not in newest.retained
    if newest.base is not None and not is_discarded:
        refs.append(newest.base)
    for ref in dict.fromkeys(refs):
        why = f"checkpoint or savepoint {ref.id} of {job.name!r} is of it"
        yield ref.lineage, why
        if ref not in newest.disposing:
            for lineage in _carried(job, ref.metadata):
                yield lineage, f"checkpoint or savepoint {ref.id} of {job.name!r} carries output of it"
    for pin in perform(read_pins(job.layout), job.storage):
        try:
            for lineage in _carried(job, pin.metadata):
                yield lineage, f"{pin.metadata}, which is pinned, carries output of it"
        except SnapshotNotFound:
            continue  # the pin came too late, and holds nothing


def _carried(job: StoredJob, metadata: str) -> set[Lineage]:
    """Return the lineages whose output a snapshot carries."""
    storage = _storage_for(job, metadata)
    ref, content = resolve(storage, job.layout, metadata)
    return {ref.lineage, *_output_of(storage, ref, content)}


def _output_of(storage: Storage, ref: CheckpointRef, metadata: CheckpointMetadata) -> set[Lineage]:
    """Return the lineages of the output, also of that in other objects. Raises `MetadataError` if one of those is missing."""
    contents = perform(with_output(contents_of(ref.metadata, metadata, lambda committable: ())), storage)
    return {each.lineage for each in contents.committables}


def _storage_for(job: StoredJob, metadata: str) -> Storage:
    """Return the storage that reads a snapshot. Raises if it is in another store: the directory may be a stranger's, who chose
    the host that would be called."""
    if not is_absolute(metadata):
        return job.storage
    if not job.may_open(metadata):
        raise JobNotFound(
            f"The log of {job.name!r} names a savepoint in another store than its checkpoints ({metadata}), which is not opened. "
            "What it carries is unknown, so nothing is cleaned up."
        )
    return RoutedStorage(job.storage)


def _kept_by_savepoints(storage: Storage, jobs: Sequence[StoredJob]) -> Iterator[tuple[Lineage, str]]:
    """Yield the lineages whose output a savepoint in the directory carries, unless its job has recorded that it is committed."""
    layouts = {job.layout.root: job.layout for job in jobs}
    for folder in storage.folders():
        if folder in layouts:
            continue
        # A savepoint may be right here, or in a folder for savepoints.
        for place in (folder, *(f"{folder}/{name}" for name in storage.folders(folder))):
            name = f"{place}/_metadata"
            try:
                storage.size(name)
            except ObjectMissing:
                continue
            ref, metadata = resolve(storage, JobLayout(folder), name)
            layout = JobLayout(metadata.job)
            if metadata.waiting_count and not _is_recorded(storage, layout, replace(ref, owned=False)):
                for lineage in _output_of(storage, ref, metadata):
                    yield lineage, f"the savepoint {place} carries output of it"


def _is_recorded(storage: Storage, layout: JobLayout, ref: CheckpointRef) -> bool:
    try:
        storage.size(record_path(layout, ref))
    except ObjectMissing:
        return False
    return True


def storage_findings(job: StoredJob) -> list[Finding]:
    """Return the files in a job's directory that nothing needs. Empty if it has not ended: then it finds them itself."""
    if job.newest.outcome is None:
        return []
    base = job.newest.base
    storage = job.storage if base is None else _storage_for(job, base.metadata)

    # These are read to know what they need. One in another store is not opened, and this raises.
    for ref in (*job.newest.retained, *job.newest.owed):
        _storage_for(job, ref.metadata)
    paths = perform(unneeded_files(job.layout, reader(lambda committable: committable.staged)), storage)
    if not paths:
        return []
    lineages = {report.term: report.lineage for report in recorded_runs(job.storage, job.layout)}
    sizes = {each.path: each.size_bytes for each in job.storage.list(job.layout.root)}
    findings = []
    for path in paths:
        file = job.layout.parse(path)
        # Another program put it there, or it has been deleted meanwhile.
        if file is None or path not in sizes:
            continue
        lineage = None if file.term is None else lineages.get(file.term)
        findings.append(Finding(what=_SCOPES[file.scope], where=path, lineage=lineage, size_bytes=sizes[path]))
    return findings


def delete_files(job: StoredJob, findings: Iterable[Finding]) -> None:
    """Delete what `storage_findings` returned. `_metadata` first, so that no job starts from an incomplete checkpoint."""
    paths = [each.where for each in findings]
    job.storage.delete(path for path in paths if path.endswith("/_metadata"))
    job.storage.delete(path for path in paths if not path.endswith("/_metadata"))
