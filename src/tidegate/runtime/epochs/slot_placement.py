"""The placement of slots on executors: each slot on the host that has its state, as long as the anchor holds."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from tidegate.config.declared.waiting import SLOT_TIMEOUT
from tidegate.core.errors import EpochFailed
from tidegate.core.ids import EpochId, HostId, Lineage, Slot, TaskId, Term
from tidegate.runtime.epochs.deadline import ProgressWatch, deadline, is_dead, watched
from tidegate.runtime.epochs.failover import Rewind, first_line
from tidegate.runtime.epochs.settings import Settings
from tidegate.runtime.epochs.tolerance import Tolerance
from tidegate.runtime.exchange.progress_marks import SHARE_OF_LIMIT, MarkPlace
from tidegate.runtime.placement import executor_quota, permutation
from tidegate.runtime.placement.anchor import Anchor, PlacementMarks, Probe, create_anchor
from tidegate.runtime.placement.local_versions import LocalVersions
from tidegate.runtime.placement.permutation import Placed, Unplaceable
from tidegate.runtime.spark_versions import IncompatibleSpark

log = logging.getLogger("tidegate")

_TIDY_MS = 10_000
"""How long the end of a job may take to remove its local versions."""
_COLD_START_MS = 15_000
"""How long new executors and Python workers may take before they run the first task."""
_TRIES = 3
"""How often a job with state tries to reach a host within `host_timeout_ms`."""


@dataclass(frozen=True, slots=True)
class PlacedSlots:
    """An anchor, and for each level the partition that serves each slot."""

    anchor: Anchor
    levels: tuple[Placed, ...]

    def slots(self, level: int) -> tuple[Slot, ...]:
        """Return the slot of each partition of a level."""
        return self.levels[level - 1].slots()

    def host_of(self, task: TaskId) -> HostId | None:
        """Return the host where a task runs, unless it is one of another parallelism."""
        if not 0 < task.level <= len(self.levels):
            return None
        partitions = self.levels[task.level - 1].partitions
        return self.anchor.layout[partitions[task.slot]] if task.slot < len(partitions) else None

    def salts(self, level: int) -> tuple[int, ...]:
        """Return, for each slot of a level, the salt of the partition that serves it."""
        return tuple(self.anchor.salts[partition] for partition in self.levels[level - 1].partitions)


@dataclass(frozen=True, slots=True)
class SlotHomes:
    """The hosts where slots belong."""

    levels: tuple[tuple[HostId | None, ...], ...]
    """For each level, the host of each slot. None: any host."""
    required: bool
    """Whether a slot must be on its host. If not, a task on another host fetches its files from the checkpoint."""

    def or_where(self, found: Mapping[TaskId, HostId]) -> SlotHomes:
        """Return the same, with the hosts on which files were found for slots that may be on any host."""
        return replace(
            self,
            levels=tuple(
                tuple(home or found.get(TaskId(level, Slot(slot))) for slot, home in enumerate(homes))
                for level, homes in enumerate(self.levels, start=1)
            ),
        )

    def place(self, layout: Sequence[HostId]) -> tuple[Placed, ...] | Unplaceable:
        """Place the slots. `layout` is the host of each partition."""
        levels: list[Placed] = []
        for homes in self.levels:
            placed = permutation.place(layout, homes)
            # Preferred hosts only save downloads. Those slots may go anywhere.
            if isinstance(placed, Unplaceable) and not self.required:
                anywhere = placed.slots
                placed = permutation.place(layout, [None if i in anywhere else home for i, home in enumerate(homes)])
            if isinstance(placed, Unplaceable):
                return placed
            levels.append(placed)
        return tuple(levels)


@dataclass(frozen=True, slots=True)
class _NoPlace:
    """Why an anchor does not hold, and the hosts it reached."""

    reason: Unplaceable | str
    seen: frozenset[HostId] = frozenset()

    @property
    def is_uneven(self) -> bool:
        """Whether all hosts are available, but with a number of partitions that does not match their state."""
        return isinstance(self.reason, Unplaceable) and self.seen.issuperset(self.reason.hosts)


class SlotPlacement:
    """Anchors the partitions of a job and assigns its slots to them. Owned by one thread at a time."""

    def __init__(self, session: SparkSession, levels: int, nothing: LocalVersions) -> None:
        """`nothing` names the lineage: at first, no versions of it are looked for."""
        self._session = session
        self._levels = levels
        self._preferred: Mapping[TaskId, HostId] = {}
        """Hosts where tasks without a version may still find files of earlier ones."""
        self._looked_for = nothing
        """Versions that any host may have."""
        self._placed: PlacedSlots | None = None
        self._tolerance = Tolerance()
        self._is_spark_checked = False
        """Whether a job on an anchor has shown that Spark puts rows where it must. The code of Spark does not change later."""
        self._slowest_ms = 0
        """How long the slowest placement took that succeeded; halved with each one, so that one slow start does not delay for
        ever the moment at which a host is given up."""

    def place(
        self, hosts: Mapping[TaskId, HostId], settings: Settings, mark_place: MarkPlace, term: Term
    ) -> PlacedSlots | Rewind:
        """Place anchors until every slot is on the host of its version, unless the current anchor holds. `hosts`
        are the hosts of the versions. If one of them is unavailable longer than `host_timeout_ms`, its
        versions are lost: return a rewind. A job without versions cannot lose any: it waits for executors and Python
        workers as long as one more of them starts within `slot_timeout_ms`. Then it raises `EpochFailed`, and at once if the
        session is dead.
        """
        if self._placed is not None:
            return self._placed

        homes = self._homes(hosts, settings.parallelism)
        timeout_ms = settings.host_timeout_ms if homes.required else settings.slot_timeout_ms
        latest = time.monotonic() + timeout_ms / 1000

        # A host that neither responds nor is given up by Spark must not use up all the time. Nor may the other hosts,
        # whose Python workers end with an interrupted job and start cold again, be interrupted too soon.
        silent_ms = max(timeout_ms // _TRIES, _COLD_START_MS, 2 * self._slowest_ms) if homes.required else timeout_ms

        option = "host_timeout_ms" if homes.required else SLOT_TIMEOUT.key
        spread_ms = settings.spread_ms
        quotas: executor_quota.Quotas | None = None

        while True:
            started = time.monotonic()
            # Epochs begin at 1: no epoch has these marks.
            marks = PlacementMarks(mark_place, EpochId(term, 0), time.time() + silent_ms / SHARE_OF_LIMIT / 1000)
            watch = ProgressWatch(silent_ms, option, self._tolerance, marks.take)
            retention_s = settings.local_retention_ms / 1000
            probe = Probe(
                versions=self._sought(homes),
                local_dir=settings.local_dir,
                spread_ms=spread_ms,
                quotas=quotas,
                retention_s=retention_s,
                marks=marks,
                checks_spark=not self._is_spark_checked,
            )

            found = self._anchor_once(homes, settings.parallelism, watch, probe)
            # Also after a failure: it removes marks that nobody looks for any more.
            self._tolerance = watch.end()
            if isinstance(found, PlacedSlots):
                self._placed = found
                self._slowest_ms = max(self._slowest_ms // 2, round((time.monotonic() - started) * 1000))
                return found

            log.info("tasks could not be placed yet: %s", found.reason)
            # Otherwise every try would fail at once, until the time is over.
            if isinstance(found.reason, str) and is_dead(self._session):
                raise EpochFailed(
                    f"The Spark session has ended while tasks were placed: {found.reason}.", session_ended=True
                )
            # Silence for the whole limit: no core became free, and no Python worker started. Another try would wait for the same.
            if watch.interrupted and not homes.required:
                raise _not_placed(found.reason)

            # Executors that start slowly get no partition if the first ones take all of them at once.
            spread_ms = min(spread_ms * 2, 2_000)
            # If Spark spreads partitions differently from the state, quotas steer it.
            wanted = permutation.quotas(homes.levels) if found.is_uneven else None
            quotas = None if wanted is None else executor_quota.quotas(wanted, max(spread_ms, 500))

            time.sleep(0.2)
            if round((latest - time.monotonic()) * 1000) <= 0:
                return _given_up(found.reason, timeout_ms)

    def prefer(self, hosts: Mapping[TaskId, HostId], versions: LocalVersions) -> None:
        """Release the anchor. As long as tasks have no versions, place them on these hosts if possible, and others on the host
        that has their version, if one is found."""
        self.discard_anchor()
        self._preferred = hosts
        self._looked_for = versions

    def discard_anchor(self) -> None:
        """Release the anchor: the next epoch places its slots again."""
        if self._placed is not None:
            self._placed.anchor.unpersist()
            self._placed = None

    def remove_versions(self, job: str, lineage: Lineage, local_dir: str | None, leave: bool) -> None:
        """Remove the versions of a lineage from the hosts of the anchor, or `leave` them there for the next run. A failure is
        logged: the versions stay there."""
        if self._placed is None:
            return
        try:
            with deadline(self._session, "tidying up", _TIDY_MS):
                self._placed.anchor.forget(job, lineage, local_dir, leave)
        except Exception as error:
            log.warning("local state of this run was left behind: %s", first_line(error))

    def _sought(self, homes: SlotHomes) -> LocalVersions:
        """The versions that the hosts are asked for."""
        # A job that has versions looks for no others.
        return replace(self._looked_for, wanted={}) if homes.required else self._looked_for

    def _anchor_once(
        self, homes: SlotHomes, parallelism: int, watch: ProgressWatch, probe: Probe
    ) -> PlacedSlots | _NoPlace:
        try:
            with watched(self._session, "the placement of the tasks", watch):
                anchor = create_anchor(self._session, parallelism, probe)
        except IncompatibleSpark:
            raise
        except Exception as error:
            return _NoPlace(first_line(error))
        self._is_spark_checked = True
        levels = homes.or_where(anchor.found).place(anchor.layout)
        if isinstance(levels, Unplaceable):
            anchor.unpersist()
            return _NoPlace(levels, frozenset(anchor.layout))
        return PlacedSlots(anchor, levels)

    def _homes(self, hosts: Mapping[TaskId, HostId], parallelism: int) -> SlotHomes:
        wanted = hosts or self._preferred
        return SlotHomes(
            tuple(
                tuple(wanted.get(TaskId(level, Slot(slot))) for slot in range(parallelism))
                for level in range(1, self._levels + 1)
            ),
            required=bool(hosts),
        )


def _given_up(reason: Unplaceable | str, timeout_ms: int) -> Rewind:
    match reason:
        case Unplaceable(slots, hosts):
            return Rewind(
                f"The state of slots {list(slots)} is on the hosts {', '.join(hosts)}, which were unavailable or had no "
                f"free core for {timeout_ms} ms (host_timeout_ms)"
            )
        case _:
            raise _not_placed(reason)


def _not_placed(reason: Unplaceable | str) -> EpochFailed:
    return EpochFailed(
        f"Spark has not started the tasks of the job: {reason}. Check that it has as many free cores as the job needs, and that "
        "its executors can start Python."
    )
