"""Names and manifests of versions, as text and as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import CorruptState
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.state.disk import manifest_file
from tidegate.state.version import Manifest, VersionFile, VersionId

numbers = st.integers(0, 2**63)
versions = st.builds(
    lambda term, number, attempt: VersionId(EpochId(Term(term), number), AttemptId(attempt)), numbers, numbers, numbers
)
files = st.builds(VersionFile, st.text(min_size=1, max_size=20), numbers, versions)
manifests = st.builds(
    Manifest,
    backend=st.sampled_from(["rocksdb", "hashmap", "some.Other"]),
    version=versions,
    base=st.none() | versions,
    files=st.lists(files, max_size=5).map(tuple),
    key_groups=st.tuples(st.integers(0, 32767), st.integers(0, 32767)),
)


@given(versions)
def test_a_version_reads_back_from_its_text(version: VersionId) -> None:
    assert VersionId.parse(str(version)) == version


@pytest.mark.parametrize(
    "text", ["", "1", "1/v", "1/v2", "1/v2-", "v2-3", "1/v2-3/", "1/v2-3-4", " 1/v2-3", "1/v-2-3", "a/v2-3", "1/v2-٣"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a version"):
        VersionId.parse(text)


@given(manifests)
def test_a_manifest_reads_back(manifest: Manifest) -> None:
    assert manifest_file.decode(manifest_file.encode(manifest), "here") == manifest


@given(manifests, st.data())
def test_a_manifest_without_a_field_is_refused(manifest: Manifest, data: st.DataObject) -> None:
    body = json.loads(manifest_file.encode(manifest))
    del body[data.draw(st.sampled_from(sorted(body)))]
    with pytest.raises(CorruptState, match="here"):
        manifest_file.decode(json.dumps(body).encode(), "here")


def test_a_manifest_is_encoded_once_to_write_it_and_never_to_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes milliseconds for a thousand files, and every task does both in every epoch."""
    dumps, made = json.dumps, list[object]()

    def counted(body: object, **options: int) -> str:
        made.append(body)
        return dumps(body, **options)

    monkeypatch.setattr(json, "dumps", counted)
    version = VersionId(EpochId(Term(1), 2), AttemptId(3))
    file = VersionFile("000007.sst", 7, version, "crc32:00000000")
    manifest = Manifest(backend="rocksdb", version=version, base=None, files=(file,), key_groups=(0, 127))
    assert manifest_file.decode(manifest_file.encode(manifest), "here") == manifest
    assert len(made) == 1


def test_versions_are_ordered_by_epoch_then_attempt() -> None:
    texts = ["1/v2-10", "1/v10-1", "2/v1-3", "2/v1-20"]
    assert [str(version) for version in sorted(map(VersionId.parse, reversed(texts)))] == texts
