"""Rejects metadata that tidegate never writes. Every reader gets metadata through `decode`, and `decode` calls these checks.

Anyone can write a file with a correct checksum. So everything that is later used as a name, a path, a size or a count
is checked once, before anything acts on it: a name stays inside its folder, a file never chooses code, and nothing is
so large that processing it would take hours or all memory. Everything that a job can write passes: the limits are those
of the storage port and of `check_name`, or far beyond what any job has.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.checkpoint.metadata.errors import UntrustedSnapshot
from tidegate.checkpoint.metadata.files import FileList, Packed, unpack
from tidegate.checkpoint.metadata.model import (
    CheckpointMetadata,
    CommittedMark,
    OperatorInfo,
    StateInfo,
    TaskState,
)
from tidegate.checkpoint.metadata.stored_list import StoredFileList
from tidegate.checkpoint.metadata.stored_output import StoredOutput
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, ordinal
from tidegate.state.backends import BUILT_IN, is_known
from tidegate.state.disk.manifest_file import MANIFEST_NAME
from tidegate.state.keys.key_groups import MAX_PARALLELISM_LIMIT
from tidegate.state.version import VersionId
from tidegate.storage.port import encode_segment

CANONICAL = "canonical"
"""Replaces the backend name: the state is in tables that any backend can restore."""

_SAVEPOINT_FORMATS = (None, "CANONICAL", "NATIVE")
_MAX_NUMBER = (1 << 63) - 1
_MAX_CLAIMS = 1 << 30
"""Half of what fits into a term (`core.ids`): as many claims may follow."""
_MAX_STATE_ID = (1 << 16) - 1
_MAX_LEVEL = 10_000
_MAX_NAME_CHARS = 1_000
_MAX_TEXT_CHARS = 64 << 20
"""For the position of a source, and for a file of the query, which have a line for each split or file."""
_MAX_DEPTH = 64
_MAX_NODES = 100_000
"""For the description of a type."""
_MAX_PARTS = 1_000_000
_PARTS_FOR_EACH_FILE = 100
"""For all files together: as many as 8 TB need, and 800 MB more for each file. Deleting a snapshot lists them all."""

_MAX_PARTS_OF_FILE = 100_000
"""Their names have five digits."""
_MAX_PART_BYTES = 256 << 20
"""A part is held in memory."""

_MAX_LIST_BYTES = 1 << 30
"""A list is held in memory."""

_PLAIN = r"[A-Za-z0-9_=@+-][A-Za-z0-9._=@+-]{0,199}"
_SEGMENT = re.compile(_PLAIN)
# No backtracking, which would need memory for each name.
_NAMES = re.compile(rf"(?>{_PLAIN}\n)*+")
_PATHS = re.compile(rf"(?>{_PLAIN}(?>/{_PLAIN})*+\n)*+")
# Any algorithm of this form: a later version may use another one, and `storage` refuses those that it does not know.
_ALGORITHM = re.compile(r"[a-z0-9]{1,20}:")
_DIGESTS = re.compile(r"(?>[0-9a-f]{0,128}\n)*+")


def check(metadata: CheckpointMetadata) -> None:
    """Raise UntrustedSnapshot unless using the metadata touches only the snapshot's own files."""
    _check_head(metadata)
    for operator in metadata.operators:
        check_operator(operator)
    for number in metadata.state_numbers:
        _check_name("a uid", number.uid)
        _check_length("the name of a state", number.name, _MAX_NAME_CHARS)
        _check_number("the id of a state", number.id, _MAX_STATE_ID)
    for task in metadata.tasks:
        _check_task(task, metadata.max_parallelism)
    for position in metadata.positions:
        _check_name("a source", position.uid)
        for line in position.lines:
            _check_length("the position of a source", line, _MAX_TEXT_CHARS)
    for file in metadata.query:
        _check_query_file(file.name)
        _check_length("a file of the query", file.text, _MAX_TEXT_CHARS)
    for split in metadata.splits:
        _check_name("a source", split.source)
        _check_length("a split", split.split, _MAX_TEXT_CHARS)
        _check_number("the time of a split", split.event_time_ms, _MAX_NUMBER, -_MAX_NUMBER)
    for committable in metadata.committables:
        check_committable(committable, metadata.epoch)
    for stored in metadata.stored_output:
        _check_stored_output(stored)
    for mark in metadata.committed:
        _check_output(mark)


def check_path(path: str) -> None:
    """Check a storage name: relative, and inside the folder that it is relative to."""
    if len(path) > _MAX_NAME_CHARS or not all(_SEGMENT.fullmatch(part) for part in path.split("/")):
        raise UntrustedSnapshot(f"It names the stored file {_shown(path)}, which is not inside the snapshot")


def _check_head(m: CheckpointMetadata) -> None:
    _check_name("the job", m.job)
    _check_name("the lineage", m.lineage)
    for version in (m.tidegate_version, m.spark_version):
        _check_length("a version", version, _MAX_NAME_CHARS)
    _check_epoch(m.epoch)
    _check_number("the id of a checkpoint", m.checkpoint_id, _MAX_NUMBER)
    _check_term(m.term)
    for time_ms in (m.triggered_ms, m.completed_ms, m.clock_ms, m.watermark_ms or 0):
        _check_number("a time", time_ms, _MAX_NUMBER, -_MAX_NUMBER)
    if not 1 <= m.parallelism <= m.max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise UntrustedSnapshot(f"No job has the parallelism {m.parallelism} of {m.max_parallelism}")
    if m.savepoint_format not in _SAVEPOINT_FORMATS:
        raise UntrustedSnapshot(f"No savepoint has the format {_shown(m.savepoint_format)}")


def check_operator(operator: OperatorInfo) -> None:
    _check_name("a uid", operator.uid)
    # Only displayed, unlike the backend of a task.
    _check_length("a backend", operator.backend, _MAX_NAME_CHARS)
    _check_characters("a backend", operator.backend)
    _check_number("a level", operator.level, _MAX_LEVEL)
    _check_number("the parallelism of an operator", operator.parallelism, MAX_PARALLELISM_LIMIT)
    _check_tree(operator.key)
    for state in operator.states:
        _check_state(state)


def _check_state(state: StateInfo) -> None:
    for name in (state.name, *state.renamed_from):
        _check_length("the name of a state", name, _MAX_NAME_CHARS)
    _check_length("a kind of state", state.kind, _MAX_NAME_CHARS)
    _check_number("the id of a state", state.id, _MAX_STATE_ID)
    _check_number("a time to live", state.ttl_ms or 0, _MAX_NUMBER)
    for tree in (state.value, state.map_key, state.namespace):
        _check_tree(tree)


def _check_task(task: TaskState, max_parallelism: int) -> None:
    _check_backend(task.backend)
    _check_number("a level", task.task.level, _MAX_LEVEL)
    _check_number("a slot", task.task.slot, MAX_PARALLELISM_LIMIT - 1)
    _check_epoch(task.version.epoch)
    _check_number("an attempt", task.version.attempt, _MAX_NUMBER)
    first, last = task.key_groups
    if not 0 <= first <= last < max_parallelism:
        raise UntrustedSnapshot(f"{task.task} holds the key groups {first} to {last} of {max_parallelism}")
    names: set[str] = set()
    for inlined in task.inline:
        if inlined.name == MANIFEST_NAME or inlined.name in names or not _SEGMENT.fullmatch(inlined.name):
            raise UntrustedSnapshot(f"{task.task} names a file {_shown(inlined.name)}, or one file twice")
        names.add(inlined.name)
        _check_epoch(inlined.origin.epoch)
    if isinstance(task.files, StoredFileList):
        _check_reference(task.files)
    else:
        check_distinct(task, task.files)
    for element in task.elements:
        _check_number("the id of a state", element.state, _MAX_STATE_ID)
        _check_number("a count", element.count, _MAX_NUMBER)


def check_distinct(task: TaskState, files: FileList) -> None:
    """Check that no file of a task is in its list and in the metadata, too. For a stored list: once it is loaded."""
    # Usually nothing is inlined beside a long list, and the list need not be walked.
    if task.inline and not {inlined.name for inlined in task.inline}.isdisjoint(file.name for file in files):
        raise UntrustedSnapshot(f"{task.task} names one file twice")


def _check_reference(files: StoredFileList) -> None:
    """Check what is used before the list is loaded. `FileChecks` checks the list itself."""
    for path in files.paths:
        check_path(path)
    _check_number("the bytes of a file list", files.stored_bytes, _MAX_LIST_BYTES, 1)
    # A list cannot have more files than bytes. A delta may be short and stand for many.
    _check_number("the files of a task", files.count, files.stored_bytes if files.base is None else _MAX_LIST_BYTES)
    _check_number("the bytes of a task", files.size_bytes, _MAX_NUMBER)
    _check_checksum("a file list", files.checksum)
    id, uploaded_bytes = files.since
    _check_number("the id of a checkpoint", id, _MAX_NUMBER)
    _check_number("the bytes of a checkpoint", uploaded_bytes, files.size_bytes)


def _check_checksum(what: str, checksum: str) -> None:
    algorithm, colon, digest = checksum.partition(":")
    if not _ALGORITHM.fullmatch(algorithm + colon) or not _DIGESTS.fullmatch(f"{digest}\n"):
        raise UntrustedSnapshot(f"The checksum of {what} is not one")


def _check_output(output: Committable | CommittedMark) -> None:
    _check_name("a lineage", output.lineage)
    _check_name("a sink", output.sink)
    slot = output.slot if isinstance(output, Committable) else output.partition
    _check_number("a partition", slot, _MAX_NUMBER)
    _check_epoch(output.epoch)


def check_committable(committable: Committable, last: EpochId) -> None:
    """Check that output belongs to an epoch of this history, of which `last` is the snapshot's own, and that its rows lie where
    the job stages them. The sink checks what the payload says."""
    _check_output(committable)
    _check_number("a slot", committable.slot, MAX_PARALLELISM_LIMIT - 1)
    if committable.epoch > last:
        # The marker in the target would cover everything that the job commits later.
        raise UntrustedSnapshot(f"It carries output of epoch {committable.epoch}, after its own epoch {last}")
    # The folder of a sink contains only rows of that sink, in the job's own storage.
    folder = f"taskowned/{committable.epoch.term}/{committable.epoch.number}/{encode_segment(committable.sink)}/"
    for path in committable.staged:
        check_path(path)
        if not path.partition("/")[2].startswith(folder):
            raise UntrustedSnapshot(f"It names the staged rows {_shown(path)}, which are not of that output")


def _check_stored_output(stored: StoredOutput) -> None:
    """Check what is used before the object is read. `check_committable` checks each of its committables."""
    check_path(stored.path)
    _check_number("the bytes of waiting output", stored.size_bytes, _MAX_LIST_BYTES, 1)
    _check_number("the committables of an object", stored.count, stored.size_bytes, 1)
    _check_checksum("waiting output", stored.checksum)
    bits = int.from_bytes(stored.waiting, "little")
    if stored.waiting and (len(stored.waiting) != -(-stored.count // 8) or not 0 < bits.bit_length() <= stored.count):
        raise UntrustedSnapshot(f"It carries output of {_shown(stored.path)} that is not in there")


def _check_query_file(name: str) -> None:
    """Check the name of a query file: `batch`, or `sources/<uid>/<name>`, which becomes a file of that name."""
    parts = name.split("/")
    if len(name) > _MAX_NAME_CHARS or any(part in ("", ".", "..") or "\\" in part for part in parts):
        raise UntrustedSnapshot(f"It names the file {_shown(name)} of the query")
    if parts[0] == "sources" and (len(parts) != 3 or not _SEGMENT.fullmatch(parts[2])):
        raise UntrustedSnapshot(f"It names the file {_shown(name)} of the query")
    _check_characters("a file of the query", name)


def _check_backend(name: str) -> None:
    if name != CANONICAL and not is_known(name):
        raise UntrustedSnapshot(
            f"It was written by the backend {_shown(name)}, and a name in a file must not decide what code runs. A backend of "
            f"your own is one that the job names in state.backend.type; tidegate's are {', '.join(sorted(BUILT_IN))}"
        )


def _check_name(what: str, name: str) -> None:
    if not name:
        raise UntrustedSnapshot(f"The name of {what} is empty")
    _check_length(what, name, _MAX_NAME_CHARS)
    _check_characters(what, name)


def _check_characters(what: str, text: str) -> None:
    """Reject control characters, which a terminal would interpret."""
    if not text.isprintable() and any(unicodedata.category(c) in ("Cc", "Cs") for c in text):
        raise UntrustedSnapshot(f"The name of {what} has control characters: {_shown(text)}")


def _check_length(what: str, text: str, most: int) -> None:
    if len(text) > most:
        raise UntrustedSnapshot(f"The text of {what} has {len(text)} characters, and there are never more than {most}")


def _check_number(what: str, value: int, most: int, least: int = 0) -> None:
    if not least <= value <= most:
        raise UntrustedSnapshot(f"The number of {what} is {_shown(value)}, which none has")


def _check_term(term: int) -> None:
    """Check a term. The claim of a job that starts from the snapshot counts on from it, for good: targets store 63 bits."""
    _check_number("a term", term, _MAX_NUMBER)
    _check_number("the number of a claim", ordinal(term), _MAX_CLAIMS)


def _check_epoch(epoch: EpochId) -> None:
    _check_term(epoch.term)
    _check_number("an epoch", epoch.number, _MAX_NUMBER)


def _check_tree(tree: Mapping[str, Any] | None) -> None:
    """Check the description of a type: neither deep nor large, with short strings."""
    nodes = 0
    here: list[Any] = [tree]
    # Level by level instead of recursively: a forged tree could be deeper than Python's stack.
    for _ in range(_MAX_DEPTH):
        if not here:
            return
        below: list[Any] = []
        for node in here:
            nodes += 1
            if isinstance(node, str):
                _check_length("the description of a type", node, _MAX_NAME_CHARS)
            below += _children(node)
            if nodes + len(below) > _MAX_NODES:
                raise UntrustedSnapshot(f"The description of a type has more than {_MAX_NODES} parts")
        here = below
    raise UntrustedSnapshot(f"The description of a type is nested more than {_MAX_DEPTH} deep")


def _children(node: Any) -> Iterable[Any]:
    match node:
        case Mapping():
            return (*node.keys(), *node.values())
        case list() | tuple():
            return node
    return ()


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else repr(value[:80])
    return text[:120] + ("…" if len(str(value)) > 80 else "")


@dataclass(slots=True)
class FileChecks:
    """Reads the file lists of one snapshot, and counts the objects that they represent."""

    parts_left: int = _MAX_PARTS

    def read(self, raw: bytes, nested_names: bool = False) -> FileList:
        """Read a list in its stored form. Names must be plain; those of a source's files may contain folders.

        Raises UntrustedSnapshot, or `msgspec.ValidationError` if it is not a list.
        """
        packed = unpack(raw)
        names = [row.name for row in packed.rows]
        name_form = _PATHS if nested_names else _NAMES
        if not _all_match(name_form, names) or MANIFEST_NAME in names or len(set(names)) != len(names):
            wrong = next((n for n in names if not _all_match(name_form, [n])), MANIFEST_NAME)
            raise UntrustedSnapshot(f"It names a file {_shown(wrong)}, or one file twice")
        paths = [packed.dirs[row.directory] + row.leaf for row in packed.rows]
        if not _all_match(_PATHS, paths):
            for path in paths:
                check_path(path)
        for text in packed.algorithms:
            if not _ALGORITHM.fullmatch(text):
                raise UntrustedSnapshot(f"No checksum begins with {_shown(text)}")
        if not _all_match(_DIGESTS, [row.digest for row in packed.rows]):
            raise UntrustedSnapshot("The checksum of a file is not one")
        for text in packed.origins:
            _check_epoch(VersionId.parse(text).epoch)
        self._check_sizes(packed)
        return FileList.of_unpacked(raw, packed)

    def _check_sizes(self, packed: Packed) -> None:
        for part_bytes in packed.parts:
            _check_number("the bytes of a part", part_bytes, _MAX_PART_BYTES, 1)
        brought = dict.fromkeys((id for id, _ in packed.since), 0)
        if len(brought) != len(packed.since):
            raise UntrustedSnapshot("It names a checkpoint twice that brought files")
        for row in packed.rows:
            parts = -(-row.size // packed.parts[row.part])
            if row.size < 0 or parts > _MAX_PARTS_OF_FILE:
                raise UntrustedSnapshot(f"The file {_shown(row.name)} is said to have {_shown(row.size)} bytes")
            # Summed over all lists of the snapshot: many files with many parts each would be as costly as one.
            self.parts_left += _PARTS_FOR_EACH_FILE - parts
            brought[packed.since[row.since][0]] += row.size
        if self.parts_left < 0:
            raise UntrustedSnapshot("Its files are said to be so large that they would have millions of parts")
        for id, size in packed.since:
            _check_number("the id of a checkpoint", id, _MAX_NUMBER)
            if brought[id] != size:
                raise UntrustedSnapshot("The sizes of its files do not add up")
        if packed.bytes != sum(brought.values()):
            raise UntrustedSnapshot("The sizes of its files do not add up")


def _all_match(form: re.Pattern[str], texts: Sequence[str]) -> bool:
    """Whether all texts match the pattern, in one call, since there are millions of them."""
    # A name with a line break would look like two names: the number of breaks must be that of the names.
    joined = "".join(f"{text}\n" for text in texts)
    short = max(map(len, texts), default=0) <= _MAX_NAME_CHARS and joined.count("\n") == len(texts)
    return short and form.fullmatch(joined) is not None
