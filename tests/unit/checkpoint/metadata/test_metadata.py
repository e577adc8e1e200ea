"""`_metadata`: what goes in comes out, the same thing has the same bytes, and nothing damaged is believed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import (
    MAX_INLINE_BYTES,
    CheckpointMetadata,
    CommittedMark,
    Distribution,
    ElementCount,
    FileList,
    InlineFile,
    MetadataDamaged,
    MetadataError,
    MetadataIncomplete,
    MetadataTooNew,
    OperatorInfo,
    QueryFile,
    SnapshotKind,
    SourcePosition,
    SplitTime,
    StateFile,
    StateInfo,
    StateNumber,
    TaskState,
    decode,
    encode,
)
from tidegate.connectors.sink import Committable
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid, term_of
from tidegate.state.version import VersionId


def version(number: int = 1, attempt: int = 1) -> VersionId:
    return VersionId(EpochId(Term(1), number), AttemptId(attempt))


def file(name: str, size: int = 10, since: int = 1, path: str = "") -> StateFile:
    return StateFile(name, path or f"shared/1/L1-S0/1/{name}", size, f"sha256:{size:064x}", version(), since)


def metadata(**changes: Any) -> CheckpointMetadata:
    base = CheckpointMetadata(
        job="orders",
        lineage=Lineage("a"),
        checkpoint_id=5,
        term=Term(1),
        epoch=EpochId(Term(1), 7),
        kind=SnapshotKind.CHECKPOINT,
        triggered_ms=1,
        completed_ms=2,
        tidegate_version="0.1.0",
        spark_version="4.3.0",
        max_parallelism=128,
        parallelism=1,
        clock_ms=3,
    )
    return dataclasses.replace(base, **changes)


def task(slot: int, *files: StateFile, inline: tuple[InlineFile, ...] = ()) -> TaskState:
    return TaskState(
        task=TaskId(1, Slot(slot)),
        key_groups=(slot, slot),
        backend="rocksdb",
        version=version(),
        files=FileList(files),
        inline=inline,
    )


# The model in all its shapes. Texts leave out lone surrogates, which no UTF-8 file can have.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
counts = st.integers(0, 2**53)
names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)
"""Of jobs, operators, states: whatever a person may type."""
ids = st.integers(0, 2**16 - 1)
plain_names = st.text("abXY09_=@+-", min_size=1, max_size=8)
"""Of files: what every store can hold."""
paths = st.lists(plain_names, min_size=1, max_size=4).map("/".join)
checksums = st.binary(max_size=8).map(lambda digest: f"sha256:{digest.hex()}")
backends = st.sampled_from(["hashmap", "rocksdb", "canonical"])
uids = names.map(Uid)
# As jobs count them, and as those of earlier versions did.
terms = st.integers(0, 99).map(Term) | st.builds(term_of, st.integers(2, 1 << 20), st.integers(0, (1 << 32) - 1))
epochs = st.builds(EpochId, terms, st.integers(0, 2**40))
versions = st.builds(VersionId, epochs, st.integers(0, 2**50).map(AttemptId))
schemas = st.recursive(
    texts.map(lambda text: {"type": text}), lambda inner: st.dictionaries(texts, inner, max_size=3), max_leaves=4
)
state_files = st.builds(
    StateFile, plain_names, paths, st.integers(0, 10**8), checksums, versions, counts, st.integers(1000, 2**28)
)
file_lists = st.lists(state_files, max_size=6, unique_by=lambda f: f.name).map(FileList)
states = st.builds(
    StateInfo,
    name=names,
    id=ids,
    kind=names,
    value=schemas,
    map_key=st.none() | schemas,
    namespace=st.none() | schemas,
    distribution=st.sampled_from(Distribution),
    ttl_ms=st.none() | counts,
)
tasks = st.builds(
    TaskState,
    task=st.builds(TaskId, st.integers(0, 3), st.integers(0, 9).map(Slot)),
    key_groups=st.lists(st.integers(0, 999), min_size=2, max_size=2).map(sorted).map(tuple),
    backend=backends,
    version=versions,
    files=file_lists,
    inline=st.lists(
        st.builds(InlineFile, plain_names.map("inline-{}".format), versions, st.binary(max_size=20)),
        max_size=2,
        unique_by=lambda f: f.name,
    ).map(tuple),
    elements=st.lists(st.builds(ElementCount, ids, counts), max_size=2).map(tuple),
)


def some(items: st.SearchStrategy[Any], key: Any) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=4, unique_by=key).map(tuple)


def with_rows(committable: Committable) -> Committable:
    """Some of which are staged in the job's storage."""
    rows = JobLayout("orders").staged(committable.epoch, committable.sink, AttemptId(1), "rows")
    return dataclasses.replace(committable, staged=(rows,) if committable.slot % 2 else ())


def after_its_output(model: CheckpointMetadata) -> CheckpointMetadata:
    """A checkpoint carries output of its own epoch and of earlier ones."""
    return dataclasses.replace(model, epoch=max([model.epoch, *(each.epoch for each in model.committables)]))


models = st.builds(
    CheckpointMetadata,
    job=names,
    lineage=names.map(Lineage),
    checkpoint_id=counts,
    term=terms,
    epoch=epochs,
    kind=st.sampled_from(SnapshotKind),
    triggered_ms=counts,
    completed_ms=counts,
    tidegate_version=names.filter(str.isprintable),
    spark_version=texts,
    max_parallelism=st.integers(1000, 2**15),
    parallelism=st.integers(1, 1000),
    clock_ms=counts,
    watermark_ms=st.none() | st.integers(-(2**53), 2**53),
    savepoint_format=st.sampled_from([None, "CANONICAL", "NATIVE"]),
    operators=some(
        st.builds(
            OperatorInfo,
            uids,
            st.integers(0, 99),
            st.integers(1, 2**15),
            backends,
            st.none() | schemas,
            st.lists(states, max_size=2).map(tuple),
        ),
        lambda o: o.uid,
    ),
    state_numbers=some(st.builds(StateNumber, uids, names, ids), lambda n: (n.uid, n.name)),
    tasks=some(tasks, lambda t: t.task),
    positions=some(
        st.builds(SourcePosition, uids, st.lists(texts, max_size=2).map(tuple), file_lists), lambda p: p.uid
    ),
    query=some(
        st.builds(QueryFile, paths.filter(lambda path: not path.startswith("sources/")), texts), lambda q: q.name
    ),
    splits=some(st.builds(SplitTime, uids, texts, counts), lambda s: (s.source, s.split)),
    committables=st.lists(
        st.builds(
            Committable,
            lineage=names.map(Lineage),
            sink=uids,
            slot=st.integers(0, 2**15 - 1),
            epoch=epochs,
            payload=st.binary(max_size=20),
        ).map(with_rows),
        max_size=4,
    ).map(tuple),
    committed=some(
        st.builds(CommittedMark, names.map(Lineage), uids, counts, epochs), lambda m: (m.lineage, m.sink, m.partition)
    ),
).map(after_its_output)


@pytest.mark.feature("C4", "E6")
@settings(max_examples=examples(40))
@given(models)
def test_what_is_encoded_is_decoded(model: CheckpointMetadata) -> None:
    assert decode(encode(model)) == model


@given(st.lists(state_files, max_size=6, unique_by=lambda f: f.name), st.randoms())
def test_a_file_list_is_its_files_in_any_order(files: list[StateFile], random: Any) -> None:
    shuffled = random.sample(files, len(files))
    packed = FileList(shuffled)
    assert list(packed) == sorted(files, key=lambda f: f.name)
    assert packed == FileList(files)
    assert (len(packed), packed.size_bytes) == (len(files), sum(f.size_bytes for f in files))
    assert pickle.loads(pickle.dumps(packed)) == packed


def test_order_of_arrival_does_not_show_in_the_bytes() -> None:
    early, late = task(0, file("a"), file("b")), task(1, file("c"))
    marks = (
        CommittedMark(Lineage("a"), Uid("s"), 0, EpochId(Term(1), 1)),
        CommittedMark(Lineage("a"), Uid("s"), 1, EpochId(Term(1), 1)),
    )
    one = encode(metadata(tasks=(early, late), committed=marks))
    assert one == encode(metadata(tasks=(late, early), committed=marks[::-1]))


def test_committables_are_kept_in_the_order_of_their_commit() -> None:
    def waiting(sink: str, partition: int, term: int, number: int) -> Committable:
        return Committable(
            lineage=Lineage("a"), sink=Uid(sink), slot=partition, epoch=EpochId(Term(term), number), payload=b""
        )

    late, early = waiting("out", 0, 2, 1), waiting("out", 0, 1, 9)
    other = waiting("out", 1, 1, 1)
    carried = metadata(epoch=EpochId(Term(2), 1), committables=(other, late, early))
    assert decode(encode(carried)).committables == (early, late, other)


@pytest.mark.feature("E6")
def test_any_json_tool_finds_positions_and_state_pointers() -> None:
    position = SourcePosition(Uid("clicks"), ('{"0":15}',))
    model = metadata(tasks=(task(0, file("000012.sst")),), positions=(position,))
    body = json.loads(encode(model))["checkpoint"]
    assert (body["job"], body["epoch"], body["positions"][0]["lines"]) == ("orders", "1.7", ['{"0":15}'])
    files = body["tasks"][0]["files"]
    name, size, _, directory, leaf, *_ = files["rows"][0]
    assert (name, size, files["dirs"][directory] + leaf) == ("000012.sst", 10, "shared/1/L1-S0/1/000012.sst")


@pytest.mark.feature("D20", "K4")
def test_full_size_counts_every_file_and_delta_only_new_ones() -> None:
    inlined = InlineFile("CURRENT", version(), b"12345")
    model = metadata(tasks=(task(0, file("old", 100, since=4), file("new", 7, since=5), inline=(inlined,)),))
    again = decode(encode(model))
    assert (again.full_size_bytes, again.delta_size_bytes) == (112, 12)
    assert [f.name for f in again.tasks[0].files if f.since == again.checkpoint_id] == ["new"]


@pytest.mark.feature("E6")
def test_objects_of_a_file_in_parts_are_all_named() -> None:
    whole, parted = file("a", 10), StateFile("b", "shared/b", 25, "sha256:0", version(), 1, part_bytes=10)
    assert list(FileList([whole, parted]).objects()) == [
        whole.path,
        "shared/b.00000",
        "shared/b.00001",
        "shared/b.00002",
    ]


def test_a_later_format_is_refused_with_the_name_of_its_writer() -> None:
    head = json.loads(encode(metadata()))
    head |= {"format": 5, "tidegate": "1.7.0", "checkpoint": {"unheard": "of"}}
    with pytest.raises(MetadataTooNew, match=r"tidegate 1\.7\.0 or later") as caught:
        decode(json.dumps(head).encode())
    assert (caught.value.format, caught.value.newest) == (5, 4)


@given(st.data())
def test_no_changed_byte_is_believed(data: st.DataObject) -> None:
    good = encode(metadata(tasks=(task(0, file("a")),)))
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MetadataError):
        decode(bytes(bad))


@given(st.integers(0, 400))
def test_a_file_cut_short_is_refused(length: int) -> None:
    with pytest.raises(MetadataDamaged, match="Fetch the file again"):
        decode(encode(metadata())[:length])


def resealed(body: dict[str, Any]) -> bytes:
    """A writer's fault: wrong content under a right checksum."""
    raw = json.dumps(body)
    digest = hashlib.sha256(f"1 0.1.0\n{raw}".encode()).hexdigest()
    return f'{{"tidegate":"0.1.0","format":1,"checksum":"sha256:{digest}","checkpoint":{raw}}}'.encode()


@pytest.mark.parametrize("gone", sorted(json.loads(encode(metadata()))["checkpoint"]))
def test_every_field_is_needed(gone: str) -> None:
    body = json.loads(encode(metadata()))["checkpoint"]
    assert decode(resealed(body)) == metadata()
    del body[gone]
    with pytest.raises(MetadataIncomplete, match=gone):
        decode(resealed(body))


def test_a_file_row_that_points_nowhere_is_refused() -> None:
    body = json.loads(encode(metadata(tasks=(task(0, file("a")),))))["checkpoint"]
    body["tasks"][0]["files"]["rows"][0][3] = 9
    with pytest.raises(MetadataIncomplete, match="points outside"):
        decode(resealed(body))


@pytest.mark.parametrize(
    "changes",
    [
        {"tasks": (task(0), task(0))},
        {"positions": (SourcePosition(Uid("s"), ()), SourcePosition(Uid("s"), ("x",)))},
        {"splits": (SplitTime(Uid("s"), "0", 1), SplitTime(Uid("s"), "0", 2))},
    ],
)
def test_nothing_is_named_twice(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="twice"):
        metadata(**changes)


@pytest.mark.feature("D29")
def test_no_more_than_a_megabyte_is_inlined() -> None:
    metadata(tasks=(task(0, inline=(InlineFile("f", version(), bytes(MAX_INLINE_BYTES)),)),))
    with pytest.raises(ValueError, match="Upload it instead"):
        metadata(tasks=(task(0, inline=(InlineFile("f", version(), bytes(MAX_INLINE_BYTES + 1)),)),))


def test_a_file_list_does_not_change() -> None:
    with pytest.raises(AttributeError, match="make a new one"):
        FileList([file("a")]).count = 2


_MILLION = """
import json, time
from tests.unit.checkpoint.metadata import test_metadata as t
names = [f"{i:06d}.sst" for i in range(100)]
one = t.FileList([t.file(n, 1 << 22, path=f"shared/3/L1-S1234/90210/chk-41-{i:032x}") for i, n in enumerate(names)])
own = lambda: t.FileList.of_packed(one.packed[:-1] + b"}")
made = lambda i: t.TaskState(
    task=t.TaskId(1, t.Slot(i)), key_groups=(i, i), backend="rocksdb", version=t.version(), files=own()
)
model = t.metadata(max_parallelism=10_000, tasks=tuple(made(i) for i in range(10_000)))
begin = time.process_time()
data = t.encode(model)
del model
read = t.decode(data)
spent = time.process_time() - begin
assert sum(len(task.files) for task in read.tasks) == 1_000_000
# The greatest size of this program. What the system counts for the process begins with the one that started it.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:")) / 1024
del read
begin = time.process_time()
json.dumps(json.loads(data))
print(spent, time.process_time() - begin, peak, len(data) / 1e6)
"""


@pytest.mark.large
def test_a_million_files_are_written_and_read_in_five_seconds_and_500_mb() -> None:
    """Five seconds on a machine whose standard library takes four for the same text once there and back: the bound is
    that share, for the machine may be slow and busy (5.9 of 7.4 s were measured; checking the names takes half of it)."""
    # Each task has bytes of its own, as in life; processor time, the best of three, since other tests may run beside this one.
    shares = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", _MILLION], capture_output=True, text=True, check=True)
        seconds, json_seconds, peak_mb, size_mb = map(float, done.stdout.split())
        assert size_mb > 130
        assert peak_mb < 500
        shares.append(seconds / json_seconds)
        if shares[-1] < 5 / 4:
            return
    assert min(shares) < 5 / 4
