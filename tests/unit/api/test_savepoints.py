"""Savepoints without a job: read, built from nothing, changed, written anew. Nothing here needs Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import tidegate as tg
from tests.unit.savepoint.checkpoint_kit import History, Operator, mapping, value
from tidegate.checkpoint.effects import perform
from tidegate.checkpoint.job_log.pins import read_pins
from tidegate.core.errors import GraphError, WrongValue
from tidegate.savepoint.changes import ChangeRefused
from tidegate.savepoint.pinned import NotRetained
from tidegate.savepoint.snapshot import StateNotFound, StoredSnapshot
from tidegate.savepoint.verify import verify
from tidegate.schema.key_values import InvalidKey
from tidegate.storage import StorageDenied
from tidegate.storage.local import LocalStorage


@dataclass
class Rule:
    name: str
    limit: int = 3


class Row(NamedTuple):
    """A Spark row has the shape of a tuple."""

    user: str
    day: int
    value: Any


class Frame(list[Row]):
    """A DataFrame, as far as a writer looks at it."""

    def toLocalIterator(self) -> Iterator[Row]:
        return iter(self)


USERS = {f"u{n}": float(n) for n in range(30)}
TOTALS = Operator(
    "totals",
    ("string",),
    (value("total", float), mapping("seen", str, int)),
    {"total": USERS, "seen": {"u1": {"a": 1}}},
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> tg.Savepoint:
    return tg.Savepoint.open(History(tmp_path).checkpoint(1, TOTALS))


def held(savepoint: tg.Savepoint, uid: str = "totals", state: str = "total") -> dict[Any, Any]:
    return {entry.key: entry.value for entry in savepoint.state(uid, state).entries()}


def test_a_checkpoint_is_pinned_while_its_state_is_read_and_no_longer(tmp_path: Path) -> None:
    history = History(tmp_path)
    checkpoint = tg.Savepoint.open(history.checkpoint(1, TOTALS))
    entries = checkpoint.state("totals", "total").entries()
    next(entries)
    (pin,) = perform(read_pins(history.layout), history.storage)
    assert (pin.metadata, pin.reason) == ("orders/chk-1/_metadata", "read with tg.Savepoint")
    history.checkpoint(2, TOTALS)
    history.checkpoint(3, TOTALS)  # drops the first one; the job reads the pin before it deletes anything
    assert len(list(entries)) == len(TOTALS.holds["total"]) - 1
    assert perform(read_pins(history.layout), history.storage) == ()
    with pytest.raises(NotRetained, match="Retained: chk-2, chk-3"):
        checkpoint.state("totals", "total").get("ann")


def test_a_user_without_write_permission_reads_a_checkpoint_without_a_pin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: object, path: str, data: bytes) -> None:
        raise StorageDenied("file://", path, "read only")

    checkpoint = tg.Savepoint.open(History(tmp_path).checkpoint(1, TOTALS))
    monkeypatch.setattr(LocalStorage, "put", denied)
    assert held(checkpoint) == TOTALS.holds["total"]


@pytest.mark.feature("I29")
def test_a_checkpoint_is_opened_and_asked(checkpoint: tg.Savepoint) -> None:
    assert [(s.uid, s.state, s.kind, s.key, s.value) for s in checkpoint.states()] == [
        ("totals", "total", "value", "string", "float"),
        ("totals", "seen", "map", "string", "int"),
    ]
    assert checkpoint.state("totals", "total").get("u7") == 7.0
    assert checkpoint.state("totals", "seen").get("u1", map_key="a") == 1
    assert held(checkpoint) == USERS
    table = checkpoint.state("totals", "total").to_arrow()
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist())) == USERS
    with pytest.raises(StateNotFound, match="'total'"):
        checkpoint.state("totals", "none")


@pytest.mark.feature("I28")
def test_a_savepoint_is_built_from_nothing(tmp_path: Path) -> None:
    written = (
        tg.SavepointWriter.new("orders", max_parallelism=64, parallelism=3)
        .with_state("totals", "total", USERS, key="user string", value=float)
        .with_state("totals", "seen", [("u1", {"a": 1})], key="user string", value=int, map_key=str)
        .with_state(
            "rules", "all", {(1, "x"): [Rule("r"), Rule("s", 5)]}, key="n bigint, s string", value=Rule, kind="list"
        )
        .write(tmp_path / "sp")
    )
    assert held(written) == USERS
    assert written.state("totals", "seen").get("u1") == {"a": 1}
    assert written.state("rules", "all").get((1, "x")) == [{"name": "r", "limit": 3}, {"name": "s", "limit": 5}]
    assert {number.id for number in written.metadata.state_numbers} == {1, 2, 3}
    assert len(written.metadata.tasks) == 3


@pytest.mark.feature("I29")
def test_pandas_gets_flat_columns_and_none_that_are_empty(checkpoint: tg.Savepoint, tmp_path: Path) -> None:
    plain = checkpoint.state("totals", "total").to_pandas()
    assert list(plain.columns) == ["key", "value"]
    assert dict(zip(plain["key"], plain["value"])) == USERS
    assert list(checkpoint.state("totals", "seen").to_pandas().columns) == ["key", "map_key", "value"]
    written = (
        tg.SavepointWriter.new("orders")
        .with_state("rules", "all", {(1, "x"): [Rule("r")]}, key="n bigint, s string", value=Rule, kind="list")
        .write(tmp_path / "sp")
    )
    nested = written.state("rules", "all").to_pandas()
    assert nested.to_dict("records") == [
        {"key.k1": 1, "key.k2": "x", "position": 0, "value.name": "r", "value.limit": 3}
    ]


@pytest.mark.feature("I28")
def test_a_savepoint_is_changed(checkpoint: tg.Savepoint, tmp_path: Path) -> None:
    written = (
        tg.SavepointWriter.from_existing(checkpoint)
        .rename_uid("totals", "sums")
        .remove("totals", "seen")
        .with_state("sums", "total", {user: amount * 2 for user, amount in USERS.items()})
        .with_state("new", "flag", {5: True}, key="n int", value=bool)
        .write(tmp_path / "sp")
    )
    assert held(written, "sums") == {user: amount * 2 for user, amount in USERS.items()}
    assert written.state("new", "flag").get(5) is True
    assert {(s.uid, s.state) for s in written.states()} == {("sums", "total"), ("new", "flag")}
    assert written.metadata.positions[0].lines == checkpoint.metadata.positions[0].lines
    numbers = {(number.uid, number.name): number.id for number in written.metadata.state_numbers}
    assert numbers == {("sums", "total"): 1, ("sums", "seen"): 2, ("new", "flag"): 3}


def test_a_frame_is_taken_row_by_row(checkpoint: tg.Savepoint, tmp_path: Path) -> None:
    rows = Frame([Row("ann", 1, 5), Row("ann", 2, 6), Row("bob", 1, 7)])
    writer = tg.SavepointWriter.new("orders")
    writer = writer.with_state("a", "by_day", rows, key="user string", value=int, map_key=int)
    writer = writer.with_state("b", "one", rows, key="user string, day int", value=int)
    written = writer.write(tmp_path / "sp")
    assert written.state("a", "by_day").get("ann") == {1: 5, 2: 6}
    assert written.state("b", "one").get(("bob", 1)) == 7


def test_arrow_tables_are_accepted(tmp_path: Path) -> None:
    table = pa.table({"user": ["ann", "ann", "bob"], "day": [1, 2, 1], "n": [5, 6, 7]})
    writer = tg.SavepointWriter.new("orders")
    writer = writer.with_state("a", "by_day", table, key="user string", value=int, map_key=int)
    writer = writer.with_state("b", "one", table.to_reader(), key="user string, day int", value=int)
    written = writer.write(tmp_path / "sp")
    assert written.state("a", "by_day").get("ann") == {1: 5, 2: 6}
    assert written.state("b", "one").get(("bob", 1)) == 7
    with pytest.raises(WrongValue, match="3 columns"):
        tg.SavepointWriter.new("x").with_state("b", "one", table, key="user string", value=int).write(tmp_path / "no")


@pytest.mark.feature("I28")
def test_windows_timers_and_operator_state_are_bootstrapped(tmp_path: Path) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    rows = pa.table({"key": ["ann"], "value": [2.5], "namespace": [{"start": noon, "end": noon, "name": None}]})
    written = (
        tg.SavepointWriter.new("orders", parallelism=2)
        .with_entries("w", "sums", rows, key="user string", value=float, windowed=True)
        .with_timers("w", event_time={"ann": noon, "bob": [1, 2]}, processing_time=[("ann", 3)])
        .with_state("w", "ranked", {"ann": {2: "b", 1: "a"}}, value=str, map_key=int, kind="sorted_map")
        .with_operator_state("offsets", "kept", [(0, 5), (1, 6), (2, 7)], value=tuple[int, int])
        .with_operator_state("offsets", "all", ["x"], value=str, union=True)
        .with_operator_state("w", "rules", {"r": Rule("r", 4)}, value=Rule, map_key=str)
        .write(tmp_path / "sp")
    )
    assert list(verify(StoredSnapshot.open(tmp_path / "sp"))) == []
    milliseconds = round(noon.timestamp() * 1000)
    assert written.state("w", "sums").get("ann", window=(milliseconds, milliseconds)) == 2.5
    assert written.timers("w").get("bob") == [("EVENT_TIME", 1), ("EVENT_TIME", 2)]
    assert sorted(written.timers("w").get("ann")) == [("EVENT_TIME", milliseconds), ("PROCESSING_TIME", 3)]
    assert written.state("w", "ranked").get("ann") == {1: "a", 2: "b"}
    assert [e.value for e in written.state("offsets", "kept").entries()] == [(0, 5), (1, 6), (2, 7)]
    assert [e.map_key for e in written.state("w", "rules").entries()] == ["r"]
    counts = {(t.task.slot, n.count) for t in written.metadata.tasks for n in t.elements}
    assert counts == {(0, 2), (1, 1), (0, 1)}


@pytest.mark.parametrize("contents", [[("u", 1.0), ("u", 2.0)], pa.table({"k": ["u", "u"], "v": [1.0, 1.0]})])
def test_a_duplicate_key_is_refused(tmp_path: Path, contents: Any) -> None:
    writer = tg.SavepointWriter.new("orders").with_state("t", "n", contents, key="user string", value=float)
    with pytest.raises(ChangeRefused, match="'u'"):
        writer.write(tmp_path / "sp")
    assert not (tmp_path / "sp" / "_metadata").exists()


def test_a_writer_can_write_twice_and_changes_nothing_it_was_made_from(tmp_path: Path) -> None:
    writer = tg.SavepointWriter.new("orders")
    with_totals = writer.with_state("totals", "total", USERS, key="user string", value=float)
    assert held(with_totals.write(tmp_path / "one")) == held(with_totals.write(tmp_path / "two")) == USERS
    assert writer.write(tmp_path / "three").states() == []


@pytest.mark.parametrize(
    ("contents", "more", "error"),
    [
        ({"u": "text"}, {"key": "user string", "value": float}, WrongValue),
        ({7: 1.0}, {"key": "user string", "value": float}, InvalidKey),
        ({"u": 1.0}, {"key": "user string"}, GraphError),
        ({"u": 1.0}, {"value": float}, GraphError),
        ({"u": {}}, {"key": "user string", "value": float, "kind": "map"}, GraphError),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_savepoint(
    tmp_path: Path, contents: Any, more: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        tg.SavepointWriter.new("orders").with_state("totals", "total", contents, **more).write(tmp_path / "sp")
    assert not (tmp_path / "sp" / "_metadata").exists()


def test_all_states_of_an_operator_have_one_key(checkpoint: tg.Savepoint, tmp_path: Path) -> None:
    writer = tg.SavepointWriter.from_existing(checkpoint)
    with pytest.raises(ChangeRefused, match="same key"):
        writer.with_state("totals", "more", {1: 1}, key="n int", value=int).write(tmp_path / "sp")
