"""A savepoint that somebody else wrote carries forged output: every sink refuses it before it touches or contacts anything.

The contract of every sink (`tidegate.testing.sink_contract.forgeries`) tries the same against the targets themselves. Here
are the payloads that somebody would write on purpose.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.output.staging import JobStaging, StagedReader
from tidegate.connectors.files import FileSink
from tidegate.connectors.files.names import OutputId
from tidegate.connectors.kafka import KafkaSink
from tidegate.connectors.outcome import CommitRefused, UntrustedOutput
from tidegate.connectors.postgres.committer import PostgresCommitter
from tidegate.connectors.postgres.payload import gid_prefix
from tidegate.connectors.sink import Committable, Committer, CommitterContext
from tidegate.connectors.write_ahead import WriteAheadSink
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, Term, Uid
from tidegate.schema.schema import Schema
from tidegate.testing.storage import MemoryStorage

LINEAGE, SINK, EPOCH, SLOT = Lineage("line"), Uid("out"), EpochId(Term(2), 7), Slot(3)
LAYOUT = JobLayout("orders")
RECORDS = Schema.parse("value string")
OUTPUT = OutputId(LINEAGE, SINK, EPOCH, SLOT)
GID = f"{gid_prefix(LINEAGE, SINK)}{EPOCH}:{SLOT}:"


def request(payload: Any) -> Committable:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Committable(lineage=LINEAGE, sink=SINK, epoch=EPOCH, slot=SLOT, payload=data)


def context(read: Callable[[str], bytes] | None = None) -> CommitterContext:
    """Whoever reads something has taken the token for one of ours."""

    def never(token: str) -> bytes:
        raise AssertionError(f"read {token}")

    return CommitterContext(RECORDS, read or never, StagedReader(None, LAYOUT, SINK).check)


def staged(epoch: EpochId = EPOCH, sink: str = "out", job: str = "orders") -> str:
    staging = JobStaging(MemoryStorage(), JobLayout(job), epoch, Uid(sink), AttemptId(1))
    return staging.put(b"rows")


def postgres() -> Committer:
    # Port 1: a connection would be refused, and that is another error.
    return PostgresCommitter("host=127.0.0.1 port=1", "t", context(), key=(), two_phase=True, description="a table")


def kafka(**choices: Any) -> Committer:
    return KafkaSink("127.0.0.1:1", "orders", **choices).create_committer(context())


def write_ahead() -> Committer:
    def never(rows: Any, token: Any) -> None:
        raise AssertionError("called")

    return WriteAheadSink(never).create_committer(context())


TOKENS = {
    "of another epoch": staged(epoch=EpochId(Term(2), 6)),
    "of another sink": staged(sink="other"),
    "of another job": staged(job="payments"),
    "of a state file": "staged orders/shared/1/0-0/1/chk-1-x 4 sha256:00",
    "above the job": "staged orders/taskowned/2/7/out/1/../../../../../secret 4 sha256:00",
    "with a folder above": "staged orders/taskowned/2/7/out/1/.. 4 sha256:00",
    "at an absolute path": "staged /etc/passwd 4 sha256:00",
    "of another bucket": "staged s3://other/orders/taskowned/2/7/out/1/x 4 sha256:00",
    "at a host": "staged http://169.254.169.254/latest 4 sha256:00",
    "without an end": "staged " + "a/" * 100_000,
    "of no kind": "/etc/passwd",
    "of nothing": "",
}


@pytest.mark.parametrize("how", TOKENS)
@pytest.mark.parametrize("sink", ["kafka", "plain kafka", "postgres", "write-ahead"])
def test_rows_that_were_not_staged_for_the_output_are_refused(how: str, sink: str) -> None:
    token = TOKENS[how]
    committer, payload = {
        "kafka": (kafka(), {"topic": "orders", "at_ms": 0, "parts": [[token, 1, 1]]}),
        "plain kafka": (
            kafka(delivery_guarantee="at-least-once"),
            {"topic": "orders", "at_ms": 0, "parts": [[token, 1, 1]]},
        ),
        "postgres": (postgres(), {"type": "copy", "columns": ["value"], "tokens": [token], "rows": 1}),
        "write-ahead": (write_ahead(), {"tokens": [token], "rows": 1}),
    }[sink]
    with pytest.raises(UntrustedOutput, match="No writer of this sink left that"):
        committer.commit([request(payload)])


@pytest.mark.parametrize("how", [how for how in TOKENS if how not in ("of another epoch",)])
def test_a_sink_that_does_not_check_its_tokens_cannot_read_them_either(how: str) -> None:
    """A sink of the user's own, for example."""
    storage = MemoryStorage()
    for name in ("orders/shared/1/0-0/1/chk-1-x", "secret"):
        storage.put(name, b"rows")
    with pytest.raises(CommitRefused, match="which no writer of this sink staged"):
        StagedReader(storage, LAYOUT, SINK).read(TOKENS[how])


@pytest.mark.parametrize("topic", ["payments", "", "__consumer_offsets", "orders\n"])
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_topic_that_the_sink_does_not_name_is_refused(topic: str, guarantee: str) -> None:
    payload = {"topic": topic, "at_ms": 0, "parts": [[staged(), 1, 1]]}
    with pytest.raises(UntrustedOutput, match="previous_topics"):
        kafka(delivery_guarantee=guarantee).commit([request(payload)])


def test_output_for_the_previous_topic_of_a_sink_is_accepted() -> None:
    payload = {"topic": "old", "at_ms": 0, "parts": [[staged(), 1, 1]]}
    committer = kafka(previous_topics=["old"])
    assert committer._payload_of(request(payload)).topic == "old"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "gid",
    [
        "payroll",
        "x'; DROP TABLE users; --",
        f"{GID}1'; DROP TABLE users; --",
        f"{GID}",
        f"{GID}-1",
        f"{GID}١",
        f"{GID}1\n",
        f"{GID}{'1' * 300}",
        f"{gid_prefix(LINEAGE, SINK)}{EPOCH}:4:1",
        f"{gid_prefix(LINEAGE, SINK)}2.8:{SLOT}:1",
        f"{gid_prefix(Lineage('other'), SINK)}{EPOCH}:{SLOT}:1",
        f"{gid_prefix(LINEAGE, Uid('other'))}{EPOCH}:{SLOT}:1",
    ],
)
def test_a_foreign_prepared_transaction_is_refused(gid: str) -> None:
    with pytest.raises(UntrustedOutput, match="names the prepared transaction"):
        postgres().commit([request({"type": "prepared", "gid": gid, "rows": 1})])


NAME, HIDDEN = OUTPUT.final(0, "json"), OUTPUT.hidden(0, 1, "json")

FILES = {
    "over a file of the user": {"final": "../../.bashrc", "hidden": HIDDEN},
    "at an absolute path": {"final": "/tmp/outside", "hidden": HIDDEN},
    "over another file of the sink": {"final": "part-0.json", "hidden": HIDDEN},
    "of another slot": {"final": OutputId(LINEAGE, SINK, EPOCH, Slot(4)).final(0, "json"), "hidden": HIDDEN},
    "of another history": {"final": OutputId(Lineage("x"), SINK, EPOCH, SLOT).final(0, "json"), "hidden": HIDDEN},
    "above": {"final": f"../{NAME}", "hidden": HIDDEN},
    "above a folder": {"final": f"day=1/../../{NAME}", "hidden": HIDDEN},
    "in a folder that is none": {"final": f"etc/{NAME}", "hidden": HIDDEN},
    "with another end": {"final": f"{NAME}/../../x", "hidden": HIDDEN},
    "of a hidden file above": {"final": NAME, "hidden": "../../secret"},
    "of a hidden file at an absolute path": {"final": NAME, "hidden": "/etc/passwd"},
    "of a hidden file of another epoch": {
        "final": NAME,
        "hidden": OutputId(LINEAGE, SINK, EpochId(Term(2), 8), SLOT).hidden(0, 1, "json"),
    },
    "of a marker": {"final": NAME, "hidden": OUTPUT.marker},
    "of nothing": {"final": NAME, "hidden": ""},
}


@pytest.mark.parametrize("how", FILES)
def test_a_file_that_is_not_of_the_output_is_refused(tmp_path: Path, how: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".bashrc").write_text("mine")
    (tmp_path / "secret").write_text("secret")
    sink = FileSink(str(tmp_path / "home" / "data" / "out"))
    (tmp_path / "home" / "data" / "out" / ".tidegate-staged").mkdir(parents=True)
    (tmp_path / "home" / "data" / "out" / ".tidegate-staged" / HIDDEN).write_text("evil")
    before = tree(tmp_path)
    with pytest.raises(UntrustedOutput):
        sink.create_committer(context()).commit([request([FILES[how]])])
    assert tree(tmp_path) == before


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_one_file_twice_is_refused(tmp_path: Path) -> None:
    files = [{"final": NAME, "hidden": OUTPUT.hidden(0, attempt, "json")} for attempt in (1, 2)]
    with pytest.raises(UntrustedOutput, match="one file twice"):
        FileSink(str(tmp_path)).create_committer(context()).commit([request(files)])


def test_a_forged_request_prevents_the_commit_of_earlier_ones(tmp_path: Path) -> None:
    """All are checked first: nothing of a snapshot that somebody forged becomes visible."""
    hidden = tmp_path / ".tidegate-staged"
    hidden.mkdir()
    (hidden / HIDDEN).write_text("rows")
    good, bad = request([{"final": NAME, "hidden": HIDDEN}]), request([FILES["above"]])
    with pytest.raises(UntrustedOutput):
        FileSink(str(tmp_path)).create_committer(context()).commit([good, bad])
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize("kind", [tg.CollectSink, tg.PrintSink, tg.DiscardSink])
@pytest.mark.parametrize("payload", [b"", b"rows", b"\x00" * 64])
def test_a_sink_in_memory_refuses_what_are_no_rows(kind: Any, payload: bytes) -> None:
    with pytest.raises(UntrustedOutput, match="cannot be read"):
        kind().create_committer(context()).commit([request(payload)])


TEXT = st.one_of(
    st.text(max_size=20),
    st.sampled_from([NAME, HIDDEN, "..", "day=1", "/", OUTPUT.stem, OUTPUT.marker, "../" * 3, f"day=1/{NAME}"]),
)


@given(parts=st.lists(TEXT, max_size=4), hidden=TEXT)
@example(parts=["day=..", "/", NAME], hidden=HIDDEN)
@example(parts=["day=1/", NAME, "\n"], hidden=HIDDEN)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_accepted_name_lies_below_the_sink_and_names_the_output(parts: list[str], hidden: str) -> None:
    """Whatever a payload says: if it is accepted, the file cannot be another one's."""
    final = "".join(parts)
    if OUTPUT.is_final(final):
        path = (Path("/base/out") / final).resolve()
        assert path.is_relative_to("/base/out")
        assert str(path) == f"/base/out/{final}"
        assert OutputId.in_name(final) == OUTPUT
    if OUTPUT.is_hidden(hidden):
        assert "/" not in hidden
        assert OutputId.in_name(hidden) == OUTPUT


@given(data=st.data(), payload=st.sampled_from(["file", "topic", "copy", "prepared", "rows"]))
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_bytes_changed_anywhere_are_refused_or_decode_to_the_same(data: st.DataObject, payload: str) -> None:
    """One byte of a true payload is replaced, removed or added. Nothing may be read or contacted before it is checked."""
    true, committer = {
        "file": ([{"final": NAME, "hidden": HIDDEN}], FileSink("/nonexistent/out").create_committer(context())),
        "topic": ({"topic": "orders", "at_ms": 0, "parts": [[staged(), 1, 1]]}, kafka()),
        "copy": ({"type": "copy", "columns": ["value"], "tokens": [staged()], "rows": 1}, postgres()),
        "prepared": ({"type": "prepared", "gid": f"{GID}1", "rows": 1}, postgres()),
        "rows": ({"tokens": [staged()], "rows": 1}, write_ahead()),
    }[payload]
    body = json.dumps(true).encode()
    at = data.draw(st.integers(0, len(body) - 1))
    kept = data.draw(st.integers(0, 1))
    changed = body[:at] + data.draw(st.binary(max_size=2)) + body[at + kept :]
    made = request(changed)
    check: Callable[[Committable], Any] = {
        "file": lambda r: committer._waiting(r).files,  # type: ignore[attr-defined]
        "topic": lambda r: committer._payload_of(r),  # type: ignore[attr-defined]
        "copy": lambda r: postgres_payload(r),
        "prepared": lambda r: postgres_payload(r),
        "rows": lambda r: rows_payload(r),
    }[payload]
    try:
        found = check(made)
    except UntrustedOutput:
        return
    for name in names_in(msgspec.to_builtins(found)):
        # The columns of rows that wait are those of the job that staged them, whatever they are now.
        assert name in (NAME, HIDDEN, "orders", "copy", "prepared") or is_ours(name) or payload == "copy", name


def postgres_payload(made: Committable) -> Any:
    from tidegate.connectors.postgres.payload import checked

    return checked(made, context())


def rows_payload(made: Committable) -> Any:
    from tidegate.connectors.staged_rows import read_batches

    taken: list[str] = []

    def read(token: str) -> bytes:
        taken.append(token)
        return b""

    with pytest.raises(Exception):  # noqa: B017 no rows were read, so they cannot be decoded
        list(read_batches(made, CommitterContext(RECORDS, read, StagedReader(None, LAYOUT, SINK).check)))
    if not taken:
        raise UntrustedOutput(SINK, SLOT, EPOCH, "was refused")
    return taken


def is_ours(name: str) -> bool:
    """A name that differs from the true one may still be one of this output: another attempt, index or column."""
    rows = name.startswith(("staged orders/taskowned/2/7/out/", "inline "))
    return rows or name.startswith(GID) or OUTPUT.is_final(name) or OUTPUT.is_hidden(name)


def names_in(tree: Any) -> list[str]:
    match tree:
        case str():
            return [tree]
        case list() | tuple():
            return [name for each in tree for name in names_in(each)]
        case dict():
            return [name for each in tree.values() for name in names_in(each)]
    return []
