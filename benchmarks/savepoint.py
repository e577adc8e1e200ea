"""What a savepoint costs: written and restored, in both formats and at other parallelisms, against a plain copy.

State is a text of 100 characters for each key, in RocksDB, held by four tasks; what a task does, a process does here, as
many at once as there are cores. All speeds are in MB of RocksDB's own files for a second, whatever is written. The page
cache is dropped before each.

- *plain copy*: the files of all tasks, copied by `shutil`; *synced copy*: the same, and every file on disk when it ends, as
  everything that is written here is.
- *native*, *canonical*: written from the versions of the tasks as an epoch of a running job writes them; restored into as
  many tasks.
- *rescale*: a native savepoint of 4 tasks restored into 8, and of 8 into 4.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import harness
from tidegate.checkpoint.files.task_part import decode_part
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    OperatorInfo,
    SnapshotKind,
    StateInfo,
    StateNumber,
    TaskState,
    encode,
)
from tidegate.checkpoint.task.assignment import RestoreTarget, plan_restore
from tidegate.checkpoint.task.version_restore import RestoreOrder, restore
from tidegate.checkpoint.task.version_upload import UploadOrder, VersionUpload
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid
from tidegate.savepoint.canonical_read import CanonicalTask
from tidegate.savepoint.canonical_write import CanonicalWriter
from tidegate.state.backends import backend_named
from tidegate.state.disk.version_directory import version_path
from tidegate.state.keys.entry_keys import VOID_NAMESPACE, key_group_range, state_prefix
from tidegate.state.keys.key_groups import range_of_slot, slot_of
from tidegate.state.version import VersionId
from tidegate.storage import open_storage

GROUPS, TERM, LAYOUT = 128, Term(1), JobLayout("bench")
STATE = StateInfo(name="text", id=1, kind="value", value={"type": "str"})
ENTRY_BYTES = 122
FILLED, SAVED, BACK = (VersionId(EpochId(TERM, n), AttemptId(1)) for n in (1, 2, 3))
_CHUNK = 100_000


@dataclass(frozen=True, slots=True)
class Size:
    repetitions: int = 3
    megabytes: int = 1000
    tasks: int = 4


QUICK = Size(repetitions=1, megabytes=12)


def run(
    json_path: Path, quick: bool, *, repetitions: int | None = None, only: list[str] | None = None,
    megabytes: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    size = QUICK if quick else Size()
    size = replace(size, megabytes=megabytes or size.megabytes, repetitions=repetitions or size.repetitions)
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch,
        ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as pool,
    ):
        bench = _Bench(Path(scratch), size, pool)
        speeds = harness.interleave(
            {name: act for name, act in bench.contestants().items() if only is None or name in only},
            size.repetitions, what="savepoint", unit="MB/s",
        )  # fmt: skip
        wanted = {
            "native write": 0.7, "native restore": 0.7, "canonical write": 0.25, "canonical restore": 0.25,
            "rescale 4 to 8": 0.5, "rescale 8 to 4": 0.5,
        }  # fmt: skip
        ratios = {
            f"{name} / plain copy": harness.ratio(speeds, name, "plain copy", at_least=least)
            for name, least in wanted.items()
        }
        ratios |= {
            f"{name} / synced copy": harness.ratio(speeds, name, "synced copy")
            for name in wanted if name.endswith("write")
        }  # fmt: skip
        return {
            "size": asdict(size) | {"keys": bench.keys, "state_mb": bench.megabytes},
            "canonical_mb": bench.table_bytes / 1e6,
            "figures": {name: figure.as_json() for name, figure in speeds.items()},
            "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
        }


class _Bench:
    """The versions of four tasks on local disk, and the savepoints that are restored again and again."""

    def __init__(self, work: Path, size: Size, pool: ProcessPoolExecutor) -> None:
        self._work, self._pool, self._tasks = work, pool, size.tasks
        self.keys = size.megabytes * 1_000_000 // ENTRY_BYTES
        self._count = 0
        harness.say(f"filling {size.tasks} versions with {self.keys:,} keys")
        self._together((_fill, work / "local", slot, size.tasks, self.keys) for slot in range(size.tasks))
        self.megabytes = _bytes_below(work / "local") / 1e6
        self._native, _ = self._write(_write_native, "native-4", size.tasks)
        self._tables, self.table_bytes = self._write(_write_tables, "tables", size.tasks)
        self._wide = self._widened(size.tasks * 2)

    def contestants(self) -> dict[str, Callable[[], float]]:
        t = self._tasks
        return {
            "plain copy": lambda: self._plain(sync=False),
            "synced copy": lambda: self._plain(sync=True),
            "native write": lambda: self._written(_write_native),
            "native restore": lambda: self._restored(self._native, "native-4", t),
            "canonical write": lambda: self._written(_write_tables),
            "canonical restore": lambda: self._restored(self._tables, "tables", t),
            "rescale 4 to 8": lambda: self._restored(self._native, "native-4", t * 2),
            "rescale 8 to 4": lambda: self._restored(self._wide, "native-8", t),
        }

    def _plain(self, sync: bool) -> float:
        target = self._work / "plain"
        sources = [self._work / "local" / str(slot) for slot in range(self._tasks)]
        calls = [(_copy, source, target / source.name, sync) for source in sources]
        return self._speed(target, calls, self._work / "local")

    def _written(self, act: Callable[..., TaskState]) -> float:
        self._count += 1
        target = self._work / f"written-{self._count}"
        calls = [(act, self._work / "local", slot, self._tasks, target) for slot in range(self._tasks)]
        return self._speed(target, calls, self._work / "local")

    def _restored(self, metadata: CheckpointMetadata, name: str, parallelism: int) -> float:
        old = {task.task: task for task in metadata.tasks}
        target, calls = self._work / "back", []
        for plan in plan_restore(metadata, RestoreTarget(GROUPS, parallelism, {Uid("op"): 1})):
            names = {*plan.sources, *(() if plan.as_is is None else (plan.as_is,))}
            order = RestoreOrder(
                plan=plan, sources=tuple(old[one] for one in sorted(names)), root="bench", stored=None, from_local=False
            )
            calls.append((_restore, self._work / name, order, target / str(plan.task.slot)))
        return self._speed(target, calls, self._work / name)

    def _write(self, act: Callable[..., TaskState], name: str, tasks: int) -> tuple[CheckpointMetadata, int]:
        target = self._work / name
        states = self._together((act, self._work / "local", slot, tasks, target) for slot in range(tasks))
        return metadata_of(states, tasks), sum(state.size_bytes for state in states)

    def _widened(self, tasks: int) -> CheckpointMetadata:
        """The same state, filled by twice as many tasks: files that were cut by a rescaling would be twice as many."""
        wide, target = self._work / "local-8", self._work / "native-8"
        self._together((_fill, wide, slot, tasks, self.keys) for slot in range(tasks))
        states = self._together((_write_native, wide, slot, tasks, target) for slot in range(tasks))
        shutil.rmtree(wide)
        return metadata_of(states, tasks)

    def _speed(self, target: Path, calls: list[tuple[Any, ...]], source: Path) -> float:
        """MB/s of all calls together; what they wrote is removed."""
        harness.drop_cache(source)
        begin = time.monotonic()
        self._together(calls)
        took = time.monotonic() - begin
        shutil.rmtree(target)
        return self.megabytes / took

    def _together(self, calls: Iterable[tuple[Any, ...]]) -> list[Any]:
        return [done.result() for done in [self._pool.submit(*call) for call in calls]]


# -- what one task does, in a process of the pool ------------------------------------------------------------------------


def _fill(local: Path, slot: int, tasks: int, keys: int) -> None:
    chance, engine, base = random.Random(slot), backend_named("rocksdb"), None
    groups = range_of_slot(slot, tasks, GROUPS)
    mine = [n for n in range(keys) if slot_of(n % GROUPS, tasks, GROUPS) == slot]
    layout = state_layout()
    for number, first in enumerate(range(0, len(mine), _CHUNK)):
        last = first + _CHUNK >= len(mine)
        version = FILLED if last else VersionId(EpochId(Term(0), number + 1), AttemptId(1))
        store = engine.begin(local / str(slot), base, version, groups)
        store.write(
            (
                state_prefix(n % GROUPS, 1) + layout.keys.encode(f"user-{n:09d}") + VOID_NAMESPACE,
                layout.values.encode(chance.randbytes(50).hex()),
            )
            for n in mine[first : first + _CHUNK]
        )
        store.seal()
        base = version
    engine.tidy(local / str(slot), Term(0), [])
    engine.tidy(local / str(slot), TERM, [FILLED])


def _write_native(local: Path, slot: int, tasks: int, target: Path, version: VersionId = FILLED) -> TaskState:
    order, task = (
        UploadOrder(checkpoint_id=1, version=version, base=None, inline_threshold=0, inline_total=0),
        TaskId(1, Slot(slot)),
    )
    upload = VersionUpload(open_storage(target), LAYOUT, local / str(slot), task, TERM, order)
    shutil.rmtree(local / str(slot) / "uploads", ignore_errors=True)
    manifest = backend_named("rocksdb").manifest(local / str(slot), version)
    part = upload.run(manifest, AttemptId(1), lambda: True, lambda: None)
    assert part is not None
    return decode_part(part)[0]


def _write_tables(local: Path, slot: int, tasks: int, target: Path) -> TaskState:
    groups = range_of_slot(slot, tasks, GROUPS)
    store = backend_named("rocksdb").begin(local / str(slot), FILLED, SAVED, groups)
    try:
        writer = CanonicalWriter(open_storage(target), "bench", TaskId(1, Slot(slot)), groups, FILLED, 1)
        writer.add_bytes([operator_info(tasks)], store.scan(*key_group_range(*groups)))
        return writer.finish()
    finally:
        store.abandon()


def _restore(storage: Path, order: RestoreOrder, target: Path) -> None:
    restore(open_storage(storage), target, order, backend_named("rocksdb"), {}, BACK, CanonicalTask)


def _copy(source: Path, target: Path, sync: bool) -> None:
    shutil.copytree(version_path(source, FILLED), target)
    for path in target.iterdir() if sync else ():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def operator_info(tasks: int) -> OperatorInfo:
    return OperatorInfo(Uid("op"), 1, tasks, "rocksdb", {"columns": ["string"]}, (STATE,))


def state_layout() -> Any:
    from tidegate.savepoint.entries import StateLayout

    return StateLayout(operator_info(1), STATE)


def metadata_of(states: list[TaskState], tasks: int) -> CheckpointMetadata:
    made = CheckpointMetadata(
        job="bench",
        lineage=Lineage("l"),
        checkpoint_id=1,
        term=TERM,
        epoch=FILLED.epoch,
        kind=SnapshotKind.SAVEPOINT,
        triggered_ms=0,
        completed_ms=0,
        tidegate_version="",
        spark_version="",
        max_parallelism=GROUPS,
        parallelism=tasks,
        clock_ms=0,
        operators=(operator_info(tasks),),
        state_numbers=(StateNumber(Uid("op"), "text", 1),),
        tasks=tuple(states),
    )
    encode(made)
    return made


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
