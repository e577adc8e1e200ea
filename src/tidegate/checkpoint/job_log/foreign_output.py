"""Finds output in targets that the job's log does not know: see `core.history`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from tidegate.checkpoint.effects import Steps
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.job_log.log import newest
from tidegate.checkpoint.job_log.start import begins_again
from tidegate.checkpoint.layout import JobLayout
from tidegate.core.history import knows, learnt
from tidegate.core.ids import EpochId, Lineage, Uid

Markers = Mapping[Uid, Collection[EpochId]]


def foreign_output(
    layout: JobLayout,
    markers: Callable[[Lineage], Markers],
    source: CheckpointRef | None = None,
    carried: Iterable[EpochId] = (),
) -> Steps[dict[Uid, tuple[EpochId, ...]]]:
    """Return the output that the log does not know, by sink. `markers` asks the targets. A start from `source` adds its epoch
    to the log, and those whose output it has `carried`.

    1. Read the log for its lineage, and the markers of that lineage in the targets.
    2. Read the log again. An owner that is still at work commits output only after the log has its checkpoint, so the log
       that is read last knows every marker of its own history.
    """
    before = yield from newest(layout)
    if before is None:
        return {}
    if source is not None and not source.owned and source.lineage != before.lineage:
        if not begins_again(before, source):
            return {}  # The claim refuses it: this log says nothing about the output of another line of history.
        source = None  # The job continues its own line, as in a plain start.
    # Between the two readings of the log. Markers that are read after it may belong to checkpoints that it does not
    # have yet.
    found = markers(before.lineage if source is None else source.lineage)
    after = (yield from newest(layout, before.slot)) or before
    claims = after.claims
    for epoch in () if source is None else (source.epoch, *carried):
        claims = learnt(claims, epoch)
    unknown = {uid: tuple(epoch for epoch in epochs if not knows(claims, epoch)) for uid, epochs in found.items()}
    return {uid: epochs for uid, epochs in unknown.items() if epochs}
