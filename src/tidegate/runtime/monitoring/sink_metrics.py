"""The metrics of sinks: what waits for each target, and how its last commit went."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidegate.checkpoint.output.release_plan import WaitingOutput
from tidegate.checkpoint.output.sink_commits import SinkCommits
from tidegate.core.ids import Uid
from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample
from tidegate.runtime.monitoring.epoch_ages import EpochAges


def sink_samples(
    sinks: Iterable[Uid],
    *,
    waiting: Iterable[WaitingOutput],
    commits: SinkCommits,
    ages: EpochAges,
    rows: Mapping[str, tuple[int, int]],
) -> Iterator[Sample]:
    """`rows` are rows in and out by operator: a sink is one that emits none."""
    found = {each.sink: each for each in waiting}
    for sink in sinks:
        labels, each, last = {"sink": str(sink)}, found.get(sink), commits.last.get(sink)
        yield Sample(catalog.OUTPUT_WAITING, 0 if each is None else each.epochs, labels)
        yield Sample(catalog.OUTPUT_WAITING_BYTES, 0 if each is None else each.size_bytes, labels)
        yield Sample(catalog.SEND_ERRORS, float(each is not None and each.error is not None), labels)
        yield Sample(catalog.OLDEST_WAITING, 0 if each is None else ages.age_ms(each.since), labels)
        yield Sample(catalog.RECORDS_SEND, rows.get(str(sink), (0, 0))[0], labels)
        if last is not None:
            yield Sample(catalog.COMMIT_DURATION, last.duration_ms, labels)
            yield Sample(catalog.SEND_TIME, last.duration_ms / max(1, last.parts), labels)
        if sink in commits.up_to:
            yield Sample(catalog.PUBLISHED_EPOCH, commits.up_to[sink].number, labels)
