"""Output that the user discards, since the job no longer has its sink (`-n`), and that savepoints still carry.

1. The owner neither commits nor carries it from now on. A crash leaves it to the next start, which asks again.
2. Before the first checkpoint without it completes, `record` writes down what was discarded. A crash after that leaves
   the output discarded for good, also for a start from an older snapshot that carries it.
"""

from __future__ import annotations

import msgspec

from tidegate.checkpoint.effects import Get, ListNames, Put, Steps
from tidegate.checkpoint.job_log.entry import LogCorrupt
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import CommittedMark
from tidegate.checkpoint.output.committables import Ledger, marks, read_record, record_of
from tidegate.connectors.sink import Committable
from tidegate.core.faults import reach
from tidegate.core.ids import Term, Uid


class DiscardedOutput:
    """What the user has discarded, in this term and before."""

    def __init__(self, layout: JobLayout, ledger: Ledger) -> None:
        self._layout = layout
        self._ledger = ledger
        self._to_record: tuple[CommittedMark, ...] = ()
        self.found: tuple[Committable, ...] = ()
        """Output that a snapshot carries and that was discarded in an earlier run. It is not committed."""

    def recover(self) -> Steps[None]:
        """Drop output that waits and was discarded before."""
        # Without waiting output there is nothing that could have been discarded, and nothing is listed.
        names: list[str] = (yield ListNames(self._layout.all_discarded)) if len(self._ledger) else []
        waiting = self._ledger.waiting()
        for name in names:
            data: bytes | None = yield Get(name)
            try:
                self._ledger.confirm(() if data is None else read_record(data))
            except msgspec.MsgspecError as error:
                # Fail closed: without this record, output that the user discarded would be committed after all.
                raise LogCorrupt(name, f"cannot be read ({error})") from error
        left = set(map(id, self._ledger.waiting()))
        self.found = tuple(each for each in waiting if id(each) not in left)
        # No record may say that it is committed: somebody who deletes that of what was discarded wants it to be.
        self._ledger.note_forgotten(self.found)

    def discard(self, sink: Uid) -> None:
        """Step 1, for a sink that no longer exists."""
        self._to_record += marks(each for each in self._ledger.waiting() if each.sink == sink)
        self._ledger.forget(sink)

    def record(self, term: Term) -> Steps[None]:
        """Step 2, for all that was discarded in this term."""
        if self._to_record:
            yield Put(self._layout.discarded(term), record_of(self._to_record))
            reach("discard.1-recorded", term=term)
            # After the request: if it fails, the next checkpoint tries again, and none is completed without it.
            self._to_record = ()
