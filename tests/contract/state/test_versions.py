"""Versions: immutable, complete or absent, built side by side, opened anywhere, damaged ones refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.contract.state.versions import (
    EVERYTHING,
    KEY_GROUPS,
    NAMES,
    build,
    contents,
    contents_by_name,
    forget,
    in_fresh_process,
    v,
)
from tidegate.core.errors import CorruptState, StateError
from tidegate.core.ids import Term
from tidegate.state.backends import backend_named
from tidegate.state.disk.version_directory import version_path
from tidegate.state.port import StateBackend, VersionMissing


@pytest.mark.feature("C25", "F1")
def test_a_version_never_changes(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1"})
    before = {path.name: path.read_bytes() for path in version_path(task, v(1)).iterdir()}
    for number in range(2, 25):
        build(backend, task, v(number - 1), v(number), {b"a": b"%d" % number})
    assert {path.name: path.read_bytes() for path in version_path(task, v(1)).iterdir()} == before
    assert contents(backend, task, v(1)) == {b"a": b"1"}
    assert contents(backend, task, v(24)) == {b"a": b"24"}


@pytest.mark.feature("C25")
def test_abandon_leaves_nothing(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1"})
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    store.write([(b"a", b"2")])
    store.abandon()
    store.abandon()
    assert [path.name for path in (task / "1").iterdir()] == ["v1-1"]
    with pytest.raises(VersionMissing):
        backend.manifest(task, v(2))
    assert contents(backend, task, v(1)) == {b"a": b"1"}


@pytest.mark.feature("C25")
def test_two_attempts_from_one_base_at_once(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1", b"b": b"1"})
    first = backend.begin(task, v(1), v(2, attempt=7), KEY_GROUPS)
    second = backend.begin(task, v(1), v(2, attempt=8), KEY_GROUPS)
    first.write([(b"a", b"first")])
    second.write([(b"a", b"second")], deletes=[b"b"])
    assert (first.get(b"b"), second.get(b"b")) == (b"1", None)
    second.seal()
    first.seal()
    assert contents(backend, task, v(2, attempt=7)) == {b"a": b"first", b"b": b"1"}
    assert contents(backend, task, v(2, attempt=8)) == {b"a": b"second"}


@pytest.mark.feature("C25")
def test_a_failed_attempt_can_be_repeated_in_the_same_process(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1"})
    failed = backend.begin(task, v(1), v(2, attempt=1), KEY_GROUPS)
    failed.write([(b"a", b"wrong"), (b"b", b"wrong")])
    failed.abandon()
    again = backend.begin(task, v(1), v(2, attempt=2), KEY_GROUPS)
    assert dict(again.scan(*EVERYTHING)) == {b"a": b"1"}
    again.write([(b"a", b"right")])
    again.seal()
    assert contents(backend, task, v(2, attempt=2)) == {b"a": b"right"}


@pytest.mark.feature("C25", "H4")
def test_a_discarded_epoch_is_repeated_from_the_one_before(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1"})
    build(backend, task, v(1), v(2, attempt=1), {b"a": b"discarded", b"b": b"discarded"})
    build(backend, task, v(1), v(2, attempt=2), {b"c": b"2"})
    assert contents(backend, task, v(2, attempt=2)) == {b"a": b"1", b"c": b"2"}


@pytest.mark.feature("F27")
def test_an_attempt_that_wrote_nothing_links_its_base(backend: StateBackend, task: Path) -> None:
    first = build(backend, task, None, v(1), {b"a": b"1"})
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    store.get(b"a")
    second = store.seal()
    assert second.files == first.files
    for file in second.files:
        assert os.path.samefile(version_path(task, v(1)) / file.name, version_path(task, v(2)) / file.name)
    build(backend, task, v(2), v(3), {b"b": b"3"})
    assert contents(backend, task, v(3)) == {b"a": b"1", b"b": b"3"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.feature("F10")
def test_another_process_opens_it(name: str, task: Path) -> None:
    backend = backend_named(name)
    build(backend, task, None, v(1), {b"a": b"1", b"b": b"1"})
    build(backend, task, v(1), v(2), {b"a": b"2"}, deletes=[b"b"])
    assert in_fresh_process(contents_by_name, name, task, v(2)) == {b"a": b"2"}
    assert in_fresh_process(contents_by_name, name, task, v(1)) == {b"a": b"1", b"b": b"1"}


def test_a_version_continues_in_a_new_term(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(9), {b"a": b"1"})
    build(backend, task, v(9), v(1, attempt=3, term=2), {b"b": b"2"})
    assert contents(backend, task, v(1, attempt=3, term=2)) == {b"a": b"1", b"b": b"2"}


def test_a_missing_version_is_reported_at_the_start(backend: StateBackend, task: Path) -> None:
    with pytest.raises(VersionMissing) as caught:
        backend.begin(task, v(4), v(5), KEY_GROUPS)
    assert caught.value.version == v(4)
    assert not task.exists()


def test_a_base_that_vanishes_after_begin_is_missing_too(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1"})
    forget()
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    backend.tidy(task, Term(1), [])
    with pytest.raises(VersionMissing):
        store.get(b"a")
    store.abandon()


def test_every_missing_or_short_file_is_named(backend: StateBackend, task: Path) -> None:
    manifest = build(backend, task, None, v(1), {b"a": b"1"})
    for file in manifest.files:
        path = version_path(task, v(1)) / file.name
        body = path.read_bytes()
        path.write_bytes(body[:-1])
        with pytest.raises(CorruptState, match=file.name):
            backend.begin(task, v(1), v(2), KEY_GROUPS)
        path.unlink()
        with pytest.raises(CorruptState, match=f"{file.name} is missing"):
            backend.manifest(task, v(1))
        path.write_bytes(body)
    assert contents(backend, task, v(1)) == {b"a": b"1"}


def test_a_damaged_manifest_is_named(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1"})
    path = version_path(task, v(1)) / "manifest.json"
    body = json.loads(path.read_text())
    for damaged in ("", "{", json.dumps({**body, "format": 99}), json.dumps({**body, "version": "1/v7-7"})):
        path.write_text(damaged)
        with pytest.raises(CorruptState, match=r"manifest\.json|holds version 1/v7-7"):
            backend.manifest(task, v(1))
    path.unlink()
    with pytest.raises(CorruptState, match=r"manifest\.json is missing"):
        backend.manifest(task, v(1))


def test_flipped_bits_in_entries_are_found_when_read(backend: StateBackend, task: Path) -> None:
    manifest = build(backend, task, None, v(1), {b"%05d" % n: b"value %d" % n for n in range(2000)})
    largest = max(manifest.files, key=lambda file: file.size_bytes)
    path = version_path(task, v(1)) / largest.name
    body = bytearray(path.read_bytes())
    for at in range(100, len(body) // 2, 97):
        body[at] ^= 0x40
    path.write_bytes(body)
    forget()
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    with pytest.raises(CorruptState, match=largest.name):
        list(store.scan(*EVERYTHING))
    with pytest.raises(StateError):
        store.seal()


def test_the_other_backend_is_refused(task: Path) -> None:
    build(backend_named("hashmap"), task, None, v(1), {b"a": b"1"})
    with pytest.raises(StateError, match=r"'hashmap'.*'rocksdb'.*canonical savepoint"):
        backend_named("rocksdb").begin(task, v(1), v(2), KEY_GROUPS)


@pytest.mark.feature("F27")
def test_files_keep_name_and_origin_for_as_long_as_they_are_linked(backend: StateBackend, task: Path) -> None:
    """(origin, name) is one content for ever; unchanged files are the same file on disk, under the same name."""
    seen: dict[tuple[object, str], bytes] = {}
    manifest = build(backend, task, None, v(1), {b"%05d" % n: b"x" * 50 for n in range(5000)})
    rewritten = 0
    for number in range(2, 40):
        base, manifest = manifest, build(backend, task, manifest.version, v(number), {b"%05d" % number: b"y"})
        assert manifest.base == base.version
        linked = [file for file in manifest.files if file.origin != manifest.version]
        rewritten += not linked
        for file in linked:
            assert file in base.files
            assert os.path.samefile(
                version_path(task, base.version) / file.name, version_path(task, manifest.version) / file.name
            )
        for file in manifest.files:
            body = (version_path(task, manifest.version) / file.name).read_bytes()
            assert len(body) == file.size_bytes
            assert seen.setdefault((file.origin, file.name), body) == body
    assert rewritten <= 5, "most versions of a state with small changes share their files"


@pytest.mark.feature("F34")
def test_the_number_of_files_stays_bounded(backend: StateBackend, task: Path) -> None:
    manifest = build(backend, task, None, v(1), {b"%05d" % n: b"x" * 50 for n in range(5000)})
    most = 0
    for number in range(2, 80):
        manifest = build(backend, task, manifest.version, v(number), {b"%05d" % (number * 31): b"y" * 50})
        backend.tidy(task, Term(1), [manifest.version])
        most = max(most, len(manifest.files))
    assert most <= 20
    assert len({file.origin for file in manifest.files}) <= 20


def test_a_manifest_describes_the_whole_version(backend: StateBackend, task: Path) -> None:
    store = backend.begin(task, None, v(1), (32, 63))
    store.write([(b"a", b"1")])
    manifest = store.seal()
    body = json.loads((version_path(task, v(1)) / "manifest.json").read_text())
    assert body["format"] == 2
    assert (body["backend"], body["version"], body["base"]) == (backend.name, "1/v1-1", None)
    assert body["key_groups"] == [32, 63]
    assert [file["name"] for file in body["files"]] == [file.name for file in manifest.files]
    assert backend.manifest(task, v(1)) == manifest
    on_disk = {path.name for path in version_path(task, v(1)).iterdir()}
    assert on_disk == {file.name for file in manifest.files} | {"manifest.json"}
