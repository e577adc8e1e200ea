"""The PostgreSQL sink's own rules that need no server: text for COPY, and which tables are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.connectors.postgres.committer import _same_columns, _transactions
from tidegate.connectors.postgres.copy_text import copy_text
from tidegate.connectors.postgres.payload import Copy, Prepared, decode, epoch_in, gid_of, gid_prefix
from tidegate.connectors.postgres.table import Column, TableRefused, TargetTable, UniqueIndex, check_table
from tidegate.connectors.postgres.writer import CHUNK_BYTES
from tidegate.connectors.sink import Committable, WriterContext
from tidegate.core.errors import GraphError, SchemaError
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, Term, Uid
from tidegate.schema.columns import batch_from_rows
from tidegate.schema.schema import Schema

UNESCAPED = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


def as_server_reads(field: str) -> str | None:
    """COPY's text format, by its documentation."""
    if field == "\\N":
        return None
    out, characters = [], iter(field)
    for character in characters:
        out.append(UNESCAPED[next(characters)] if character == "\\" else character)
    return "".join(out)


@given(
    st.lists(
        st.tuples(
            st.none() | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
            st.none() | st.text("\\N.\t\r\n"),
        ),
        min_size=1,
    )
)
def test_every_text_is_read_back_unchanged(rows):
    text = copy_text(batch_from_rows(rows, Schema.parse("a string, b string")), Schema.parse("a string, b string"))
    lines = text.decode().split("\n")
    assert lines.pop() == ""
    assert "\\." not in lines
    assert [tuple(map(as_server_reads, line.split("\t"))) for line in lines] == rows


def test_other_types_are_written_as_the_server_reads_them():
    schema = Schema.parse(
        "b boolean, n bigint, x double, d decimal(10,2), day date, t timestamp, u timestamp_ntz, raw binary, "
        "tags array<string>, s struct<a:int>"
    )
    row = (
        True, -7, 0.1, Decimal("1.50"), date(2024, 5, 1), datetime(2024, 5, 1, 12, tzinfo=UTC), datetime(2024, 5, 1, 12),
        b"\x00\xff", ["a\tb", None], (None,),
    )  # fmt: skip
    text = copy_text(batch_from_rows([row, (None,) * 10], schema), schema).decode()
    first, second, _ = text.split("\n")
    assert first.split("\t") == [
        "true", "-7", "0.1", "1.50", "2024-05-01", "2024-05-01 12:00:00.000000Z", "2024-05-01 12:00:00.000000",
        "\\\\x00ff", '["a\\\\tb", null]', '{"a": null}',
    ]  # fmt: skip
    assert second.split("\t") == ["\\N"] * 10


def test_a_slice_of_a_batch_is_only_that_slice():
    schema = Schema.parse("n bigint")
    batch = batch_from_rows([(n,) for n in range(10)], schema)
    assert copy_text(batch.slice(3, 2), schema) == b"3\n4\n"
    assert copy_text(batch.slice(0, 0), schema) == b""


def test_a_nul_is_refused_in_the_task_not_at_every_commit():
    schema = Schema.parse("a string")
    with pytest.raises(SchemaError, match="column 'a' contains a NUL"):
        copy_text(batch_from_rows([("x\x00y",)], schema), schema)


COLUMNS = (Column("n", "int8", True), Column("name", "text"), Column("id", "int8", True, True))
PRIMARY = UniqueIndex("out_pkey", ("n",))
ROWS = Schema.parse("n bigint, name string")


def table(columns=COLUMNS, unique=(), kind="r", logged=True):
    return TargetTable("public", "out", kind, logged, columns, unique)


@pytest.mark.parametrize(
    ("found", "key", "two_phase"),
    [
        (table(), (), False),
        (table(kind="p"), (), False),
        (table(unique=(PRIMARY,)), ("n",), False),
        (table(unique=(UniqueIndex("by_id", ("id",)),)), (), True),
        (table(unique=(UniqueIndex("u", ("n", "name")),)), ("name", "n"), False),
    ],
)
def test_tables_that_fit(found, key, two_phase):
    check_table(found, ROWS, key, two_phase)


@pytest.mark.parametrize(
    ("found", "key", "two_phase", "words"),
    [
        (table(kind="v"), (), False, "is not a table"),
        (table(logged=False), (), False, "SET LOGGED"),
        (table(COLUMNS[:1]), (), False, 'ADD COLUMN "name" text'),
        (table((Column("n", "int4"), *COLUMNS[1:])), (), False, "n is int4, but the stream's column is bigint"),
        (table((Column("n", "int8", computed=True), *COLUMNS[1:])), (), False, "computed by the table"),
        (table((*COLUMNS, Column("must", "text", True))), (), False, "must must not be null and has no default"),
        (table(), ("n",), False, "ADD PRIMARY KEY"),
        (table(unique=(UniqueIndex("p", ("n",), plain=False),)), ("n",), False, "ADD PRIMARY KEY"),
        (table(unique=(PRIMARY,)), ("n", "name"), False, "ADD PRIMARY KEY"),
        (table(unique=(PRIMARY,)), (), True, "unique index out_pkey"),
        (table(unique=(UniqueIndex("lower", (), plain=False),)), (), True, "unique index lower"),
    ],
)
def test_tables_that_do_not_fit_and_what_to_do(found, key, two_phase, words):
    with pytest.raises(TableRefused, match=words):
        check_table(found, ROWS, key, two_phase)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"mode": "insert"}, "'append' or 'upsert'"),
        ({"mode": "upsert"}, "belong together"),
        ({"key": ["n"]}, "requires mode='upsert'"),
        ({"mode": "upsert", "key": "n"}, r"key=\['n'\]"),
        ({"mode": "upsert", "key": ["n"], "two_phase": True}, "the default is also exactly-once"),
    ],
)
def test_wrong_choices_are_reported_when_the_sink_is_created(choices, words):
    with pytest.raises(GraphError, match=words):
        tg.PostgresSink("", "t", **choices)


def test_secrets_are_not_shown():
    sink = tg.PostgresSink("password=hush", "t")
    assert "hush" not in f"{sink} {sink.describe()}"


@given(lineage=st.text(min_size=1), sink=st.text(min_size=1, max_size=500), number=st.integers(0, 10**12))
def test_transaction_ids_are_short_and_contain_their_epoch(lineage, sink, number):
    epoch = EpochId(Term(3), number)
    context = WriterContext(
        lineage=Lineage(lineage),
        sink=Uid(sink),
        epoch=epoch,
        slot=Slot(9999),
        attempt=AttemptId(10**12),
        schema=ROWS,
        staging=None,
    )
    gid = gid_of(context)
    assert len(gid.encode()) < 200
    assert epoch_in(gid) == epoch
    assert gid.startswith(gid_prefix(Lineage(lineage), Uid(sink)))
    assert epoch_in("somebody-elses") is None


def waiting(number: int, slot: int, payload: Copy | Prepared) -> tuple[Committable, Copy | Prepared]:
    return Committable(
        lineage=Lineage("line"), sink=Uid("out"), epoch=EpochId(Term(1), number), slot=Slot(slot), payload=b""
    ), payload


def rows(*tokens: str, size_bytes: int = 10, columns: tuple[str, ...] = ("n",)) -> Copy:
    return Copy(columns, tokens, 1, size_bytes)


def places(transactions):
    return [[(request.epoch.number, request.slot) for request, _ in together] for together in transactions]


def test_a_transaction_takes_whole_epochs_up_to_its_size(monkeypatch):
    monkeypatch.setattr("tidegate.connectors.postgres.committer.MOST_BYTES", 45)
    ordered = [waiting(number, slot, rows("x")) for number in (1, 2, 3) for slot in (0, 1)]
    ordered.append(waiting(4, 0, rows("large", size_bytes=99)))
    assert places(_transactions(ordered)) == [[(1, 0), (1, 1), (2, 0), (2, 1)], [(3, 0), (3, 1)], [(4, 0)]]


@pytest.mark.feature("J16")
def test_prepared_transactions_are_committed_alone_in_the_order_of_epochs():
    prepared = Prepared("gid", 1)
    ordered = [waiting(1, 0, rows("x")), waiting(2, 0, prepared), waiting(2, 1, prepared), waiting(3, 0, rows("y"))]
    assert places(_transactions(ordered)) == [[(1, 0)], [(2, 0)], [(2, 1)], [(3, 0)]]


def test_rows_of_a_changed_job_are_copied_with_their_own_columns():
    new = [waiting(1, 0, rows("a", "b")), waiting(1, 1, rows("c")), waiting(2, 0, rows("d", columns=("n", "m")))]
    assert list(_same_columns(new)) == [(("n",), ["a", "b", "c"]), (("n", "m"), ["d"])]


def test_what_was_staged_before_sizes_were_noted_counts_by_its_chunks(monkeypatch):
    monkeypatch.setattr("tidegate.connectors.postgres.committer.MOST_BYTES", 3 * CHUNK_BYTES)
    old = [waiting(number, 0, rows("a", "b", size_bytes=0)) for number in (1, 2)]
    assert places(_transactions(old)) == [[(1, 0)], [(2, 0)]]
    assert decode(b'{"type":"copy","columns":["n"],"tokens":["a"],"rows":1}').size_bytes == 0
