"""The markers of a table: one for each (lineage, sink), however many slots there are.

One is enough since a table commit takes whole epochs in order. It stays in the table permanently: a job can start from an
old savepoint at any time, and then reads it. Its number must therefore not grow with slots and epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidegate.connectors.lakehouse.names import (
    greatest_marker_name,
    marked_epoch,
    marker_name,
    marker_number,
    slot_marker_name,
    term_marker_name,
)
from tidegate.connectors.outcome import CommitRefused
from tidegate.connectors.sink import Committable, CommitterContext
from tidegate.core.history import covers
from tidegate.core.ids import EpochId, Lineage, Slot, Uid


def missing(
    context: CommitterContext | None, requests: Sequence[Committable], marker: Callable[[str], int | None]
) -> list[Committable]:
    """Return the requests that are not in the table. `marker` returns the number under a name.

    Raises `ForeignOutput` if the table has output of a history that the job does not know.
    """
    return [request for request in requests if not _is_covered(context, request, marker)]


def _is_covered(context: CommitterContext | None, request: Committable, marker: Callable[[str], int | None]) -> bool:
    # Markers of earlier versions, which had one for each slot.
    of_slot = marker(slot_marker_name(request))
    last = epoch_in_table(request.lineage, request.sink, marker)
    if context is not None:
        is_covered = context.covers(request.lineage, request.sink, last, request.epoch)
    else:
        is_covered = last is not None and covers((), last, request.epoch)
    return is_covered or (of_slot is not None and of_slot >= marker_number(request.epoch))


def may_be_in_table(request: Committable, marker: Callable[[str], int | None]) -> bool:
    """Whether the output of a request, of any history, can be in some version of the table. For clean-up, which keeps it then."""
    lineage, sink = request.lineage, request.sink
    names = (marker_name(lineage, sink), greatest_marker_name(lineage, sink), slot_marker_name(request))
    found = (marker(name) for name in names)
    return any(number is not None and number >= marker_number(request.epoch) for number in found)


def markers_of(
    requests: Sequence[Committable], marker: Callable[[str], int | None] = lambda name: None
) -> dict[str, int]:
    """What the table must say once these are committed. `marker` returns what it says now."""
    markers: dict[str, int] = {}
    for request in requests:
        name = marker_name(request.lineage, request.sink)
        number = marker_number(request.epoch)
        if number >= markers.get(name, -1):
            markers[name] = number
            markers[term_marker_name(request.lineage, request.sink)] = request.epoch.term
    for request in requests:
        # The marker moves back if it is of another history (`core.history.covers`), whose files the table has.
        now = marker(marker_name(request.lineage, request.sink))
        if now is not None and now > markers[marker_name(request.lineage, request.sink)]:
            greatest = greatest_marker_name(request.lineage, request.sink)
            markers[greatest] = max(now, marker(greatest) or 0)
    return markers


def epoch_in_table(lineage: Lineage, sink: Uid, marker: Callable[[str], int | None]) -> EpochId | None:
    """Return the epoch up to which the table has the output of a sink. `marker` returns the number under a name."""
    number = marker(marker_name(lineage, sink))
    if number is None:
        return None
    return marked_epoch(number, marker(term_marker_name(lineage, sink)))


def outdated(names: Mapping[str, str], requests: Sequence[Committable]) -> list[str]:
    """Markers of single slots, by earlier versions, that say nothing more than those of `requests` will."""
    marked = markers_of(requests).items()
    new = {name.removesuffix("/all"): number for name, number in marked if name.endswith("/all")}
    found = []
    for name, text in names.items():
        sink, _, slot = name.rpartition("/")
        if slot.isdigit() and sink in new and int(text) <= new[sink]:
            found.append(name)
    return found


class WholeEpochs:
    """Rejects output of a slot whose epoch was committed without it: the marker would claim that it is in the table."""

    def __init__(self) -> None:
        self._last: dict[Lineage, tuple[EpochId, set[Slot]]] = {}

    def check(self, requests: Sequence[Committable]) -> None:
        for request in requests:
            epoch, slots = self._last.get(request.lineage, (None, set()))
            if request.epoch == epoch and request.slot not in slots:
                raise CommitRefused(
                    f"Output of slot {request.slot} for sink {request.sink!r} arrived after epoch {epoch} was committed "
                    "without it. A table must receive whole epochs. The output is kept; this is a bug in the runtime, please "
                    "report it."
                )

    def committed(self, requests: Sequence[Committable]) -> None:
        for request in requests:
            epoch, slots = self._last.get(request.lineage, (request.epoch, set()))
            if request.epoch > epoch:
                epoch, slots = request.epoch, set()
            if request.epoch == epoch:
                self._last[request.lineage] = (epoch, slots | {request.slot})
