"""The markers of a table: one for each (lineage, sink), however many slots there are.

One is enough since a table commit takes whole epochs in order. It stays in the table permanently: a job can start from an
old savepoint at any time, and then reads it. Its number must therefore not grow with slots and epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidegate.connectors.lakehouse.names import marker_name, marker_number, slot_marker_name
from tidegate.connectors.outcome import CommitRefused
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Lineage, Slot


def is_covered(request: Committable, marker: Callable[[str], int | None]) -> bool:
    """Whether a request is in the table. `marker` tells the number under a name."""
    found = (marker(name) for name in (marker_name(request), slot_marker_name(request)))
    return any(number is not None and number >= marker_number(request.epoch) for number in found)


def markers_of(requests: Sequence[Committable]) -> dict[str, int]:
    """What the table must say once these are committed."""
    markers: dict[str, int] = {}
    for request in requests:
        name = marker_name(request)
        markers[name] = max(markers.get(name, -1), marker_number(request.epoch))
    return markers


def outdated(names: Mapping[str, str], requests: Sequence[Committable]) -> list[str]:
    """Markers of single slots, by earlier versions, that say nothing more than those of `requests` will."""
    new = {name.rpartition("/")[0]: number for name, number in markers_of(requests).items()}
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
