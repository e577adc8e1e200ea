"""`python -m chaos run --pipeline kafka-postgres --upserts`: output waits for its target while the job changes parallelism.

A walk is made of episodes. In most of them the target goes away for minutes; meanwhile checkpoints pile up output, and the job is
killed, or stopped with a savepoint, and started with another parallelism, so that a key's older output waits in one slot and its
newer output in another. Then the target comes back, perhaps to a driver that dies while it publishes.

At the end a reader compares the target with what Kafka has of the input: final values, and the order in which each key had
its values. After each stop that answered well, all that its savepoint has counted must be in the target before the job is
started again.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from chaos.ends import ENDS, Ends, Row, UpsertEnds
from chaos.piped import STOP, STOPPED
from chaos.pipeline import STEPS_OF_SINKS, Kind, PipelineTorment, TopicFeed
from chaos.torment import ARRIVAL_S, RECOVERY_S, Hang, fault_environment, say, summary
from chaos.wall_clock import WallClock
from tidegate.testing.cluster import StandaloneCluster
from tidegate.testing.faults import FaultOrders

KEYS = 40
PARALLELISMS = (4, 2, 3)
"""The first is that of the first start."""
CHECKPOINTS = 2
"""So many must complete after each fault while the target is away: the job goes on, and new output waits."""
STALL_S = 150.0
"""Without a checkpoint for so long while the target is away, the job counts as stalled. A busy machine takes a minute to start
a driver."""
STOP_S = 60.0
"""So long a stop may take its time while the target is away; then the target comes back."""
JUMPS_S = (-7200.0, -600.0, 600.0, 3000.0)
"""Kafka refuses rows that are dated more than an hour ahead."""


class Fault(StrEnum):
    TARGET = "target away"
    CUT = "wire to the target cut"
    DEAF = "replies of the target lost"
    RESCALE = "driver SIGKILL, other parallelism"
    STOP = "stop with savepoint, other parallelism"
    DRIVER = "driver SIGKILL"
    EXECUTOR = "executor SIGKILL"
    WORKER = "python-worker SIGKILL"
    PUBLISHING = "SIGKILL while publishing, other parallelism"
    CLOCK = "clock jump"


@dataclass(frozen=True, slots=True)
class Episode:
    """What goes wrong together."""

    outage: Fault | None
    during: tuple[Fault, ...]
    """While the target is away, or by themselves."""
    after: tuple[Fault, ...] = ()
    """When it is back, and output is published that waited."""
    seconds: float = 0.0
    """How long the target is away at least, in units of `--outage`."""

    @property
    def faults(self) -> int:
        return (self.outage is not None) + len(self.during) + len(self.after)


_OUTAGES = {"kafka-kafka": (Fault.CUT, Fault.DEAF), "kafka-postgres": (Fault.TARGET, Fault.CUT, Fault.DEAF)}
"""Source and target of kafka-kafka are one broker; without it nothing would be read, and nothing would wait."""
_AWAY: tuple[tuple[tuple[Fault, ...], tuple[Fault, ...]], ...] = (
    ((Fault.RESCALE,), ()),
    ((Fault.RESCALE, Fault.RESCALE), ()),
    ((Fault.EXECUTOR, Fault.RESCALE), ()),
    ((Fault.WORKER, Fault.DRIVER), ()),
    ((Fault.RESCALE,), (Fault.PUBLISHING,)),
    ((Fault.STOP,), ()),
)


def plan_episodes(
    pipeline: str, faults: int, seed: int, clock_jumps: bool = False, only: str | None = None
) -> list[Episode]:
    """So many faults, in episodes of every kind, in an order that the seed decides. The first has a rescale with output
    waiting: that is what the walk is about. `only`: the episodes with a fault whose name contains it."""
    chance = random.Random(seed)
    found: list[Episode] = []
    while sum(episode.faults for episode in found) < faults:
        cycle: list[Episode] = [
            Episode(chance.choice(_OUTAGES[pipeline]), during, after, chance.choice((0.5, 1.0, 2.0)))
            for during, after in _AWAY
        ]
        cycle.append(Episode(None, (Fault.STOP,)))
        if clock_jumps:
            cycle.append(Episode(None, (Fault.CLOCK,)))
            cycle.append(Episode(chance.choice(_OUTAGES[pipeline]), (Fault.CLOCK, Fault.RESCALE), (), 1.0))
        cycle = [episode for episode in cycle if only is None or any(only in fault for fault in episode.during)]
        if not cycle:
            raise ValueError(f"no episode has a fault {only!r}")
        chance.shuffle(cycle)
        if not found:
            cycle.sort(key=lambda episode: (episode.outage is None, Fault.RESCALE not in episode.during))
        found += cycle
    return list(_cut(found, faults))


def _cut(episodes: Iterable[Episode], faults: int) -> Iterator[Episode]:
    """The first episodes, with so many faults."""
    for episode in episodes:
        if faults <= 0:
            return
        yield replace(
            episode,
            during=episode.during[: faults - (episode.outage is not None)],
            after=episode.after[: max(0, faults - (episode.outage is not None) - len(episode.during))],
        )
        faults -= episode.faults


class RescaleTorment(PipelineTorment):
    """A pipeline that changes parallelism while output waits for its target."""

    def __init__(
        self, cluster: StandaloneCluster, orders: FaultOrders, folder: Path, options: argparse.Namespace, ends: Ends,
        clock: WallClock | None,
    ) -> None:  # fmt: skip
        super().__init__(cluster, orders, folder, options, ends)
        self.feed = TopicFeed(ends, keys=KEYS)  # type: ignore[assignment]
        # Rows go on coming while the target is away, at about 60 in a second.
        self.most_unseen = 3_000 + int(options.outage * 2 * 60)
        self.clock = clock
        self.environment = {} if clock is None else clock.environment
        self.plan(PARALLELISMS[0])
        self.parallelisms = [PARALLELISMS[0]]
        self.stops: Counter[str] = Counter()
        self.unpublished: list[str] = []
        self.stalls = 0

    def episode(self, episode: Episode) -> None:
        """Bring its faults about, one after the other, and wait until all rows that were sent by then are seen."""
        self._await_rows(self.visible(), RECOVERY_S)
        away_s = episode.seconds * self._options.outage
        with self._away(episode.outage) as come_back:
            begun = time.monotonic()
            if episode.outage is not None:
                self._checkpoints()
            for fault in episode.during:
                self._strike(fault, come_back)
            if episode.outage is not None:
                # A stop has brought the target back before: then nothing is left to wait for.
                while time.monotonic() - begun < away_s and come_back.pending:
                    time.sleep(0.2)
            killed = self._kill_at_publishing() if episode.after else None
        back, sent = time.monotonic(), len(self.feed.rows)
        if killed is not None:
            self._publishing_died(killed)
        self._await_all(sent)
        took = time.monotonic() - back
        if episode.outage is not None:
            self._note(str(episode.outage).replace("target away", f"{self.ends.server} away"), took)
        self.orders.clear()
        say(f"  all {sent} rows of before are seen {took:.1f} s after the end")

    # -- one fault -----------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault, come_back: _ComeBack) -> None:
        started, before = time.monotonic(), self._slots()
        worker = self._random.randrange(len(self.cluster.workers))
        match fault:
            case Fault.RESCALE:
                self._rescale()
                self._kill_driver()
            case Fault.DRIVER:
                self._kill_driver()
            case Fault.EXECUTOR:
                self.cluster.kill_executor(worker)
            case Fault.WORKER:
                self.cluster.kill_python_workers(worker)
            case Fault.CLOCK:
                self._jump()
            case _:
                self._stop_with_savepoint(come_back)
                before = self._slots()
        if come_back.pending:
            self._checkpoints(before)
        else:
            self._await_checkpoint(before, RECOVERY_S)
        self._note(str(fault), time.monotonic() - started)

    def _note(self, fault: str, took_s: float) -> None:
        self.kills[fault] += 1
        self.recovery_s[fault].append(round(took_s, 2))
        say(f"  {fault}: {took_s:.1f} s, parallelism {self.parallelism}")

    def _rescale(self) -> None:
        """The next start has another parallelism."""
        at = PARALLELISMS.index(self.parallelism)
        self.plan(PARALLELISMS[(at + 1) % len(PARALLELISMS)])
        self.parallelisms.append(self.parallelism)

    def _jump(self) -> None:
        assert self.clock is not None
        now = self.clock.offset_s
        self.clock.set(self._random.choice([jump for jump in (0.0, *JUMPS_S) if jump != now]))
        say(f"  the clock jumps by {self.clock.offset_s - now:+.0f} s")

    def _checkpoints(self, after: int | None = None) -> None:
        """Some checkpoints while the target is away. A job that does not get that far is stalled, and the walk goes on."""
        at = self._slots() if after is None else after
        try:
            for _ in range(CHECKPOINTS):
                self._await_checkpoint(at, STALL_S)
                at = self._slots()
        except Hang:
            self.stalls += 1
            say(f"  STALLED: no checkpoint for {STALL_S:g} s while the target is away")

    def _kill_at_publishing(self) -> str:
        self._rescale()
        return self.orders.give(self._random.choice(STEPS_OF_SINKS[self._options.pipeline]), "kill")

    def _publishing_died(self, order: str) -> None:
        started, before = time.monotonic(), self._slots()
        try:
            pid = self.orders.wait(order, ARRIVAL_S)
        except TimeoutError:
            say(f"  {Fault.PUBLISHING}: not reached")
            return
        if self.driver is not None and pid != self.driver.pid:
            self._kill_driver()  # A task published, and its worker died.
        self._await_checkpoint(before, RECOVERY_S)
        self._note(str(Fault.PUBLISHING), time.monotonic() - started)

    # -- the target -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _away(self, outage: Fault | None) -> Iterator[_ComeBack]:
        """The target is away until the end of the block, or until it is told to come back."""
        kinds = {Fault.TARGET: Kind.TARGET, Fault.CUT: Kind.CUT_TARGET, Fault.DEAF: Kind.LOST_REPLIES}
        wrong = nullcontext() if outage is None else self._wrong(kinds[outage])
        wrong.__enter__()
        come_back = _ComeBack(outage is not None, lambda: wrong.__exit__(None, None, None))
        try:
            yield come_back
        finally:
            come_back()

    def _await_all(self, sent: int) -> None:
        latest = time.monotonic() + RECOVERY_S + self._options.outage
        while self.visible() < sent:
            if time.monotonic() > latest:
                raise Hang(f"of {sent} rows {self.visible()} are seen long after the target came back")
            time.sleep(0.1)

    # -- stops ----------------------------------------------------------------------------------------------------------

    def _stop_with_savepoint(self, come_back: _ComeBack) -> None:
        """Ask the job to stop. Once it has answered well, nothing may be missing in the target, and nobody publishes any more."""
        self._hold.set()
        try:
            with suppress(FileNotFoundError):
                (self.folder / STOPPED).unlink()
            (self.folder / STOP).touch()
            answer = self._answer(STOP_S)
            early = answer is not None and come_back.pending
            come_back()
            answer = answer or self._answer(RECOVERY_S)
            if answer is None:
                raise Hang(f"a stop with savepoint was not answered within {RECOVERY_S:g} s")
            if "failure" in answer:
                self.stops["failed"] += 1
                say(f"  the stop failed: {answer['failure']}")
                # Whether the job is still there or not: it goes on with another parallelism.
                self._kill_driver()
            else:
                self.stops["answered well" + (" before the target was back" if early else "")] += 1
            self._ended()
            if "savepoint" in answer:
                self._check_published(answer["savepoint"])
            self._rescale()
            self.driver = self.launch()
        finally:
            with suppress(FileNotFoundError):
                (self.folder / STOP).unlink()
            self._hold.clear()

    def _answer(self, timeout_s: float) -> dict[str, str] | None:
        latest = time.monotonic() + timeout_s
        while time.monotonic() < latest:
            with suppress(FileNotFoundError):
                found: dict[str, str] = json.loads((self.folder / STOPPED).read_text())
                return found
            if self.driver is not None and self.driver.poll() is not None and not (self.folder / STOPPED).exists():
                return {"failure": f"the driver ended with code {self.driver.returncode} and gave no answer"}
            time.sleep(0.1)
        return None

    def _ended(self) -> None:
        assert self.driver is not None
        try:
            self.driver.wait(120)
        except Exception:
            raise Hang("a driver that was stopped is still there") from None

    def _check_published(self, savepoint: str) -> None:
        import tidegate as tg

        saved = {entry.key: entry.value for entry in tg.Savepoint.open(savepoint).state("number", "n").entries()}
        missing = missing_rows(saved, self.ends.rows(), isinstance(self.ends, UpsertEnds))
        if missing:
            self.unpublished.append(f"{Path(savepoint).name}: {missing} of {sum(saved.values())} rows")
            say(f"  UNPUBLISHED after a stop that answered well: {self.unpublished[-1]}")

    def settle(self) -> None:
        """No more rows come; wait until all can be seen, or until nothing changes any more."""
        self._stop.set()
        with suppress(Hang):
            self._await_all(len(self.feed.rows))
        # Whatever comes too much, or too late, comes now.
        time.sleep(6)


@dataclass(slots=True)
class _ComeBack:
    """Ends an outage, once."""

    pending: bool
    _end: Callable[[], Any]

    def __call__(self) -> None:
        if self.pending:
            self.pending = False
            self._end()


# -- who counts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Findings:
    """What a reader found in a target."""

    expected: int
    lost: int
    duplicated: int
    overwritten: int
    """How often a key's older value came after a newer one."""
    wrong: tuple[str, ...]

    @property
    def fine(self) -> bool:
        return not (self.lost or self.duplicated or self.overwritten or self.wrong)


def judge_values(sent: Sequence[tuple[int, int]], final: Iterable[Row], changes: Iterable[Row]) -> Findings:
    """A target with the newest value of each key: the last row of each key, and never an older value after a newer one."""
    rows = _by_key(sent)
    values = {k: (i, n) for k, i, n in final}
    wrong = [
        f"key {k}: the last row is {numbers[-1]}, number {len(numbers)}, and the table has {values.get(k)}"
        for k, numbers in sorted(rows.items())
        if values.get(k) != (numbers[-1], len(numbers))
    ]
    lost = sum(max(0, len(numbers) - values.get(k, (0, 0))[1]) for k, numbers in rows.items())
    changes = list(changes)
    wrong += _strange(rows, [*((k, i, n) for k, (i, n) in values.items()), *changes])
    return Findings(len(sent), lost, _repeated(changes), _backwards(changes), tuple(wrong))


def judge_rows(sent: Sequence[tuple[int, int]], found: Sequence[Row]) -> Findings:
    """A target that rows are appended to, read in its order: every row of each key once, in the order of the input."""
    rows, seen = _by_key(sent), {(k, n) for k, _, n in found}
    lost = sum((k, n) not in seen for k, numbers in rows.items() for n in range(1, len(numbers) + 1))
    return Findings(len(sent), lost, _repeated(found), _backwards(found), tuple(_strange(rows, found)))


def missing_rows(saved: dict[int, int], found: Iterable[Row], newest_only: bool) -> int:
    """How many of the rows that a savepoint has counted, by key, a target does not have."""
    seen: dict[int, set[int]] = defaultdict(set)
    for k, _, n in found:
        seen[k].add(n)
    if newest_only:
        return sum(max(0, n - max(seen[k], default=0)) for k, n in saved.items())
    return sum(len(set(range(1, n + 1)) - seen[k]) for k, n in saved.items())


def _by_key(sent: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = defaultdict(list)
    for k, i in sent:
        rows[k].append(i)
    return rows


def _strange(rows: dict[int, list[int]], found: Iterable[Row]) -> list[str]:
    strange = {
        row for row in found if not (0 < row[2] <= len(rows.get(row[0], ())) and rows[row[0]][row[2] - 1] == row[1])
    }
    return [f"key {k}: row {i} is not number {n} of the input" for k, i, n in sorted(strange)]


def _repeated(changes: Iterable[Row]) -> int:
    return sum(times - 1 for times in Counter((k, n) for k, _, n in changes).values())


def _backwards(changes: Iterable[Row]) -> int:
    newest: dict[int, int] = defaultdict(int)
    times = 0
    for k, _, n in changes:
        times += n < newest[k]
        newest[k] = max(newest[k], n)
    return times


def run_rescales(options: argparse.Namespace) -> int:
    if options.pipeline not in _OUTAGES or (options.upserts and options.pipeline != "kafka-postgres"):
        say("--rescales is for kafka-kafka and kafka-postgres, --upserts for kafka-postgres.")
        return 2
    given = options.folder is not None
    folder = options.folder or Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    orders = FaultOrders(folder / "orders")
    started, problem = time.monotonic(), None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    clock = WallClock(folder) if options.clock_jumps else None
    environment = fault_environment(orders) | ({} if clock is None else clock.environment)
    episodes = plan_episodes(options.pipeline, options.rounds, options.seed, options.clock_jumps, options.only)
    with (UpsertEnds if options.upserts else ENDS[options.pipeline])(folder) as ends:
        say("the servers are up")
        with StandaloneCluster(directory=folder / "cluster", environment=environment, cores=2) as cluster:
            torment = RescaleTorment(cluster, orders, folder, options, ends, clock)
            with torment.supervised():
                try:
                    for number, episode in enumerate(episodes, 1):
                        if options.at_most is not None and time.monotonic() - started > options.at_most:
                            say(f"{options.at_most:g} s have passed")
                            break
                        faults = [*([episode.outage] if episode.outage else []), *episode.during, *episode.after]
                        say(f"episode {number} of {len(episodes)}: {', '.join(faults)}")
                        torment.episode(episode)
                    torment._stop.set()
                    torment.feed.flush()  # type: ignore[attr-defined]
                    torment.settle()
                except Hang as hang:
                    problem = f"hang: {hang}"
        torment.feed.flush()  # type: ignore[attr-defined]
        sent, rows = ends.sent(), ends.rows()
        findings = judge_values(sent, rows, ends.changes()) if isinstance(ends, UpsertEnds) else judge_rows(sent, rows)
    result: dict[str, Any] = {
        "pipeline": options.pipeline,
        "upserts": options.upserts,
        "rounds": sum(torment.kills.values()),
        "kills": dict(torment.kills),
        "lost": findings.lost,
        "duplicated": findings.duplicated,
        "overwritten": findings.overwritten,
        "unpublished": torment.unpublished,
        "wrong": list(findings.wrong),
        "rows": findings.expected,
        "problem": problem,
        "stops": dict(torment.stops),
        "stalls": torment.stalls,
        "parallelisms": torment.parallelisms,
        "outage_s": options.outage,
        "driver_starts": torment.starts,
        "gave_up": torment.gave_up,
        "recovery_s": {kind: summary(times) for kind, times in torment.recovery_s.items()},
        "seed": options.seed,
        "seconds": round(time.monotonic() - started, 1),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    say(
        f"{options.pipeline}: {result['rounds']} faults, {findings.expected} rows: {findings.lost} lost, "
        f"{findings.duplicated} doubled, {findings.overwritten} newer values overwritten by older ones, "
        f"{len(torment.unpublished)} stops with output left unpublished, {len(findings.wrong)} values wrong, "
        f"{torment.stalls} stalls" + (f"; {problem}" if problem else "")
    )
    for wrong in findings.wrong[:10]:
        say(f"  {wrong}")
    fine = problem is None and findings.fine and not torment.unpublished
    if fine and not given:
        shutil.rmtree(folder, ignore_errors=True)
    elif not fine:
        say(f"everything is kept in {folder}")
    return 0 if fine else 1
