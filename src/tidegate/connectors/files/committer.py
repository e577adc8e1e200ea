"""The committer of a file sink: it makes staged files visible, in order and once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TypeVar

from tidegate.connectors.files.names import OutputId, final_epoch_name
from tidegate.connectors.files.payload import StagedFile, decode
from tidegate.connectors.files.place import FilePlace
from tidegate.connectors.outcome import CommitInDoubt, CommitOutcome, outcomes
from tidegate.connectors.sink import Committable, CommitterContext, Settled, decoded, untrusted
from tidegate.core.faults import reach
from tidegate.core.history import covers
from tidegate.core.ids import EpochId, Lineage, Term, Uid

T = TypeVar("T")
R = TypeVar("R")


class _OutputState(Enum):
    """What is known about an output before it is committed."""

    NEW = "not started yet"
    BEGUN = "its commit has begun"
    DONE = "fully committed"


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Committable
    output: OutputId
    files: tuple[StagedFile, ...]


_UPLOAD_ID = re.compile(r"[A-Za-z0-9_~+=:.-]+")
"""What stores call a multipart upload. An id that could be a path is none: stores differ in how they answer to it."""

_PART_TAG = re.compile(r'"?[A-Za-z0-9_+=:.-]+"?')
"""What stores call a part of an upload: a digest, mostly in quotation marks."""


class FileCommitter:
    """Commits staged files, one epoch of all slots after the other.

    1. Record durably that the commit of these outputs has begun. If a file is no longer staged, it was committed
       if such a note exists or a sweep has passed its epoch; a reader may have removed it since. Otherwise it
       is lost, and that is an error.
    2. Commit file by file. Each is one step, after which the file is no longer staged: a repeat continues where a
       crash interrupted, and never creates a file twice. Readers may see some files of an epoch before the others.
    """

    def __init__(self, path: str, place: FilePlace, context: CommitterContext | None = None) -> None:
        """Without `context`, markers are not compared with the job's history."""
        self._path = path
        self._place = place
        self._context = context

    def check_target(self) -> None:
        self._place.check()

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        # First of all: next to a history that the job does not know, nothing may be committed, and nothing swept.
        self._check_history(requests)
        committed: list[Committable] = []
        # All are checked before the first is committed.
        waiting = [self._waiting(each) for each in sorted(requests, key=lambda r: (r.epoch, r.slot))]
        for _, epoch in groupby(waiting, lambda each: each.request.epoch):
            committed += self._commit_epoch(list(epoch))
        return outcomes(requests, committed)

    def _waiting(self, request: Committable) -> _Waiting:
        """Raise `UntrustedOutput` unless every name follows from the request: a rename would replace any file of the user."""
        output = OutputId.of(request)
        files = decoded(request, decode)
        if not files:
            raise untrusted(request, "names no files")
        for file in files:
            # The payload comes from a snapshot that somebody else may have written. A rename to a name of its choice
            # would overwrite any file.
            if not output.is_final(file.final):
                raise untrusted(request, f"names the file {file.final[:200]!r}")
            named = output.is_hidden(file.hidden) if self._place.names_hidden else _UPLOAD_ID.fullmatch(file.hidden)
            if not named:
                raise untrusted(request, f"names the hidden file {file.hidden[:200]!r}")
            if not all(map(_PART_TAG.fullmatch, file.parts)):
                raise untrusted(request, "names parts that no store names like that")
        if len({file.final for file in files}) < len(files):
            raise untrusted(request, "names one file twice")
        return _Waiting(request, output, files)

    def _check_history(self, requests: Sequence[Committable]) -> None:
        """Refuse to commit next to a history that has swept here and that the job does not know. Names of files
        never meet, so nothing else would notice it."""
        if self._context is not None:
            for lineage, sink in {(request.lineage, request.sink) for request in requests}:
                self._context.check_marker(lineage, sink, self._final_epoch(lineage, sink))

    def markers(self, lineage: Lineage, sink: Uid) -> list[EpochId]:
        outputs = (OutputId.in_name(name) for name in self._place.marks())
        begun = [each.epoch for each in outputs if each is not None and (each.lineage, each.sink) == (lineage, sink)]
        return [self._final_epoch(lineage, sink), *begun]

    def _commit_epoch(self, epoch: Sequence[_Waiting]) -> list[Committable]:
        states = list(zip(epoch, self._each(self._look, epoch)))
        if new := [each for each, state in states if state is _OutputState.NEW]:
            # Marks before files, and only if everything is still staged: "gone with a mark" then means committed, "gone
            # without one" lost.
            self._each(lambda each: self._place.mark(each.output.marker), new)
            # A crash after the first file must find the mark: without it, a file that a reader removed would look lost.
            self._place.sync_marks()
        waiting = [each for each, state in states if state is not _OutputState.DONE]
        if waiting:
            reach("files.1-marked", epoch=waiting[0].request.epoch)
            self._each(self._place.commit, [file for each in waiting for file in each.files])
        # Also files that were already committed: their committer may have died before they were durable.
        self._place.sync_files([file for each in epoch for file in each.files])
        return [each.request for each in waiting]

    def _each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if min(self._place.at_once, len(items)) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(self._place.at_once, len(items)), "tidegate-files") as pool:
            return list(pool.map(work, items))

    def _look(self, waiting: _Waiting) -> _OutputState:
        output, files = waiting.output, waiting.files
        # The mark first. In the other order, a committer that finishes between the two looks would make files look
        # lost.
        begun = self._place.read_note(output.marker) is not None
        gone = [file for file in files if not self._place.is_staged(file)]
        if begun:
            return _OutputState.DONE if len(gone) == len(files) else _OutputState.BEGUN
        # Check once more: another process may have written its note and committed everything between our two checks.
        if not gone or self._place.read_note(output.marker) is not None:
            return _OutputState.NEW
        final = self._final_epoch(output.lineage, output.sink)
        # A sweep of another history says nothing about this output, which it took for an orphan of its own. But a file that is
        # there was committed: nobody else has its name.
        if self._is_final(final, waiting.request) or all(map(self._place.is_committed, gone)):
            # Everything was committed so long ago that the note has been swept.
            return _OutputState.BEGUN if len(gone) < len(files) else _OutputState.DONE
        # Neither staged, nor marked, nor there: repeating cannot find out what happened, so the user decides.
        raise CommitInDoubt(
            f"{gone[0].final} was staged for epoch {output.epoch} and has disappeared without being committed. Check "
            f"that {self._path} is the same storage for the driver and all executors, and that nothing else deletes "
            "hidden files there. If another history of this job has run, after a restore or from a copy, it may have removed "
            "the file: start from a checkpoint before that epoch, or discard the output that waits, once without the sink and "
            "with -n (execution.state-recovery.ignore-unclaimed-state)."
        )

    def _is_final(self, final: EpochId, request: Committable) -> bool:
        if self._context is None:
            return covers((), final, request.epoch)
        return self._context.covers(request.lineage, request.sink, final, request.epoch)

    def _final_epoch(self, lineage: Lineage, sink: Uid) -> EpochId:
        text = self._place.read_note(final_epoch_name(lineage, sink)) or "0.0"
        term, _, number = text.partition(".")
        return EpochId(Term(int(term)), int(number))

    def sweep(self, final: Settled) -> None:
        """1. Record the epoch up to which output is final. A crash leaves that record, and everything else for the next sweep.
        2. Remove orphaned files and notes.
        """
        before = self._final_epoch(final.lineage, final.sink)
        if self._context is not None and not self._context.knows(final.lineage, before):
            return  # What looks like an orphan here may be output of the history that has swept before.
        # Before anything is removed: a repeat of an old commit, from an old savepoint, must find that its epoch is
        # over.
        self._place.note(final_epoch_name(final.lineage, final.sink), final.epoch.name)
        keep = {file.hidden for request in final.waiting for file in decoded(request, decode)}
        keep |= {OutputId.of(request).marker for request in final.waiting}
        self._place.sweep(final, keep)
