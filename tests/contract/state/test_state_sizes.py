"""Every backend tells about how the bytes of a version are divided among its states."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from tests.contract.state.versions import forget, v
from tidegate.state.disk import state_sizes
from tidegate.state.disk.state_sizes import StateSizes
from tidegate.state.keys.entry_keys import entry_key, prefix_end, state_prefix
from tidegate.state.port import StateBackend
from tidegate.state.version import Manifest, VersionId

GROUPS = 8
SMALL, MIDDLE, LARGE = 1, 2, 7
"""State ids."""
ENTRIES = {SMALL: 30, MIDDLE: 90, LARGE: 400}
"""Entries of each state in each key group."""
VALUE_BYTES = 60


def entries(state: int, seed: int = 0, groups: int = GROUPS) -> Iterator[tuple[bytes, bytes]]:
    keys = random.Random(seed)
    for group in range(groups):
        for _ in range(ENTRIES[state]):
            yield (
                entry_key(state_prefix(group, state), struct.pack(">Q", keys.getrandbits(60))),
                os.urandom(VALUE_BYTES),
            )


def write(
    backend: StateBackend, directory: Path, number: int, states: Mapping[int, int], base: VersionId | None = None
) -> Manifest:
    """The next version, with the entries of these states, each of some seed."""
    store = backend.begin(directory, base, v(number), (0, GROUPS - 1))
    for state, seed in states.items():
        store.write(entries(state, seed))
    return store.seal()


def sizes(backend: StateBackend, directory: Path, manifest: Manifest) -> dict[int, int]:
    return dict(StateSizes().estimate(backend, directory, manifest))


def all_states(backend: StateBackend, directory: Path) -> Manifest:
    return write(backend, directory, 1, {SMALL: 1, MIDDLE: 2, LARGE: 3})


@pytest.mark.feature("K4")
def test_bytes_of_states_are_about_those_of_their_entries(backend: StateBackend, task: Path) -> None:
    found = sizes(backend, task, manifest := all_states(backend, task))
    whole = sum(ENTRIES.values())
    assert found.keys() == ENTRIES.keys()
    for state, number in ENTRIES.items():
        assert found[state] == pytest.approx(manifest.size_bytes * number / whole, rel=0.5)
    assert found[SMALL] < found[MIDDLE] < found[LARGE]


@pytest.mark.feature("K4")
def test_bytes_of_states_add_up_to_the_size_of_the_version(backend: StateBackend, task: Path) -> None:
    version: VersionId | None = None
    for number in range(1, 13):
        manifest = write(backend, task, number, {SMALL: number, MIDDLE: 2}, version)
        version = manifest.version
        found = sizes(backend, task, manifest)
        assert sum(found.values()) == pytest.approx(manifest.size_bytes, abs=len(found))


@pytest.mark.feature("K4")
def test_bytes_of_a_state_shrink_when_its_entries_are_deleted(backend: StateBackend, task: Path) -> None:
    manifest = all_states(backend, task)
    before = sizes(backend, task, manifest)
    store = backend.begin(task, manifest.version, v(2), (0, GROUPS - 1))
    for group in range(GROUPS):
        prefix = state_prefix(group, LARGE)
        store.delete_range(prefix, prefix_end(prefix))
    manifest = store.seal()
    for number in range(3, 23):  # Until files have been merged.
        manifest = write(backend, task, number, {SMALL: number, MIDDLE: number}, manifest.version)
    assert sizes(backend, task, manifest).get(LARGE, 0) < before[LARGE] / 2


@pytest.mark.feature("K4")
def test_bytes_of_states_are_known_in_a_process_that_did_not_write_them(backend: StateBackend, task: Path) -> None:
    """As after a restore, or in another worker: before anything else has read the files."""
    manifest = all_states(backend, task)
    before = sizes(backend, task, manifest)
    forget()
    assert sizes(backend, task, backend.manifest(task, manifest.version)) == before


@pytest.mark.feature("K4")
def test_half_of_the_key_groups_has_the_same_shares(backend: StateBackend, task: Path) -> None:
    manifest = all_states(backend, task)
    store = backend.begin(task, manifest.version, v(2), (0, GROUPS // 2 - 1))
    store.delete_range(state_prefix(GROUPS // 2, 0), b"\x80")
    found = sizes(backend, task, store.seal())
    assert found.keys() == ENTRIES.keys()
    assert found[SMALL] < found[MIDDLE] < found[LARGE]


@pytest.mark.feature("K4")
def test_a_file_is_read_once(backend: StateBackend, task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []
    measure = type(backend).bytes_by_state  # type: ignore[attr-defined]

    def noted(self: StateBackend, file: Path) -> Mapping[int, int]:
        looked.append(file)
        return measure(self, file)  # type: ignore[no-any-return]

    monkeypatch.setattr(type(backend), "bytes_by_state", noted)
    estimates = StateSizes(seconds=count(0, 10).__next__)
    first = all_states(backend, task)
    assert estimates.estimate(backend, task, first)
    second = write(backend, task, 2, {SMALL: 1}, first.version)
    assert estimates.estimate(backend, task, second)
    assert len(looked) == len({*first.files, *second.files})


@pytest.mark.feature("K4")
def test_the_sizes_of_a_task_are_estimated_at_intervals(backend: StateBackend, task: Path) -> None:
    now = [100.0]
    estimates = StateSizes(seconds=lambda: now[0])
    manifest = all_states(backend, task)
    assert estimates.estimate(backend, task, manifest)
    assert estimates.estimate(backend, task, manifest) == {}
    now[0] += state_sizes.SECONDS_BETWEEN
    assert estimates.estimate(backend, task, manifest)


@pytest.mark.feature("K4")
def test_a_sample_of_many_files_represents_all(
    backend: StateBackend, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version: VersionId | None = None
    for number in range(1, 6):
        manifest = write(backend, task, number, {SMALL: number, LARGE: number}, version)
        version = manifest.version
    monkeypatch.setattr(state_sizes, "MOST_FILES", 2)
    found = sizes(backend, task, manifest)
    assert sum(found.values()) == pytest.approx(manifest.size_bytes, abs=len(found))
    assert found[SMALL] < found[LARGE] / 4


@pytest.mark.feature("K4")
def test_damaged_and_missing_files_have_no_estimated_size(backend: StateBackend, task: Path, tmp_path: Path) -> None:
    manifest = all_states(backend, task)
    largest = max(manifest.files, key=lambda file: file.size_bytes)
    damaged = tmp_path / largest.name
    for content in (b"", b"x" * 10, os.urandom(5000)):
        damaged.write_bytes(content)
        assert dict(backend.bytes_by_state(damaged)) == {}  # type: ignore[attr-defined]
    damaged.unlink()
    assert dict(backend.bytes_by_state(damaged)) == {}  # type: ignore[attr-defined]
