"""Small makers for tests of the log and its neighbours, and storage without surprises."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import count

from tidegate.checkpoint.completed.completed_store import CompletedCheckpointStore, Draft
from tidegate.checkpoint.effects import (
    Commit,
    CommitFailed,
    Create,
    Delete,
    Effect,
    Get,
    GetMany,
    ListFolders,
    ListNames,
    Put,
    Sleep,
    Steps,
)  # fmt: skip
from tidegate.checkpoint.files.contents import CheckpointContents
from tidegate.checkpoint.files.shared import InFlight
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.claim import claim
from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry, Signature
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.output.committables import commit
from tidegate.checkpoint.output.release_plan import commit_batches
from tidegate.connectors.sink import Committable
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid
from tidegate.storage.port import Lost, Nonce, Won

LAYOUT = JobLayout("job")
LINE = Lineage("line-1")
BODIES: dict[bytes, CheckpointContents] = {}
"""What the metadata that `draft` makes contains."""


def signatures(owner: str = "driver") -> Iterator[Signature]:
    for n in count(1):
        yield Signature(Nonce(f"nonce-of-{owner}-{n:08d}"), owner, n)


def ref(id: int, term: int = 1, owned: bool = True, lineage: Lineage = LINE) -> CheckpointRef:
    path = LAYOUT.metadata(id) if owned else f"savepoints/{id}/_metadata"
    return CheckpointRef(
        id=id,
        term=Term(term),
        epoch=EpochId(Term(term), id * 10),
        lineage=lineage,
        metadata=path,
        checksum=f"sha256:{id:064d}",
        owned=owned,
    )


def claimed(before: Entry | None = None, base: CheckpointRef | None = None, owner: str = "driver") -> Entry:
    return entries.claim(before, next(signatures(owner)), LINE, base)


def committable(number: int, partition: int = 0, term: int = 1, sink: str = "out") -> Committable:
    return Committable(
        lineage=LINE,
        sink=Uid(sink),
        slot=partition,
        epoch=EpochId(Term(term), number),
        payload=f"rows-{term}-{number}".encode(),
    )


class PlainStorage:
    """Does what it is asked and counts it. `refused` committables fail; `committed` lists the others in order."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.committed: list[Committable] = []
        self.refused: set[EpochId] = set()
        self.asked: list[Effect] = []
        self.slept_ms = 0

    def run(self, steps: Steps[object]) -> object:
        answer, error = None, None
        while True:
            try:
                effect = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            answer, error = None, None
            try:
                answer = self.do(effect)
            except CommitFailed as trouble:
                error = trouble

    def do(self, effect: Effect) -> object:  # noqa: C901 one case for each effect
        self.asked.append(effect)
        match effect:
            case Get(path):
                return self.objects.get(path)
            case GetMany(paths):
                return {path: self.objects[path] for path in paths if path in self.objects}
            case Create(path, data):
                if path in self.objects:
                    return Won() if self.objects[path] == data else Lost(self.objects[path])
                self.objects[path] = data
                return Won()
            case Put(path, data):
                self.objects[path] = data
            case Delete(paths):
                for path in paths:
                    self.objects.pop(path, None)
            case ListNames(prefix):
                return sorted(p for p in self.objects if p.startswith(prefix + "/"))
            case ListFolders(prefix):
                below = [p[len(prefix) + 1 :] for p in self.objects if p.startswith(prefix + "/")]
                return sorted({p.partition("/")[0] for p in below if "/" in p})
            case Sleep(ms):
                self.slept_ms += ms
            case Commit(committables):
                for waiting in committables:
                    if waiting.epoch in self.refused:
                        raise CommitFailed("refused")
                    self.committed.append(waiting)
        return None


def release(store: CompletedCheckpointStore) -> Steps[bool]:
    """One pass over all sinks. Answer: whether all that was due is published."""
    for batch in commit_batches(store.due()):
        try:
            yield from commit(batch)
        except CommitFailed:
            continue
        store.output_committed(batch)
    yield from store.record()
    return not store.due()


def owner(storage: PlainStorage, name: str, retained: int = 1, layout: JobLayout = LAYOUT) -> CompletedCheckpointStore:
    sign = signatures(name)
    entry = storage.run(claim(layout, Start(), lambda: next(sign), lambda: LINE, 1, force=True))
    assert isinstance(entry, Entry)
    store = CompletedCheckpointStore(layout, entry, lambda path, body: BODIES[body], lambda: next(sign), retained)
    storage.run(store.recover())
    storage.run(release(store))
    return store


def upload(storage: PlainStorage, store: CompletedCheckpointStore, id: int, name: str) -> str:
    path = LAYOUT.shared(store.term, TaskId(1, Slot(0)), AttemptId(1), id, name)
    storage.objects[path] = b"state"
    return path


def draft(
    store: CompletedCheckpointStore, id: int, files: Iterable[str] = (), output: Iterable[Committable] = ()
) -> Draft:
    store.ledger.accept(output)
    epoch = EpochId(store.term, id * 10)
    carried = store.ledger.carried_by(epoch)
    checksum = f"sha256:{store.entry.owner}-{store.term}-{id}".ljust(40, "0")
    body = json.dumps({"checksum": checksum}).encode()
    staged = frozenset(c.payload.decode() for c in carried)
    BODIES[body] = CheckpointContents(frozenset(files), staged, carried)
    return Draft(id=id, epoch=epoch, metadata=body, checksum=checksum, contents=BODIES[body])


def publish(
    storage: PlainStorage, store: CompletedCheckpointStore, id: int, files: Iterable[str] = ()
) -> CheckpointRef:
    ref = storage.run(store.append_checkpoint(draft(store, id, files)))
    assert isinstance(ref, CheckpointRef)
    return ref


def final_savepoint(storage: PlainStorage, end: Draft) -> CheckpointRef:
    """A savepoint with this content, which is to end the job. Its metadata is stored."""
    ref = CheckpointRef(
        id=1,
        term=Term(1),
        epoch=end.epoch,
        lineage=LINE,
        metadata="savepoints/x/_metadata",
        checksum=end.checksum,
        owned=False,
    )
    storage.objects[ref.metadata] = end.metadata
    return ref


def idle(id: int) -> InFlight:
    return InFlight(id)
