"""A list of files of which only the changes are stored: it is the same list, and its base stays as long as it is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint.files.file_lists import list_in, objects_of
from tidegate.checkpoint.files.list_delta import decode_delta, delta_from, encode_delta
from tidegate.checkpoint.files.list_registry import HeldList, ListId, ListRegistry
from tidegate.checkpoint.files.task_part import ListChange, list_digest
from tidegate.checkpoint.metadata import FileList, MetadataDamaged, StateFile, StoredFileList, UntrustedSnapshot
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.state.version import VersionId
from tidegate.storage.handle import checksum_of

ROOT = "job"


def file(name: int, content: int, since: int = 1) -> StateFile:
    """A file of this name. Other content has another path, as in storage."""
    return StateFile(
        name=f"{name:06d}.sst",
        path=f"shared/1/L1-S0/1/chk-{since}-{name}-{content}",
        size_bytes=10 + content,
        checksum=f"sha256:{content:064x}",
        origin=VersionId(EpochId(Term(1), since), AttemptId(1)),
        since=since,
    )


class Lists:
    """What a task stores from checkpoint to checkpoint, by the same rule as `VersionUpload`."""

    def __init__(self, deltas_per_list: float = 1.0) -> None:
        self.objects: dict[str, bytes] = {}
        self.written_bytes = 0
        self._deltas_per_list = deltas_per_list

    def store(
        self, files: FileList, before: tuple[StoredFileList, FileList] | None, checkpoint: int
    ) -> tuple[StoredFileList, ListChange]:
        data, base = files.packed, None
        if before is not None:
            reference, old = before
            known = self.objects[f"{ROOT}/{reference.path}"] if reference.base is not None else None
            delta = delta_from(reference, old, files, known)
            assert delta is not None
            encoded = encode_delta(delta)
            if delta.earlier_bytes + len(encoded) <= self._deltas_per_list * len(data):
                data, base = encoded, delta.base
        path = f"shared/1/L1-S0/1/chk-{checkpoint}-files-{checksum_of(data)[7:39]}"
        self.objects[f"{ROOT}/{path}"] = data
        self.written_bytes += len(data)
        stored = StoredFileList.to(files, path, data, base)
        names = objects_of(ROOT, files, stored)
        had = frozenset[str]() if before is None else objects_of(ROOT, before[1], before[0])
        new = tuple(sorted(names - had))
        if before is None:
            return stored, ListChange(None, new, ())
        return stored, ListChange(list_digest(before[0]), new, tuple(sorted(had - names)))

    def load(self, stored: StoredFileList) -> FileList:
        return list_in(stored, [self.objects[f"{ROOT}/{path}"] for path in stored.paths])


contents = st.dictionaries(st.integers(0, 12), st.integers(0, 3), min_size=1, max_size=12)


@given(st.lists(contents, min_size=1, max_size=12), st.sampled_from([0.0, 0.5, 1.0, 3.0, 100.0]))
def test_a_list_is_the_same_whether_it_or_its_changes_are_stored(versions, deltas_per_list):
    lists = Lists(deltas_per_list)
    before = None
    for number, content in enumerate(versions, 1):
        files = FileList(file(name, what) for name, what in content.items())
        stored, _ = lists.store(files, before, number)
        assert lists.load(stored) == files
        assert len(stored.paths) <= 2
        before = stored, files


@given(
    st.lists(st.tuples(contents, st.integers(1, 3)), min_size=1, max_size=15), st.sampled_from([0.0, 1.0, 3.0, 100.0])
)
def test_the_base_of_a_list_stays_as_long_as_a_retained_list_needs_it(steps, deltas_per_list):
    """The model: a retained checkpoint can load its list, and every object that is left belongs to a retained one."""
    lists, registry = Lists(deltas_per_list), ListRegistry()
    retained: dict[str, tuple[StoredFileList, FileList]] = {}
    before = None
    for number, (content, keep) in enumerate(steps, 1):
        files = FileList(file(name, number * 10 + what) for name, what in content.items())
        if before is not None:  # Files that exist already are reused, as tasks do.
            old = {each.name: each for each in before[1]}
            reused = [old[each.name] for each in files if each.name in old and each.size_bytes % 2]
            files = FileList([*reused, *(each for each in files if each.name not in {one.name for one in reused})])
        if before is not None and files == before[1]:
            stored, change = before[0], None
        else:
            stored, change = lists.store(files, before, number)
            lists.objects |= {name: b"" for name in change.new if name not in lists.objects}
        held = HeldList(ListId("L1-S0", list_digest(stored)), stored)
        registry.register(f"chk-{number}", [held], None if change is None else {"L1-S0": change})
        retained[f"chk-{number}"] = before = stored, files
        while len(retained) > keep:
            oldest = next(iter(retained))
            registry.drop(oldest)
            del retained[oldest]
        for id in registry.dropped():
            assert registry.to_load(id) is None
            for name in registry.remove(id):
                del lists.objects[name]
        needed = {name for stored, files in retained.values() for name in objects_of(ROOT, files, stored)}
        assert needed == lists.objects.keys()
        for stored, files in retained.values():
            assert lists.load(stored) == files


def test_what_is_stored_follows_what_changed_and_not_the_length_of_the_list():
    lists = Lists()
    files = {name: file(name, 1) for name in range(1_000)}
    before = None
    sizes = []
    for number in range(1, 101):
        for name in range(number * 10, number * 10 + 10):
            files[name % 1_000] = file(name % 1_000, number + 1, number)
        listed = FileList(files.values())
        written = lists.written_bytes
        before = lists.store(listed, before, number)[0], listed
        sizes.append(lists.written_bytes - written)
    whole = len(FileList(files.values()).packed)
    assert sizes[0] > 0.9 * whole
    assert sum(sizes[1:]) / 99 < 0.25 * whole
    assert max(sizes) <= 1.1 * whole


@pytest.mark.parametrize("which", ["own", "base"])
def test_a_damaged_list_or_base_is_an_error(which):
    lists = Lists(100.0)
    first = FileList([file(1, 1), file(2, 1)])
    second = FileList([file(1, 1), file(2, 2)])
    base, _ = lists.store(first, None, 1)
    stored, _ = lists.store(second, (base, first), 2)
    own, whole = (lists.objects[f"{ROOT}/{path}"] for path in stored.paths)
    other = FileList([file(3, 1)]).packed
    with pytest.raises(MetadataDamaged):
        list_in(stored, [own, other] if which == "base" else [whole, whole])
    with pytest.raises(UntrustedSnapshot):
        decode_delta(replace(stored, base="shared/elsewhere"), own)
    with pytest.raises(UntrustedSnapshot):
        list_in(replace(stored, count=3), [own, whole])
