"""Output that waits is not taken for published because a lost or copied history has a claim of the same or a greater number.

A job is restored while its target cannot be asked. It takes checkpoints, its first commit is refused, and the user accepts the
foreign output or starts a new line of history. The target has nothing of what waits since the restore; what waited before it may
have been published by the lost history, which cannot be told, and is published again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.connectors.files import FileSink
from tidegate.connectors.files.committer import FileCommitter
from tidegate.connectors.files.names import HIDDEN, OutputId, final_epoch_name
from tidegate.connectors.kafka import KafkaSink
from tidegate.connectors.kafka.committer import TransactionalCommitter, _parts_of
from tidegate.connectors.kafka.marker import Marker, PartState, encode
from tidegate.connectors.kafka.payload import KafkaCommittable, StagedPart
from tidegate.connectors.lakehouse.marker import markers_of, may_be_in_table, missing
from tidegate.connectors.lakehouse.names import marker_name, marker_number, term_marker_name
from tidegate.connectors.outcome import CommitInDoubt, CommitOutcome, ForeignOutput
from tidegate.connectors.postgres.committer import PostgresCommitter
from tidegate.connectors.postgres.payload import Copy, Prepared
from tidegate.connectors.sink import Committable, CommitterContext, Settled
from tidegate.core.history import History, claimed, learnt, reached
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid, term_of
from tidegate.schema.schema import Schema

LINE, SINK = Lineage("line"), Uid("out")
LOST = EpochId(term_of(3, 0xBBBB), 50)
WAITS = EpochId(term_of(2, 0xAAAA), 5)
SAME_NUMBER = EpochId(term_of(3, 0xAAAA), 5)
OWN = EpochId(term_of(4, 1), 2)
"""The marker after the job has published something."""

_before = reached(claimed(reached(claimed(claimed((), Term(1)), WAITS.term), WAITS), SAME_NUMBER.term), SAME_NUMBER)
_accepted = reached(claimed(learnt(_before, LOST, own=False), OWN.term), OWN)
_abandoned = reached(claimed(_before, OWN.term), OWN)
ACCEPTED = History(LINE, _accepted, OWN.term)
ABANDONED = History(Lineage("new"), _abandoned, OWN.term)

histories = pytest.mark.parametrize("history", [ACCEPTED, ABANDONED], ids=["accepted", "fresh"])


def context(history: History) -> CommitterContext:
    return CommitterContext(Schema.parse("value string"), lambda token: b"", history=lambda: history)


def request(epoch: EpochId, payload: bytes = b"") -> Committable:
    return Committable(lineage=LINE, sink=SINK, epoch=epoch, slot=Slot(0), payload=payload)


def test_a_committer_of_the_user_that_compares_numbers_is_refused() -> None:
    for epoch in (WAITS, SAME_NUMBER):
        with pytest.raises(ForeignOutput, match="nobody has committed it"):
            context(ACCEPTED).check_marker(LINE, SINK, LOST, [epoch])
        context(ACCEPTED).check_marker(LINE, SINK, OWN, [epoch])
    context(ACCEPTED).check_marker(LINE, SINK, LOST, [OWN])


def test_a_marker_of_the_own_history_does_not_move_back_for_output_of_another_one() -> None:
    """It would forget what it covers. A savepoint of the lost history carries such output."""
    with pytest.raises(ForeignOutput, match="nobody has committed it"):
        context(ACCEPTED).covers(LINE, SINK, OWN, LOST)


@histories
def test_a_table(history: History) -> None:
    stored = {marker_name(LINE, SINK): marker_number(LOST), term_marker_name(LINE, SINK): LOST.term}
    requests = [request(WAITS), request(SAME_NUMBER), request(OWN)]
    assert missing(context(history), requests, stored.get) == requests
    assert missing(context(history), [request(LOST)], stored.get) == []
    stored |= markers_of(requests[:1], stored.get)
    assert missing(context(history), requests, stored.get) == requests[1:]
    assert may_be_in_table(request(LOST), stored.get), "clean-up keeps files of the lost history, which the table has"
    stored |= markers_of(requests, stored.get)
    assert missing(context(history), requests, stored.get) == []
    assert not may_be_in_table(request(OWN.next()), stored.get)


@histories
def test_postgres(history: History) -> None:
    committer = PostgresCommitter("", "t", context(history), key=(), two_phase=False, description="a table")
    requests: list[Any] = [(request(epoch), Copy(("value",), ("inline ",), 1)) for epoch in (WAITS, SAME_NUMBER, OWN)]
    assert committer._missing({(LINE, Slot(0)): LOST}, requests) == requests
    assert committer._missing({(LINE, Slot(0)): SAME_NUMBER}, requests) == requests[2:]
    assert committer._missing({(LINE, Slot(0)): OWN}, requests) == []
    assert committer._missing({}, requests) == requests


class HeldSlots:
    """A topic whose slots have the marker of some epoch."""

    topic = "t"

    def __init__(self, epoch: EpochId) -> None:
        self.taken: dict[Any, Any] = {}
        self.epoch = epoch

    def take(self, streams: Any) -> None:
        marker = Marker(encode(self.epoch, 0), self.epoch.term)
        self.taken = {stream: SimpleNamespace(marker=marker, is_unstable=False, own=None) for stream in streams}

    def keep(self, first: Any) -> None: ...

    def forget(self) -> None: ...


@histories
def test_kafka(history: History) -> None:
    payload = KafkaCommittable("t", 0, (StagedPart("inline ", 1, 1),))
    committer = KafkaSink("127.0.0.1:1", "t").create_committer(context(history))
    assert isinstance(committer, TransactionalCommitter)

    def found(marker: EpochId, epoch: EpochId) -> PartState:
        slots: Any = HeldSlots(marker)
        [part] = _parts_of(request(epoch), payload)
        slots.take([part.stream])
        return committer._state(slots, part)

    assert found(LOST, WAITS) is found(LOST, SAME_NUMBER) is PartState.WAITING
    assert found(LOST, LOST) is found(OWN, WAITS) is found(OWN, SAME_NUMBER) is found(OWN, OWN) is PartState.COMMITTED
    assert found(SAME_NUMBER, WAITS) is PartState.COMMITTED


@histories
def test_files_that_the_sweep_of_a_copy_has_removed(history: History, tmp_path: Path) -> None:
    """The copy took them for orphans: their epoch is before the one that it had settled."""
    (tmp_path / HIDDEN).mkdir()
    (tmp_path / HIDDEN / final_epoch_name(LINE, SINK)).write_text(LOST.name)
    committer = FileSink(str(tmp_path)).create_committer(context(history))
    assert isinstance(committer, FileCommitter)
    gone: Callable[[EpochId], Committable] = lambda epoch: request(epoch, staged_file(epoch))  # noqa: E731
    for epoch in (WAITS, SAME_NUMBER):
        with pytest.raises(CommitInDoubt, match="has disappeared without being committed"):
            committer.commit([gone(epoch)])
    # The lost history published it before it swept: nobody else has that name.
    (tmp_path / OutputId(LINE, SINK, WAITS, Slot(0)).final(0, "json")).touch()
    assert committer.commit([gone(WAITS)]) == [CommitOutcome.ALREADY_COMMITTED]
    (tmp_path / HIDDEN / final_epoch_name(LINE, SINK)).write_text(OWN.name)
    assert committer.commit([gone(SAME_NUMBER)]) == [CommitOutcome.ALREADY_COMMITTED]


def staged_file(epoch: EpochId) -> bytes:
    output = OutputId(LINE, SINK, epoch, Slot(0))
    return json.dumps([{"final": output.final(0, "json"), "hidden": output.hidden(0, 1, "json")}]).encode()


class Swept:
    """A database whose prepared transactions are gone, and which says up to where all is settled."""

    def __init__(self, settled: EpochId) -> None:
        self._settled = settled

    def final_epoch(self, *of: object) -> EpochId:
        return self._settled

    def has_prepared(self, *of: object) -> bool:
        return False

    def execute(self, statement: str) -> None:
        from psycopg import errors

        raise errors.UndefinedObject("does not exist")


@histories
def test_prepared_transactions_that_the_sweep_of_a_copy_has_rolled_back(history: History) -> None:
    pytest.importorskip("psycopg")
    committer = PostgresCommitter("", "t", context(history), key=(), two_phase=True, description="a table")

    def commit(settled: EpochId, epoch: EpochId) -> CommitOutcome:
        table: Any = SimpleNamespace(connection=Swept(settled), markers=Swept(settled))
        return committer._commit_prepared(request(epoch), Prepared("gid", 1), table)

    with pytest.raises(CommitInDoubt, match="nothing shows that it was committed"):
        commit(LOST, SAME_NUMBER)
    # What waits since the restore is still prepared. This is gone, so the lost history committed it before it swept.
    assert commit(LOST, WAITS) is CommitOutcome.ALREADY_COMMITTED
    for epoch in (WAITS, SAME_NUMBER):
        assert commit(OWN, epoch) is CommitOutcome.ALREADY_COMMITTED


def test_a_sweep_next_to_another_history_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / HIDDEN).mkdir()
    note = tmp_path / HIDDEN / final_epoch_name(LINE, SINK)
    staged = tmp_path / HIDDEN / OutputId(LINE, SINK, WAITS, Slot(0)).hidden(0, 1, "json")
    staged.touch()
    committer = FileSink(str(tmp_path)).create_committer(context(History(LINE, _before, SAME_NUMBER.term)))
    assert isinstance(committer, FileCommitter)
    note.write_text(LOST.name)
    committer.sweep(Settled(LINE, SINK, SAME_NUMBER))
    assert staged.exists()
    assert note.read_text() == LOST.name
    note.write_text(WAITS.name)
    committer.sweep(Settled(LINE, SINK, SAME_NUMBER))
    assert not staged.exists()
