"""A snapshot that a stranger wrote, with a right checksum: whoever reads it, it is refused, quickly, before anything is done."""

from __future__ import annotations

import hashlib
import json
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.control.cli.test_cli import run as tidegate
from tests.unit.savepoint.checkpoint_kit import History, Operator, value
from tidegate.checkpoint.completed.retained import resolve
from tidegate.checkpoint.files.contents import reader
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    FileList,
    InlineFile,
    MetadataError,
    QueryFile,
    StoredOutput,
    decode,
    encode,
)
from tidegate.core.errors import TidegateError
from tidegate.core.ids import EpochId, Term
from tidegate.savepoint.snapshot import StoredSnapshot, UntrustedSnapshot
from tidegate.savepoint.verify import verify
from tidegate.storage import open_storage
from tidegate.storage.routed import RoutedStorage

TOTALS = Operator("totals", ("string",), (value("total", float),), {"total": {"ann": 1.0, "bob": 2.0}})


@pytest.fixture
def metadata(tmp_path: Path) -> CheckpointMetadata:
    history = History(tmp_path)
    history.checkpoint(1, TOTALS)
    return decode(history.storage.get("orders/chk-1/_metadata"))


def with_task(metadata: CheckpointMetadata, **changes: Any) -> CheckpointMetadata:
    first, *others = metadata.tasks
    return replace(metadata, tasks=(replace(first, **changes), *others))


def with_file(metadata: CheckpointMetadata, **changes: Any) -> CheckpointMetadata:
    first, *others = metadata.tasks[0].files
    files = FileList([msgspec.structs.replace(first, **changes), *others])
    return with_task(metadata, files=files)


def many_large_files(metadata: CheckpointMetadata) -> CheckpointMetadata:
    """Each of 700 GB, which one alone may have."""
    first = next(iter(metadata.tasks[0].files))
    files = [
        msgspec.structs.replace(first, name=f"{n}.sst", size_bytes=700 << 30, part_bytes=8 << 20) for n in range(20)
    ]
    return with_task(metadata, files=FileList(files))


def with_inline(metadata: CheckpointMetadata, name: str) -> CheckpointMetadata:
    return with_task(metadata, inline=(InlineFile(name, metadata.tasks[0].version, b"x"),))


def with_value(metadata: CheckpointMetadata, schema: Any) -> CheckpointMetadata:
    (operator,) = metadata.operators
    (state,) = operator.states
    return replace(metadata, operators=(replace(operator, states=(replace(state, value=schema),)),))


def nested(depth: int) -> dict[str, Any]:
    tree: dict[str, Any] = {"type": "int"}
    for _ in range(depth):
        tree = {"type": "list", "element": tree}
    return tree


def with_output(metadata: CheckpointMetadata, **changes: Any) -> CheckpointMetadata:
    stored = StoredOutput(path="chk-1/output-1-0", size_bytes=100, checksum="sha256:00", count=9)
    return replace(metadata, stored_output=(replace(stored, **changes),))


FORGED: dict[str, Callable[[CheckpointMetadata], CheckpointMetadata]] = {
    "inline file at an absolute path": lambda m: with_inline(m, "/tmp/outside"),
    "inline file above": lambda m: with_inline(m, "../../outside"),
    "inline file in place of the manifest": lambda m: with_inline(m, "manifest.json"),
    "file of an absolute name": lambda m: with_file(m, name="/tmp/outside"),
    "file above": lambda m: with_file(m, name=".."),
    "stored file above": lambda m: with_file(m, path="../other/chk-1/_metadata"),
    "stored file above, further on": lambda m: with_file(m, path="shared/../../other"),
    "stored file at an absolute path": lambda m: with_file(m, path="/etc/passwd"),
    "stored file elsewhere": lambda m: with_file(m, path="s3://bucket/x"),
    "stored file of two lines": lambda m: with_file(m, path="shared/a\n../b"),
    "waiting output above": lambda m: with_output(m, path="../other/chk-1/output-1-0"),
    "waiting output elsewhere": lambda m: with_output(m, path="s3://bucket/x"),
    "waiting output of 10^15 bytes": lambda m: with_output(m, size_bytes=10**15),
    "more waiting output than bytes": lambda m: with_output(m, count=101),
    "waiting output beyond the end of its object": lambda m: with_output(m, waiting=b"\x00\x02"),
    "waiting output with too many bits": lambda m: with_output(m, waiting=b"\x01" * 1_000),
    "none of the waiting output": lambda m: with_output(m, waiting=b"\x00\x00"),
    "backend to import": lambda m: with_task(m, backend="tests.evil.Backend"),
    "size of 10^15": lambda m: with_file(m, size_bytes=10**15),
    "many large files": many_large_files,
    "size below 0": lambda m: with_file(m, size_bytes=-1),
    "part of 10^15": lambda m: with_file(m, size_bytes=10**15, part_bytes=10**15),
    "key groups that are not there": lambda m: with_task(m, key_groups=(0, 10**9)),
    "parallelism of 10^12": lambda m: replace(m, parallelism=10**12, max_parallelism=10**12),
    "note of a source above": lambda m: replace(m, query=(QueryFile("sources/clicks/../../../outside", "x"),)),
    "note of a source without a name": lambda m: replace(m, query=(QueryFile("sources", "x"),)),
    "type nested 500 deep": lambda m: with_value(m, nested(500)),
    "name of 5 MB": lambda m: replace(m, job="x" * 5_000_000),
    "text of 5 MB in a type": lambda m: with_value(m, {"type": "x" * 5_000_000}),
    "version of 5 MB": lambda m: replace(m, spark_version="x" * 5_000_000),
    "name that speaks to the terminal": lambda m: replace(m, job="orders\x1b]0;owned\x07"),
    "no name": lambda m: replace(m, job=""),
    "term after which no claim has 63 bits": lambda m: replace(m, term=Term((1 << 32) - 1)),
    "epoch after which no claim has 63 bits": lambda m: replace(m, epoch=EpochId(Term((1 << 31) - 1 << 32), 1)),
}


@pytest.mark.parametrize("how", FORGED)
def test_forged_metadata_is_refused_by_every_reader(tmp_path: Path, metadata: CheckpointMetadata, how: str) -> None:
    """`decode` itself, a start from a path, `Savepoint.open`, and the reader that CLAIM deletes by."""
    data = encode(FORGED[how](metadata))
    storage = open_storage(tmp_path / "ckpt")
    storage.put("orders/chk-1/_metadata", data)
    begun = time.process_time()
    for read in (
        lambda: decode(data),
        lambda: resolve(RoutedStorage(storage), JobLayout("mine"), str(tmp_path / "ckpt" / "orders" / "chk-1")),
        lambda: StoredSnapshot.open(tmp_path / "ckpt" / "orders" / "chk-1"),
        lambda: reader(lambda committable: committable.staged)("orders/chk-1/_metadata", data),
    ):
        with pytest.raises(UntrustedSnapshot) as caught:
            read()
        assert len(str(caught.value)) < 1000
    assert time.process_time() - begun < 5


def resealed(body: str) -> bytes:
    digest = hashlib.sha256(f"1 0.1.0\n{body}".encode()).hexdigest()
    return f'{{"tidegate":"0.1.0","format":1,"checksum":"sha256:{digest}","checkpoint":{body}}}'.encode()


def body_of(metadata: CheckpointMetadata) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode(metadata))["checkpoint"]
    return found


@pytest.mark.parametrize("open_", ['{"a":', "["])
def test_endless_nesting_is_no_traceback(metadata: CheckpointMetadata, open_: str) -> None:
    body = json.dumps(body_of(metadata)).replace('{"type": "float"}', '{"type":' + open_ * 100_000, 1)
    with pytest.raises(MetadataError):
        decode(resealed(body))
    with pytest.raises(MetadataError):
        decode((open_ * 1_000_000).encode())


def test_a_long_kind_is_not_repeated_in_the_error(metadata: CheckpointMetadata) -> None:
    body = {**body_of(metadata), "kind": "x" * 10_000_000}
    with pytest.raises(MetadataError) as caught:
        decode(resealed(json.dumps(body)))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("field", ["bytes", "since"])
def test_sizes_that_do_not_add_up_are_refused(metadata: CheckpointMetadata, field: str) -> None:
    """They are shown as the size of the checkpoint."""
    body = body_of(metadata)
    files = body["tasks"][0]["files"]
    files[field] = 10**12 if field == "bytes" else [[files["since"][0][0], 10**12]]
    with pytest.raises(UntrustedSnapshot, match="add up"):
        decode(resealed(json.dumps(body)))


def test_a_refusal_needs_little_memory(metadata: CheckpointMetadata) -> None:
    data = encode(with_file(metadata, size_bytes=10**15))
    tracemalloc.start()
    with pytest.raises(UntrustedSnapshot):
        decode(data)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_metadata_of_many_gigabytes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "sp").mkdir()
    with (tmp_path / "sp" / "_metadata").open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(UntrustedSnapshot, match="never more than"):
        StoredSnapshot.open(tmp_path / "sp")


odd = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5), st.just([]), st.just({}), st.just([[]]), st.just("../x"), st.just({"type": {"type": []}}),
)  # fmt: skip


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, part in below for place in places(part, (*path, key)))]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_odd_value_anywhere_is_a_traceback(
    tmp_path: Path, metadata: CheckpointMetadata, data: st.DataObject
) -> None:
    body = body_of(metadata)
    *way, last = data.draw(st.sampled_from([place for place in places(body) if place]))
    part = body
    for key in way:
        part = part[key]
    part[last] = data.draw(odd)
    forged = tmp_path / "ckpt" / "orders" / "chk-1" / "_metadata"
    forged.unlink(missing_ok=True)
    forged.write_bytes(resealed(json.dumps(body)))
    try:
        snapshot = StoredSnapshot.open(forged.parent)
        list(verify(snapshot, checksums=False))
        for operator, state in snapshot.states():
            snapshot.layout(operator.uid, state.name)
    except TidegateError:
        pass
    shown = tidegate("checkpoints", "show", str(forged.parent))
    assert shown.exit_code in (0, 3), shown.exception
