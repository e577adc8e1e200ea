"""Does a worker keep to its memory, and what does that cost?

State of ten times the budget of a slot is loaded once. Then every epoch reads and changes random keys of it, as a task would:
a version per epoch, through the accessors of `ValueState` and `MapState`. One contestant has the budget, the other an
unlimited one (memory of four times the state). Each has a process of its own; they take turns, one epoch each, for `--seconds`.

Resident memory is compared with that of the process before its first epoch, plus the budget. Where cgroups can be created, the
contestant with the budget is in one whose limit is 1.15 of that: the kernel kills it if it needs more.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGKILL
from typing import Any

from benchmarks import harness

MB = 1 << 20
_CGROUPS = Path("/sys/fs/cgroup")
KEYS_PER_MB = 1_000
"""Values have a kilobyte."""


@dataclass(frozen=True, slots=True)
class Size:
    budget_mb: int = 64
    rows_per_epoch: int = 20_000
    seconds: int = 60


QUICK = Size(budget_mb=16, rows_per_epoch=2_000, seconds=4)
STATE_PER_BUDGET = 10
WANTED_RESIDENT = 1.15


def run(json_path: Path, quick: bool, *, seconds: int | None = None) -> dict[str, Any]:
    """Let both contestants take turns for so many seconds after their state is loaded."""
    size = QUICK if quick else Size()
    duration = seconds or size.seconds
    scratch = tempfile.mkdtemp(prefix="tidegate-memory-")
    state_mb = STATE_PER_BUDGET * size.budget_mb
    players: dict[str, _Player] = {}
    try:
        for name, slot_mb in (("budget", size.budget_mb), ("unlimited", 4 * state_mb)):
            players[name] = _Player(Path(scratch) / name, slot_mb, state_mb, size.rows_per_epoch)
            if name == "budget":
                players[name].confine(slot_mb)
            players[name].load()
            harness.say(f"{name}: {state_mb} MB loaded, {players[name].turn()['resident_mb']:.0f} MB resident")
        end = time.monotonic() + duration
        while time.monotonic() < end:
            for player in players.values():
                player.epochs.append(player.turn())
    finally:
        for player in players.values():
            player.end()
        shutil.rmtree(scratch, ignore_errors=True)
    figures = {
        f"{name}, {what}": harness.Figure(unit, samples).as_json()
        for name, player in players.items()
        for what, field, unit in (
            ("rate", "rows_per_s", "rows/s"),
            ("resident", "resident_mb", "MB"),
            ("block cache", "cache_mb", "MB"),
            ("write cache", "write_cache_mb", "MB"),
            ("hit ratio", "hit_ratio", ""),
        )
        if (samples := tuple(epoch[field] for epoch in player.epochs if field in epoch))
    }
    ours = players["budget"]
    most, base = max(epoch["resident_mb"] for epoch in ours.epochs), ours.epochs[0]["base_mb"]
    rates = {name: harness.Figure("rows/s", tuple(e["rows_per_s"] for e in p.epochs)) for name, p in players.items()}
    return {
        "size": asdict(size) | {"seconds": duration, "state_mb": state_mb},
        "notes": [
            f"base: {base:.0f} MB resident before the first epoch; most: {most:.0f} MB.",
            f"limit: {ours.limit_mb:.0f} MB, by a cgroup."
            if ours.limit_mb
            else "No cgroup could be created: no limit.",
        ],
        "figures": figures,
        "ratios": {
            "resident / (base + budget)": harness.bounded(most / (base + size.budget_mb), at_most=WANTED_RESIDENT),
            "rate, budget / unlimited": harness.ratio(rates, "budget", "unlimited"),
        },
    }


def _serve(root: Path, slot_mb: int, state_mb: int, rows: int, line: Connection) -> None:
    """In a process of its own: one epoch for each message, until told to end."""
    contestant = Contestant(root, slot_mb)
    line.send(contestant.base / MB)
    line.recv()
    contestant.load(state_mb * KEYS_PER_MB // 2)
    line.send(True)
    while line.recv():
        line.send(contestant.epoch(rows))


class _Player:
    """A contestant, seen from the parent."""

    def __init__(self, root: Path, slot_mb: int, state_mb: int, rows: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._line, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(root, slot_mb, state_mb, rows, theirs), daemon=True)
        self._process.start()
        self.epochs: list[dict[str, float]] = []
        self._base_mb: float = self._received()
        self._cgroup: Path | None = None
        self.limit_mb = 0.0

    def confine(self, budget_mb: int) -> None:
        """Let the kernel kill it if it needs more than 1.15 of what it has now and its budget."""
        limit_mb = WANTED_RESIDENT * (self._base_mb + budget_mb)
        for root, limit in ((_CGROUPS / "memory", "memory.limit_in_bytes"), (_CGROUPS, "memory.max")):
            group = root / f"tidegate-memory-{self._process.pid}"
            try:
                group.mkdir()
                (group / limit).write_text(str(round(limit_mb * MB)))
                (group / "cgroup.procs").write_text(str(self._process.pid))
            except OSError:
                if group.exists():
                    group.rmdir()
                continue
            self._cgroup, self.limit_mb = group, limit_mb
            return

    def load(self) -> None:
        self._line.send(True)
        self._received()

    def turn(self) -> dict[str, float]:
        self._line.send(True)
        epoch: dict[str, float] = self._received()
        return epoch

    def end(self) -> None:
        if self._process.is_alive():
            self._line.send(False)
        self._process.join(30)
        if self._cgroup is not None:
            self._cgroup.rmdir()

    def _received(self) -> Any:
        while not self._line.poll(1):
            if not self._process.is_alive():
                killed = " It was killed: it needed more than its limit." if self._process.exitcode == -SIGKILL else ""
                raise RuntimeError(f"a contestant died; its error is above.{killed}")
        return self._line.recv()


class Contestant:
    """The state of one task, and its epochs."""

    def __init__(self, root: Path, slot_mb: int) -> None:
        import pyarrow  # noqa: F401 a worker has it

        from tidegate.runtime.task.work_meter import resident_bytes
        from tidegate.state.backends import backend_named

        self._resident_bytes = resident_bytes
        self._backend: Any = backend_named("rocksdb", {"state.backend.rocksdb.memory.fixed-per-slot": f"{slot_mb} mb"})
        self._root, self._number, self._version = root, 0, None
        self._dice, self._keys = random.Random(7), 0
        self._noise = self._dice.randbytes(1 << 20)
        gc.collect()
        self.base = resident_bytes()

    def load(self, keys: int) -> None:
        self._keys = keys
        for first in range(0, keys, 20_000):
            self._attempt(range(first, min(first + 20_000, keys)))

    def epoch(self, rows: int) -> dict[str, float]:
        keys = [self._dice.randrange(self._keys) for _ in range(rows)]
        begun = time.monotonic()
        memory = self._attempt(keys)
        took = time.monotonic() - begun
        # Hits are counted in one epoch out of ten.
        hits = {"hit_ratio": memory["blockCacheHitRatio"]} if "blockCacheHitRatio" in memory else {}
        return {
            "rows_per_s": rows / took,
            "base_mb": self.base / MB,
            "resident_mb": self._resident_bytes() / MB,
            "cache_mb": memory["blockCacheUsage"] / MB,
            "write_cache_mb": memory["writeCacheUsage"] / MB,
        } | hits

    def _attempt(self, keys: Any) -> dict[str, float]:
        from tidegate.core.ids import AttemptId, EpochId, Term
        from tidegate.graph.states import StateKind, StateSpec
        from tidegate.runtime.task.collector import seldom_collecting
        from tidegate.schema.schema import DataType
        from tidegate.state.accessors.keyed_states import KeyedStates
        from tidegate.state.keys.entry_keys import KeyCodec
        from tidegate.state.version import VersionId

        specs = (
            StateSpec(name="value", kind=StateKind.VALUE, value=bytes),
            StateSpec(name="map", kind=StateKind.MAP, value=bytes, map_key=int),
        )
        self._number += 1
        target = VersionId(EpochId(Term(1), self._number), AttemptId(self._number))
        with seldom_collecting():
            store = self._backend.begin(self._root, self._version, target, (0, 127))
            states = KeyedStates(
                store, specs, {"value": 1, "map": 2}.__getitem__, KeyCodec([DataType("bigint")]), target.epoch, (0, 127),
                cache_bytes=self._backend.write_cache_bytes,
            )  # fmt: skip
            value, of_key, scope = states.value_state("value"), states.map_state("map"), states.scope
            for row, scope.key in enumerate(keys, 1):
                scope.key_group = scope.key % 128
                value.value()
                value.update(self._bytes())
                of_key.get(1)
                of_key.put(1, self._bytes())
                if row % 1_000 == 0:
                    states.bound_memory()
            states.cache.size_bytes()
            states.flush()
            memory = {**store.memory(), "writeCacheUsage": float(states.cache.peak_bytes)}
            states.drop_cached()
            self._version = store.seal().version
            self._backend.tidy(self._root, Term(1), [self._version])
        return memory

    def _bytes(self) -> bytes:
        at = self._dice.randrange((1 << 20) - 1_000)
        return self._noise[at : at + 1_000]
