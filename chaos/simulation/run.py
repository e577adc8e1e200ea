"""One seed: a scenario drawn from it, run to its end, and judged."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from chaos.simulation.driver import SimDriver
from chaos.simulation.faults import CALM, Odds, Violation
from chaos.simulation.hosts import SimHosts
from chaos.simulation.judged_log import judged_log
from chaos.simulation.model import Epoch
from chaos.simulation.plan import SINKS, JobPlan
from chaos.simulation.real_tasks import check_restore
from chaos.simulation.world import Process, Tally, World
from tidegate.checkpoint.completed import cleaner
from tidegate.checkpoint.coordination.timing import Cadence
from tidegate.checkpoint.effects import Sleep, Steps
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry, EntryKind
from tidegate.checkpoint.job_log.pins import PinTooLate, fork_pin, place
from tidegate.checkpoint.job_log.start import DirectoryMoved, Start
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.output.committables import Channel
from tidegate.connectors.outcome import ForeignOutput
from tidegate.core import faults
from tidegate.core.ids import EpochId, Uid

CALM_MS = 14_000
"""From the last fault until everything must stand still: sleepers have woken, late requests have landed."""
END_MS = 40_000
CLOCK_JUMPS_MS = (-7_200_000, 7_200_000, -5_000, 5_000)
RESTORED = (1, 6)
"""Seeds with this remainder and divisor restore the job from a backup."""
COPIED = (4, 6)
"""Seeds with this remainder and divisor copy the job's storage, and start the job from the copy while the original runs."""
COPIES_BEGIN = 1_000
"""The drivers of a copy are counted from here on."""
BACKLOGS = (2, 3)
"""Seeds with this remainder and divisor have targets that are away for seconds."""
BACKLOG_STEPS = ("publish.0-output",)
"""Steps that a job comes to only if output waits."""
RESCALE_STEPS = ("rescale", "claim-again", "before ")
"""Steps that a job comes to when it is rescaled."""
LATE_MS = 7_000
"""After a driver ended: until its last request is applied."""
REAL_STATE = (0, 2)
"""Seeds with this remainder, divided by 5, have tasks with real state (`chaos.simulation.tasks`), with and without changelog."""
MOST_REAL_TASKS = 8
ACTIONS = ("rollback", "savepoint", "claim", "stop", "cancel", "fork", "force", "fresh")
"""What an operator does to a job."""


@dataclass
class SimJob:
    """One job name, and the deployments that want to run it."""

    plan: JobPlan
    parallelisms: list[int]
    deployments: int
    running: list[SimDriver] = field(default_factory=list)
    savepoints: list[CheckpointRef] = field(default_factory=list)
    launched: int = 0
    is_down: bool = False
    """Stopped by its operator, who restores it from a backup, or continues with its copy."""
    is_restored: bool = False
    copy: World | None = None
    """The other place, of a job that is a copy."""
    peer: SimJob | None = None
    """The original of a copy, and the copy of an original: both write to one target."""
    shares_history: bool = False
    """Whether both continue one line of history, because the operator said that the directory was moved."""

    @property
    def place(self) -> str:
        return "here" if self.copy is None else "there"


class Run:
    """`crash_at` replaces all chances of the seed by one crash, at the n-th time a step is reached."""

    def __init__(self, seed: int, tasks: int | None = None, crash_at: tuple[str, int] | None = None) -> None:
        self.seed = seed
        self.world = World(seed)
        rng = self.rng = self.world.rng
        self.odds = Odds.drawn(rng)
        self._clock_rng = random.Random(f"wall clocks of {seed}")  # so that the other faults stay as they are
        self._rescale_rng = random.Random(f"rescales of {seed}")
        self._backup_rng = random.Random(f"backups of {seed}")
        self._target_rng = random.Random(f"targets of {seed}")
        self._restores = seed % RESTORED[1] == RESTORED[0] and crash_at is None
        """Whether the job of this seed is restored from a backup. Nothing outside its folder may then depend on that."""
        self._copies = seed % COPIED[1] == COPIED[0] and crash_at is None and seed % 5 not in REAL_STATE
        alone = self._restores or self._copies
        self._actions = [each for each in ACTIONS if not alone or each not in ("fork", "claim")]
        self._scripted = crash_at is not None
        if self._scripted:
            self.odds = replace(CALM)
            self.world.crash_at = crash_at
        self.faults_end_ms = rng.uniform(5_000, 14_000)
        self.jobs: list[SimJob] = []
        self.copies: list[SimJob] = []
        self.given_away: list[CheckpointRef] = []
        self._habits = rng.choices(self._actions, k=2)
        """What the operator of this seed does most. Rare interleavings need the same action several times over."""
        self._winding = False
        if tasks is None:
            tasks = rng.choice((1, 2, 3, 4, 4, 6, 8))
            if seed % 50 == 0:
                tasks = rng.choice((100, 300, 1_000))
            if seed % 200 == 0:
                tasks = 10_000
        cadence = Cadence(
            interval_ms=rng.choice((300, 700, 1_500)), timeout_ms=rng.choice((1_500, 4_000)),
            min_pause_ms=rng.choice((0, 200)), max_concurrent=rng.choice((1, 1, 2)), tolerable_failures=rng.choice((0,
            1, 5)),
        )  # fmt: skip
        retained, epoch_ms = rng.choice((1, 1, 2, 3)), rng.choice((100, 200, 350))
        self._real = seed % 5 in REAL_STATE and tasks <= MOST_REAL_TASKS
        plan = JobPlan(JobLayout("job"), tasks, cadence, retained, epoch_ms, real_state=self._real)
        if self._real:
            self.world.hosts = SimHosts(rng, self.world.tally.events, partial(self.world.serial, "f"))
        widths = sorted({tasks, max(1, tasks // 2), max(1, tasks // 3)})
        self._add(SimJob(plan, widths, rng.choice((1, 1, 2, 2, 3))))
        self.world.tally.events[f"seeds with {self.jobs[0].deployments} rivals"] += 1

    def _add(self, job: SimJob) -> None:
        self.jobs.append(job)
        watch = self.world.watch(job.plan.layout)
        watch.now_ms = lambda: self.world.clock.now_ms

    def go(self) -> Tally:
        """Raises `Violation`."""
        with self.world.hosts.names() if self._real else nullcontext(), judged_log():
            return self._go()

    def _go(self) -> Tally:
        world = self.world
        slots_per_folder, tasks_of_a_sweep = entries.SLOTS_PER_FOLDER, cleaner.TASKS_OF_A_SWEEP
        world.arm()
        try:
            world.set_odds(self.odds)
            for _ in range(self.jobs[0].deployments):
                self._launch(self.jobs[0], Start(), False, self.rng.uniform(0, 3_000))
            if self._scripted:
                self._plan_orders()
            for _ in range(self.rng.choice((0, 1, 2, 4, 8))):
                world.clock.after(self.rng.uniform(1_000, self.faults_end_ms), self._meddle)
            for _ in range(self.rng.choice((0, 0, 1, 8))):
                at = self.rng.uniform(1_000, self.faults_end_ms - 1_000)
                world.clock.after(at, lambda: self._read_aside(self.rng.choice(self.jobs)))
            for _ in range(self.rng.choice((0, 1, 1, 4))):
                world.clock.after(self.rng.uniform(500, self.faults_end_ms - 2_000), self._outage)
            self._plan_backlogs()
            for _ in range(self._clock_rng.choice((0, 1, 2, 8))):
                world.clock.after(self._clock_rng.uniform(500, self.faults_end_ms + CALM_MS), self._set_clocks)
            for _ in range(self._rescale_rng.choice((0, 1, 2, 4))):
                world.clock.after(self._rescale_rng.uniform(1_000, self.faults_end_ms), self._rescale)
            if self._restores:
                self._plan_restore(self.jobs[0])
            if self._copies:
                at = self._backup_rng.uniform(1_500, self.faults_end_ms - 2_500)
                world.clock.after(at, lambda: self._copy(self.jobs[0]))
            world.clock.after(self.faults_end_ms, lambda: world.set_odds(CALM))
            world.clock.after(self.faults_end_ms + CALM_MS, self._wind_down)
            world.clock.run(self.faults_end_ms + END_MS, self._done)
            self._judge()
        finally:
            faults.arm(None)
            entries.SLOTS_PER_FOLDER, cleaner.TASKS_OF_A_SWEEP = slots_per_folder, tasks_of_a_sweep
        return world.tally

    def _plan_orders(self) -> None:
        """What leads to the step at which the driver is to die."""
        world, job = self.world, self.jobs[0]
        orders = [(3_000, "cancel"), (4_500, "stop")]
        if world.crash_at is not None and world.crash_at[0].startswith("dispose"):
            orders += [(1_500, "savepoint"), (2_500, "savepoint"), (5_500, "savepoint")]
            for at in (6_000, 7_500):
                world.clock.after(at, lambda: self._claim_newest(job))
        if world.crash_at is not None and world.crash_at[0].startswith(RESCALE_STEPS):
            for at in (1_000, 2_000, 6_000, 7_000):
                world.clock.after(at, self._rescale)
        for at, order in orders:
            world.clock.after(at, partial(self._order, job, order))

    # deployments

    def _launch(self, job: SimJob, start: Start, force: bool, delay_ms: float) -> None:
        self.world.clock.after(delay_ms, lambda: self._begin(job, start, force))

    def _begin(self, job: SimJob, start: Start, force: bool, accepts: bool = False) -> None:
        if job.is_down:
            return  # It is started again when it is restored.
        job.launched += 1
        process = Process(name=f"{job.plan.layout.job}#{job.launched}", job=job.plan.layout.job)
        process.wall_offset_ms = self._clock_rng.choice((0, 0, *CLOCK_JUMPS_MS))
        world = self._world(job)
        start = replace(start, location=job.place)
        driver = SimDriver(world, job.plan, process, start, force, self.rng.choice(job.parallelisms))
        newest = world.watch(job.plan.layout).newest
        elsewhere = newest is not None and newest.location != job.place
        driver.is_copy = elsewhere and not start.fresh and not start.accepts_move
        driver.offers_again = start.fresh and not elsewhere and job.peer is not None
        driver.savepoints = job.savepoints
        driver.accepts = accepts
        driver.winding_down = self._winding
        process.on_exit = lambda how: self._supervise(job, driver, how)
        job.running.append(driver)
        world.spawn(process, driver.main(), main=True)

    def _world(self, job: SimJob) -> World:
        return self.world if job.copy is None else job.copy

    def _supervise(self, job: SimJob, driver: SimDriver, how: str) -> None:
        job.running.remove(driver)
        self.world.tally.events[f"exits: {how.partition(':')[0]}"] += 1
        if how.startswith(ForeignOutput.code) and self._decide_about_output(job, driver):
            return
        if how.startswith(DirectoryMoved.code):
            self._decide_about_copy(job)
            return
        self._launch(job, Start(), False, self.rng.uniform(300, 2_500))

    def _decide_about_output(self, job: SimJob, driver: SimDriver) -> bool:
        """A target has output that the job's log does not know. Return whether the operator starts the job in another way."""
        newest = self._world(job).watch(job.plan.layout).newest
        if job.shares_history:
            self._choose_one(job)
            return True
        if job.is_restored:
            if newest is not None and newest.base is not None and self._backup_rng.random() < 0.5:
                self.world.tally.events["new lines of history after a restore"] += 1
                # The operator was asked: what the abandoned line still owes may be written next to lost output.
                self.world.target(job.plan.layout.job).accept(self.world.storage)
                self._launch(job, Start(source=newest.base, fresh=True), True, 300)
            else:
                self.world.clock.after(300, lambda: self._begin(job, Start(), True, accepts=True))
            return True
        claim = driver.claim
        if claim is None or (newest is not None and claim.term == newest.term):
            raise Violation(f"{driver.process.name} does not know output of its own history")
        return False  # Its successor has committed: it has lost the job.

    def _copy(self, job: SimJob) -> None:
        """Copy everything that is stored to another place, and start the job there. The original goes on."""
        layout, log = job.plan.layout, self.world.watch(job.plan.layout).log
        if not log:
            return
        twin = self.world.twin()
        twin.restores = self.world.restores + 1  # no epoch may be run in both places
        copied = SimJob(job.plan, job.parallelisms, 1, launched=COPIES_BEGIN, copy=twin, peer=job)
        job.peer = copied
        self.copies.append(copied)
        watch = twin.watch(layout)
        watch.now_ms = lambda: self.world.clock.now_ms
        watch.restore(log)
        complete = {(e.lineage, e.id) for entry in log for e in self._chain(entry)}
        self.world.target(layout.job).share(complete, self.world.storage, twin.storage)
        self.world.tally.events["jobs copied"] += 1
        self.world.note("operator", f"copies {layout.root} with {len(log)} entries")
        self._launch(copied, Start(), False, self._backup_rng.uniform(0, 500))

    def _decide_about_copy(self, job: SimJob) -> None:
        """The copy was refused. The operator begins a new line of history in it, or believes that the original is gone."""
        assert job.peer is not None
        newest = self._world(job).watch(job.plan.layout).newest
        assert newest is not None
        if self._backup_rng.random() < 0.4:
            self.world.tally.events["copies that became a fork"] += 1
            self.world.target(job.plan.layout.job).overwrite()
            self._launch(job, Start(source=newest.base, fresh=True), True, 300)
            return
        self.world.tally.events["copies that continue the same history"] += 1
        job.shares_history = job.peer.shares_history = True
        self._launch(job, Start(accepts_move=True), True, self._backup_rng.choice((0, 300, 2_000)))
        self._work_in_the_dark(job)
        for _ in range(self._backup_rng.choice((0, 1, 4))):
            self.world.clock.after(self._backup_rng.uniform(0, 4_000), partial(self._replace, job.peer, Start(), True))

    def _work_in_the_dark(self, job: SimJob) -> None:
        """The job does not reach its target for a while, so nobody notices that another history writes there. It is claimed
        several times meanwhile, and the output of all its claims waits."""
        if self._backup_rng.random() < 0.4:
            return
        lasts_ms = self._backup_rng.uniform(1_000, 5_000)
        target = self.world.target(job.plan.layout.job)
        target.cut_off_until_ms[self._world(job).storage] = self.world.clock.now_ms + lasts_ms
        start = Start(accepts_move=job.copy is not None)
        for _ in range(self._backup_rng.choice((0, 1, 2))):
            self.world.clock.after(self._backup_rng.uniform(500, lasts_ms), lambda: self._replace(job, start, True))

    def _choose_one(self, job: SimJob) -> None:
        """One of two jobs that continue one history has met output of the other. The operator stops one of them for good."""
        assert job.peer is not None
        stopped, stays = (job, job.peer) if self._backup_rng.random() < 0.4 else (job.peer, job)
        if stays.is_down:
            stopped, stays = stays, stopped
        if not stopped.is_down:
            self.world.tally.events[f"one history in two places, {stopped.place} is stopped"] += 1
            stopped.is_down = True
            for driver in tuple(stopped.running):
                driver.process.on_exit = lambda how, driver=driver: stopped.running.remove(driver)  # type: ignore[misc]
                self._world(stopped).kill(driver.process, "stopped for its copy")
        if stays is job:
            # What tasks of the other one were about to publish must be there before the operator looks.
            start = Start(accepts_move=True)
            self.world.clock.after(LATE_MS, lambda: self._begin(job, start, True, accepts=True))

    def _plan_restore(self, job: SimJob) -> None:
        """Back up the job's folder while it runs, stop the job later, and restore the folder when no late request is left."""
        stops_ms = self._backup_rng.uniform(2_500, self.faults_end_ms - 2_000)
        self.world.clock.after(self._backup_rng.uniform(1_500, stops_ms - 300), lambda: self._back_up(job))
        self.world.clock.after(stops_ms, lambda: self._take_down(job))

    def _back_up(self, job: SimJob) -> None:
        root, storage = job.plan.layout.root, self.world.storage
        self._backup = {path: storage.objects[path] for path in storage.below(root) if "/pins/" not in path}
        self._backup_log = list(self.world.watch(job.plan.layout).log)
        self._backup_savepoints = list(job.savepoints)
        self.world.note("operator", f"backs up {root} with {len(self._backup_log)} entries")

    def _take_down(self, job: SimJob) -> None:
        if not self._backup_log:
            return  # A job whose backup is empty is a new job.
        job.is_down = True
        for driver in tuple(job.running):
            driver.process.on_exit = lambda how, driver=driver: job.running.remove(driver)  # type: ignore[misc]
            self.world.kill(driver.process, "stopped for a restore")
        self.world.clock.after(LATE_MS, lambda: self._restore(job))

    def _restore(self, job: SimJob) -> None:
        world, layout = self.world, job.plan.layout
        world.lost_names |= {*world.storage.below(layout.root)} - {*self._backup}
        world.storage.replace_below(layout.root, self._backup)
        world.watch(layout).restore(self._backup_log)
        world.restores += 1
        known = {(e.lineage, e.id) for entry in self._backup_log for e in self._chain(entry)}
        target = world.target(layout.job)
        for (lineage, _, _), shown in target.visible.items():
            target.lost |= {(lineage, epoch) for epoch in shown} - known
        if {entry.lineage for entry in world.watch(layout).lost} - {self._backup_log[-1].lineage}:
            # The lost history had begun a new line. Its markers are not of the line that the backup continues.
            target.overwrite()
        job.savepoints[:] = self._backup_savepoints
        job.is_down, job.is_restored = False, True
        world.tally.events["jobs restored from a backup"] += 1
        world.tally.events["jobs restored that had lost output"] += bool(target.lost)
        world.note("operator", f"restores {layout.root}, {len(target.lost)} epochs of output are lost")
        for _ in range(job.deployments):
            self._launch(job, Start(), False, self._backup_rng.uniform(0, 500))
        self._work_in_the_dark(job)

    def _chain(self, entry: Entry) -> list[Epoch]:
        if entry.base is None or entry.base.checksum not in self.world.snapshots:
            return []
        return list(self.world.epoch_of(entry.base).chain())

    def _outage(self) -> None:
        if self.rng.random() < 0.5:
            self.world.tally.events["outages of storage"] += 1
            self.world.storage.away_until_ms = self.world.clock.now_ms + self.rng.uniform(50, 1_500)
            return
        self.world.tally.events["outages of a target"] += 1
        target = self.world.target(self.rng.choice(self.jobs).plan.layout.job)
        target.away_until_ms[self.rng.choice(SINKS)] = self.world.clock.now_ms + self.rng.uniform(500, 6_000)

    def _plan_backlogs(self) -> None:
        """In some seeds a target is away for so long that many checkpoints carry the same output."""
        scripted = self._scripted and self.world.crash_at is not None and self.world.crash_at[0] in BACKLOG_STEPS
        if not scripted and (self._scripted or self.seed % BACKLOGS[1] != BACKLOGS[0]):
            return
        self.world.tally.events["seeds with a backlog"] += 1
        for begin_ms in (500, 6_000):
            sinks = SINKS if scripted else self._target_rng.sample(SINKS, self._target_rng.choice((1, 2, 3)))
            self.world.clock.after(begin_ms, lambda sinks=tuple(sinks): self._keep_away(sinks))

    def _keep_away(self, sinks: tuple[Uid, ...]) -> None:
        for job in self.jobs:
            away_until_ms = self.world.target(job.plan.layout.job).away_until_ms
            for sink in sinks:
                away_until_ms[sink] = self.world.clock.now_ms + self._target_rng.uniform(2_000, 5_000)

    def _set_clocks(self) -> None:
        """Somebody sets the wall clock of each machine, in calm weather too. Nothing may wait for it."""
        self.world.tally.events["jumps of a wall clock"] += 1
        for job in self.jobs:
            for driver in job.running:
                driver.process.wall_offset_ms += self._clock_rng.choice(CLOCK_JUMPS_MS)

    # the operator

    def _meddle(self) -> None:
        job = self.rng.choice(self.jobs)
        what = self.rng.choice(self._habits if self.world.chance(0.6) else self._actions)
        newest = self.world.watch(job.plan.layout).newest
        if what in ("savepoint", "stop", "cancel"):
            self._order(job, what)
            if what == "savepoint":
                self.world.clock.after(self.rng.uniform(1_500, 4_000), lambda: self._rollback(job))
        elif what == "rollback":
            self._rollback(job)
        elif what == "claim":
            self._order(job, "savepoint")
            self.world.clock.after(self.rng.uniform(1_000, 4_000), lambda: self._claim_newest(job))
        elif what == "fork" and newest is not None and newest.retained and len(self.jobs) < 3:
            self._fork(job, newest)
        elif what in ("force", "fresh"):
            self.world.tally.events[f"starts with {what}"] += 1
            begins_at = newest.base if what == "fresh" and newest is not None and self.world.chance(0.5) else None
            self._replace(job, Start(source=begins_at, fresh=what == "fresh"), True)

    def _rescale(self) -> None:
        """Running drivers continue with another parallelism."""
        job = self._rescale_rng.choice(self.jobs)
        for driver in job.running:
            others = [each for each in job.parallelisms if each != driver.parallelism]
            if others:
                driver.orders.append(f"rescale {self._rescale_rng.choice(others)}")

    @staticmethod
    def _order(job: SimJob, what: str) -> None:
        for driver in job.running:
            driver.orders.append(what)

    def _replace(self, job: SimJob, start: Start, force: bool) -> None:
        """A new process takes the place of one deployment, whose old process is left to itself, alive or asleep."""
        if job.running:
            old = self.rng.choice(job.running)
            old.process.on_exit = lambda how: job.running.remove(old)
        self._launch(job, start, force, 0)

    def _rollback(self, job: SimJob) -> None:
        newest = self.world.watch(job.plan.layout).newest
        if newest is None or self.world.odds is CALM:
            return
        log = self.world.watch(job.plan.layout).log
        published = [e.base for e in log[-6:] if e.kind is EntryKind.CHECKPOINT and e.base is not None]
        older = published[:-1] + [s for s in job.savepoints if s.lineage == newest.lineage]
        if older:
            source = self.rng.choice(older)
            if not source.owned and not self._restores and self.world.chance(0.5):
                source = self._give_away(job, source)
            self.world.tally.events["rollbacks"] += 1
            self.world.note("operator", f"rolls {job.plan.layout.job} back to {source.metadata}")
            self._replace(job, Start(source=source), True)

    def _give_away(self, job: SimJob, savepoint: CheckpointRef) -> CheckpointRef:
        """Claim mode CLAIM: nobody starts from it any more, but for the job itself."""
        job.savepoints.remove(savepoint)
        self.given_away.append(replace(savepoint, claimed=True))
        self.world.tally.events["claims of a savepoint"] += 1
        return self.given_away[-1]

    def _claim_newest(self, job: SimJob) -> None:
        newest = self.world.watch(job.plan.layout).newest
        own = [ref for ref in job.savepoints if newest is not None and ref.lineage == newest.lineage]
        if own and self.world.odds is not CALM:
            self._replace(job, Start(source=self._give_away(job, own[-1])), True)

    def _fork(self, job: SimJob, newest: Entry) -> None:
        """Pin a checkpoint of a job that somebody else is running, and start another job from it."""
        own = [ref for ref in newest.retained if not ref.claimed]  # the product refuses another job's claimed savepoint
        if not own:
            return
        ref = self.rng.choice(own)
        origin, layout = job.plan.layout, JobLayout(self.world.serial("fork"))
        foreign = replace(ref, owned=False)
        pin = fork_pin(layout.job, foreign)
        plan = JobPlan(
            layout, job.plan.groups, job.plan.cadence, self.rng.choice((1, 2)), job.plan.epoch_ms, (origin, pin),
            real_state=job.plan.real_state,
        )  # fmt: skip
        forked = SimJob(plan, job.parallelisms, 1)

        def then() -> None:
            self.world.tally.events["forks"] += 1
            self.world.left_pins.add(origin.pin(pin))  # until a term begins that holds it
            self._add(forked)
            self._launch(forked, Start(source=foreign), False, 0)

        self._pin(origin, pin, ref, then)

    def _read_aside(self, job: SimJob) -> None:
        """Somebody copies a checkpoint of a running job, under a pin."""
        newest = self.world.watch(job.plan.layout).newest
        if newest is None or not newest.retained:
            return
        layout, pin = job.plan.layout, self.world.serial("pin")

        def read() -> None:
            self.world.tally.events["readers"] += 1
            self.world.clock.after(self.rng.uniform(100, 2_000), away)

        def away() -> None:
            self.world.watch(layout).unpin(pin)
            self.world.storage.apply_delete([layout.pin(pin)])

        self._pin(layout, pin, newest.retained[0], read)

    def _pin(self, origin: JobLayout, pin: str, ref: CheckpointRef, then: Callable[[], None]) -> None:
        """People take their time between looking and doing."""

        def pinning() -> Steps[str]:
            yield Sleep(self.rng.randrange(1, 700))
            try:
                yield from place(origin, pin, ref, "simulated")
            except PinTooLate:
                self.world.tally.events["pins too late"] += 1
                return "too late"
            self.world.watch(origin).pin(pin, ref)
            then()
            return "pinned"

        def gave_up(how: str) -> None:
            if how != "pinned":  # a person would see the pin in a list, and take it away
                self.world.clock.after(5_000, lambda: self.world.storage.apply_delete([origin.pin(pin)]))

        self.world.spawn(Process(name=f"reader-{pin}", on_exit=gave_up), pinning(), main=True)

    # the end

    def _wind_down(self) -> None:
        self._winding = True
        for job in (*self.jobs, *self.copies):
            for driver in job.running:
                driver.winding_down = True

    def _active(self) -> list[SimJob]:
        return [job for job in (*self.jobs, *self.copies) if not job.is_down]

    def _done(self) -> bool:
        return self._winding and all(any(d.at_rest for d in job.running) for job in self._active())

    def _judge(self) -> None:
        if not self._done():
            stuck = [
                f"{job.plan.layout.job} {job.place}"
                for job in self._active()
                if not any(d.at_rest for d in job.running)
            ]
            raise Violation(f"no driver of {stuck} came to an end although nothing goes wrong any more")
        for job in self._active():
            self._judge_job(job)
            self.world.tally.events["deleted slots created again"] += self.world.watch(job.plan.layout).ghosts

    def _judge_job(self, job: SimJob) -> None:  # noqa: C901 a list of what must hold
        world = self._world(job)
        watch = world.watch(job.plan.layout)
        newest = watch.newest
        assert newest is not None
        assert newest.base is not None
        # A step that is rarely reached may crash its driver long after all other faults; that claim has a reason.
        flaps = [at for at in watch.claim_times.values() if at > max(self.faults_end_ms, world.crashed_ms) + CALM_MS]
        if flaps:
            raise Violation(f"{len(flaps)} claims although the owner was healthy: drivers flap")
        others = list(watch.lost)
        """Entries of other histories that wrote to the same target."""
        if job.peer is not None:
            others += self._world(job.peer).watch(job.plan.layout).log
        lines = {entry.lineage for entry in (*watch.log, *others)}
        completed: set[tuple[str, EpochId]] = set()
        wanted: set[tuple[Channel, EpochId]] = set()
        for entry in watch.log:
            if entry.base is not None and (entry.kind is not EntryKind.CLAIM or entry.base.lineage == entry.lineage):
                for e in self._chain(entry):
                    if e.lineage in lines:
                        completed.add((e.lineage, e.id))
                        wanted.update((lane, e.id) for lane in e.output)
        completed |= {(e.lineage, e.id) for entry in others for e in self._chain(entry)}
        if self._real:
            check_restore(world, world.snapshots[newest.base.checksum], job.plan.groups)
        surviving = list(world.epoch_of(newest.base).chain())
        self._judge_positions(surviving)
        for lane, shown in world.target(job.plan.layout.job).visible.items():
            if lane[0] not in lines:
                raise Violation(
                    f"output of {lane[0]} is visible in the target of {job.plan.layout.job}, which never had it"
                )
            repeats = world.target(job.plan.layout.job).repeats
            if any(times > 1 + repeats[lane, epoch] for epoch, times in Counter(shown).items()):
                raise Violation(f"output of {lane} became visible twice: {[str(e) for e in shown]}")
            for epoch in shown:
                if (lane[0], epoch) not in completed:
                    raise Violation(
                        f"output of {lane} at epoch {epoch} is visible; no checkpoint of its branch completed"
                    )
            wanted -= {(lane, epoch) for epoch in shown}
        if wanted:
            lost = sorted(f"{lane} at {epoch}" for lane, epoch in wanted)
            raise Violation(f"output was lost: {lost[:5]}")
        kept = {ref.metadata for ref in (*newest.retained, newest.base)}
        once = given_to(watch.log)
        kept |= {ref.metadata for ref in watch.pinned.values()}
        for ref in self.given_away:
            if ref.metadata in once - kept:
                named = {ref.metadata, *world.snapshots[ref.checksum].paths}
                # Others may be there: uploads of second attempts that ended after the savepoint was complete.
                if stays := named.intersection(world.storage.objects):
                    raise Violation(f"a claimed savepoint was dropped and not deleted: {sorted(stays)[:5]}")
        if old := watch.old_folders():
            raise Violation(f"old folders of the log stay: {old[:5]}")
        if leftovers := watch.leftovers():
            raise Violation(f"{len(leftovers)} files stay although nothing needs them: {leftovers[:5]}")

    @staticmethod
    def _judge_positions(surviving: list) -> None:  # type: ignore[type-arg]
        for child in surviving:
            if child.start != (0 if child.parent is None else child.parent.end):
                raise Violation(f"epoch {child.id} does not begin where the one before it ended")


def given_to(log: Sequence[Entry]) -> set[str]:
    """The savepoints that a job with this log was given, by name. A copy whose operator says that the directory was moved
    continues its original's history, and deletes those of before the move, too. One that begins a new line of history leaves them
    to its original."""
    begins = 0
    for at, (before, entry) in enumerate(pairwise(log), 1):
        if entry.location != before.location and entry.lineage != before.lineage:
            begins = at
    return {ref.metadata for entry in log[begins:] for ref in entry.retained if ref.claimed}


def simulate(seed: int, tasks: int | None = None, crash_at: tuple[str, int] | None = None) -> Tally:
    """Run one seed. Raises `Violation` with the trace in `__notes__`."""
    run = Run(seed, tasks, crash_at)
    try:
        return run.go()
    except Violation as violation:
        lines = [f"{at:10.1f} ms  {who:10}  {what}" for at, who, what in run.world.trace]
        violation.add_note("\n".join(lines))
        raise
