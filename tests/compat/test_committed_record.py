"""COMMITTED records of earlier releases are read forever, and new ones look the same."""

from __future__ import annotations

from tidegate.checkpoint.metadata import CommittedMark
from tidegate.checkpoint.output import committables
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid

RECORD = b'[{"lineage":"l","sink":"out","partition":3,"epoch":{"term":2,"number":7}}]'


def test_a_record_says_what_it_always_said() -> None:
    output = Committable(
        lineage=Lineage("l"), sink=Uid("out"), slot=Slot(3), epoch=EpochId(Term(2), 7), payload=b"rows"
    )

    assert committables.record([output]) == RECORD


def test_a_record_of_an_earlier_release_is_read() -> None:
    assert committables.read_record(RECORD) == (CommittedMark(Lineage("l"), Uid("out"), 3, EpochId(Term(2), 7)),)
