"""What changed in a task's list of files since a list that is stored whole. Pure.

A list of a thousand files has 140 KB, and a checkpoint often changes a few of them. So the task stores only how its list
differs from one that is already in storage, its base: the files that were added, and the names that were removed. A delta
always refers to a whole list, never to another delta, so that a reader needs two objects, which it can get at once.

A delta grows from checkpoint to checkpoint. Once the deltas of one base would have more bytes than the list itself, the list is
stored whole, and is the next base. At n files of which c change, a checkpoint stores about √(2nc) of them instead of n.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tidegate.checkpoint.metadata.errors import MetadataDamaged, UntrustedSnapshot
from tidegate.checkpoint.metadata.files import FileList, StateFile
from tidegate.checkpoint.metadata.stored_list import StoredFileList
from tidegate.checkpoint.metadata.validation import FileChecks
from tidegate.storage.handle import checksum_of


class _Form(msgspec.Struct):
    """The stored form."""

    base: str
    base_bytes: int
    base_checksum: str
    list_checksum: str
    earlier_bytes: int
    removed: list[str]
    added: msgspec.Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDelta:
    """The difference of a list from its base."""

    base: str
    """The path of the base."""
    base_bytes: int
    base_checksum: str
    list_checksum: str
    """Of the list, in its packed form."""
    earlier_bytes: int
    """The size of the deltas from the same base that were stored before this one."""
    removed: frozenset[str]
    """Names of the base that the list does not have, or has with another content."""
    added: FileList

    def apply(self, base: bytes) -> FileList:
        """Return the list, given the bytes of its base. Raises `MetadataDamaged` and `UntrustedSnapshot`."""
        if len(base) != self.base_bytes or checksum_of(base) != self.base_checksum:
            raise MetadataDamaged(f"the file list {self.base} does not have the checksum it was written with")
        kept = [file for file in _read(self.base, base) if file.name not in self.removed]
        try:
            listed = FileList((*kept, *self.added))
        except ValueError as error:  # one name twice
            raise UntrustedSnapshot(str(error)) from error
        self.check_list(listed.packed)
        return listed

    def check_list(self, packed: bytes) -> None:
        """Raise `MetadataDamaged` unless this is the list, in its packed form."""
        if checksum_of(packed) != self.list_checksum:
            raise MetadataDamaged(f"the file list that differs from {self.base} is not the one that was stored")


def delta_from(reference: StoredFileList, old: FileList, new: FileList, data: bytes | None) -> ListDelta | None:
    """Return how `new` differs from the base of the list `old`, which `reference` refers to. `data` is the delta that the
    reference names; None if it names a whole list, which is the base itself. Return None if the delta is not known.
    """
    added: dict[str, StateFile] = {}
    if reference.base is None:
        base, base_bytes, base_checksum = reference.path, reference.stored_bytes, reference.checksum
        removed, earlier_bytes = frozenset[str](), 0
    elif data is None:
        return None
    else:
        before = decode_delta(reference, data)
        base, base_bytes, base_checksum = before.base, before.base_bytes, before.base_checksum
        # What the delta before removed from the base stays removed. What it added is written again, if the new list
        # still has it.
        removed, earlier_bytes = before.removed, before.earlier_bytes + len(data)
        added = {file.name: file for file in before.added}
    # What the old list has and its delta did not add is in the base.
    in_base = {file.name: file for file in old if file.name not in added}
    # Compared as a whole: a file of the same name that was stored again has another path, and counts as removed and
    # added.
    kept = {file.name for file in new if in_base.get(file.name) == file}
    return ListDelta(
        base=base,
        base_bytes=base_bytes,
        base_checksum=base_checksum,
        list_checksum=checksum_of(new.packed),
        earlier_bytes=earlier_bytes,
        removed=removed | (in_base.keys() - kept),
        added=FileList(file for file in new if file.name not in kept),
    )


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Form).decode


def encode_delta(delta: ListDelta) -> bytes:
    """Equal deltas have equal bytes."""
    return _encode(
        _Form(
            base=delta.base,
            base_bytes=delta.base_bytes,
            base_checksum=delta.base_checksum,
            list_checksum=delta.list_checksum,
            earlier_bytes=delta.earlier_bytes,
            removed=sorted(delta.removed),
            added=msgspec.Raw(delta.added.packed),
        )
    )


def decode_delta(reference: StoredFileList, data: bytes) -> ListDelta:
    """Return the delta in the object that `reference` refers to. Raises `MetadataDamaged` and `UntrustedSnapshot`."""
    reference.check_bytes(data)
    try:
        form = _decode(data)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise MetadataDamaged(f"{reference.path} is not a change of a file list ({error})") from error
    # The reference was used to load the base. Another one in the object would be applied to the wrong list.
    if form.base != reference.base:
        raise UntrustedSnapshot(f"The file list {reference.path} has another base than its checkpoint says")
    return ListDelta(
        base=form.base,
        base_bytes=form.base_bytes,
        base_checksum=form.base_checksum,
        list_checksum=form.list_checksum,
        earlier_bytes=form.earlier_bytes,
        removed=frozenset(form.removed),
        added=_read(reference.path, bytes(form.added)),
    )


def _read(path: str, packed: bytes) -> FileList:
    try:
        return FileChecks().read(packed)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise MetadataDamaged(f"{path} is not a file list ({error})") from error
