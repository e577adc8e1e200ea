"""The committer of a file sink: it publishes staged files, in order and once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TypeVar

from tidegate.connectors.files.names import OutputId, settled_name
from tidegate.connectors.files.payload import StagedFile, decode
from tidegate.connectors.files.place import FilePlace
from tidegate.connectors.outcome import CommitInDoubt, CommitOutcome, outcomes
from tidegate.connectors.sink import Committable, Settled
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Term

T = TypeVar("T")
R = TypeVar("R")


class _OutputState(Enum):
    """What is known about an output before it is published."""

    NEW = "not started yet"
    BEGUN = "publishing has started"
    DONE = "fully published"


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Committable
    output: OutputId
    files: tuple[StagedFile, ...]


class FileCommitter:
    """Publishes staged files, one epoch of all slots after the other.

    1. Record durably that these outputs are being published. If a file is no longer staged, it was published
       if such a note exists or a sweep has passed its epoch; a reader may have removed it since. Otherwise it
       is lost, and that is an error.
    2. Publish file by file. Each publish is one step, after which the file is no longer staged: a repeat continues where a
       crash interrupted, and never creates a file twice. Readers may see some files of an epoch before the others.
    """

    def __init__(self, path: str, place: FilePlace) -> None:
        self._path, self._place = path, place

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        published: list[Committable] = []
        ordered = sorted(requests, key=lambda request: (request.epoch, request.slot))
        for _, found in groupby(ordered, lambda request: request.epoch):
            published += self._publish([_Waiting(each, OutputId.of(each), decode(each.payload)) for each in found])
        return outcomes(requests, published)

    def _publish(self, epoch: Sequence[_Waiting]) -> list[Committable]:
        states = list(zip(epoch, self._each(self._look, epoch)))
        if new := [each for each, state in states if state is _OutputState.NEW]:
            self._each(lambda each: self._place.mark(each.output.marker), new)
            self._place.settle_marks()
        waiting = [each for each, state in states if state is not _OutputState.DONE]
        if waiting:
            reach("files.1-marked", epoch=waiting[0].request.epoch)
            self._each(self._place.publish, [file for each in waiting for file in each.files])
        # Also files that were already published: their committer may have died before they were durable.
        self._place.settle([file for each in epoch for file in each.files])
        return [each.request for each in waiting]

    def _each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if min(self._place.at_once, len(items)) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(self._place.at_once, len(items)), "tidegate-files") as pool:
            return list(pool.map(work, items))

    def _look(self, waiting: _Waiting) -> _OutputState:
        output, files = waiting.output, waiting.files
        begun = self._place.noted(output.marker) is not None
        gone = [file for file in files if not self._place.is_staged(file)]
        if begun:
            return _OutputState.DONE if len(gone) == len(files) else _OutputState.BEGUN
        # Check once more: another process may have written its note and published everything between our two checks.
        if not gone or self._place.noted(output.marker) is not None:
            return _OutputState.NEW
        if output.epoch <= self._settled(output):
            # Everything was published so long ago that the note has been swept.
            return _OutputState.BEGUN if len(gone) < len(files) else _OutputState.DONE
        raise CommitInDoubt(
            f"{gone[0].final} was staged for epoch {output.epoch} and has disappeared without being committed. Check "
            f"that {self._path} is the same storage for the driver and all executors, and that nothing else deletes "
            "hidden files there."
        )

    def _settled(self, output: OutputId) -> EpochId:
        text = self._place.noted(settled_name(output.lineage, output.sink)) or "0.0"
        term, _, number = text.partition(".")
        return EpochId(Term(int(term)), int(number))

    def sweep(self, settled: Settled) -> None:
        """1. Record the settled epoch. A crash leaves that record, and everything else for the next sweep.
        2. Remove orphaned files and notes.
        """
        self._place.note(settled_name(settled.lineage, settled.sink), str(settled.epoch))
        keep = {file.hidden for request in settled.waiting for file in decode(request.payload)}
        keep |= {OutputId.of(request).marker for request in settled.waiting}
        self._place.sweep(settled, keep)
