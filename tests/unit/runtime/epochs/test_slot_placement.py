"""Slots on the hosts of their state, over all levels of a job."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tidegate.core.errors import EpochFailed
from tidegate.core.ids import HostId, Lineage, Partition, Slot, TaskId, Term
from tidegate.runtime.epochs import slot_placement
from tidegate.runtime.epochs.settings import Settings
from tidegate.runtime.epochs.slot_placement import PlacedSlots, SlotHomes, SlotPlacement
from tidegate.runtime.exchange.progress_marks import MarkPlace
from tidegate.runtime.placement.anchor import Anchor, Probe
from tidegate.runtime.placement.local_versions import LocalVersions
from tidegate.runtime.placement.permutation import Placed, Unplaceable
from tidegate.runtime.spark_versions import IncompatibleSpark

A, B, GONE = HostId("a"), HostId("b"), HostId("gone")


def placed(*partitions: int) -> Placed:
    return Placed(tuple(Partition(each) for each in partitions))


@pytest.mark.feature("A12")
def test_every_level_is_placed_on_the_hosts_of_its_versions():
    homes = SlotHomes(((A, B), (B, A)), required=True)
    assert homes.place([A, B]) == (placed(0, 1), placed(1, 0))


def test_a_slot_whose_host_is_gone_has_no_place():
    homes = SlotHomes(((A, B), (GONE, B)), required=True)
    assert homes.place([A, B]) == Unplaceable((Slot(0),), (GONE,))


@pytest.mark.feature("H11")
def test_a_slot_that_only_prefers_a_host_is_placed_on_another():
    homes = SlotHomes(((B, GONE),), required=False)
    assert homes.place([A, B]) == (placed(1, 0),)


@pytest.mark.feature("H11")
def test_preferred_hosts_with_too_few_partitions_keep_as_many_slots_as_they_can():
    homes = SlotHomes(((B, B, B),), required=False)
    assert homes.place([A, B, B]) == (placed(0, 1, 2),)


LINE = Lineage("line")


class Starts:
    """Spark, which starts the workers of a job one after the other, and loses those of a job that is interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, workers: int, each_s: float) -> None:
        self.tries = 0
        self.probes: list[Probe] = []
        self._interrupted = threading.Event()
        self.place = MarkPlace("job", LINE, None, str(tmp_path))

        def create_anchor(session: object, parallelism: int, probe: Probe) -> Anchor:
            self.tries += 1
            self.probes.append(probe)
            self._interrupted.clear()
            for _ in range(workers):
                if self._interrupted.wait(each_s):
                    raise RuntimeError("cancelled")
                assert probe.marks is not None
                probe.marks.leave()
            return Anchor(None, (A, A), (70, 71))  # type: ignore[arg-type]

        monkeypatch.setattr(slot_placement, "create_anchor", create_anchor)

    def interruptAll(self) -> None:
        self._interrupted.set()

    def placement(self) -> SlotPlacement:
        return SlotPlacement(self, 1, LocalVersions("job", LINE, {}))  # type: ignore[arg-type]

    def settings(self, slot_timeout_ms: int) -> Settings:
        return Settings(parallelism=2, max_parallelism=4, slot_timeout_ms=slot_timeout_ms)


def test_a_slow_start_is_not_interrupted_while_one_worker_after_the_other_starts(monkeypatch, tmp_path):
    """Together they take longer than the limit. An interruption would end those that have started."""
    spark = Starts(monkeypatch, tmp_path, workers=25, each_s=0.1)
    spark.placement().place({}, spark.settings(slot_timeout_ms=2_000), spark.place, Term(1))
    assert spark.tries == 1


@pytest.mark.feature("D31")
def test_hosts_look_for_versions_of_the_job_in_its_local_directory(monkeypatch, tmp_path):
    spark = Starts(monkeypatch, tmp_path, workers=1, each_s=0)
    settings = replace(spark.settings(slot_timeout_ms=60_000), local_dir="/fast")
    spark.placement().place({}, settings, spark.place, Term(1))
    assert [probe.local_dir for probe in spark.probes] == ["/fast"]


def test_a_stuck_start_fails_naming_the_option_and_gets_more_time_on_the_next_try(monkeypatch, tmp_path):
    spark = Starts(monkeypatch, tmp_path, workers=1, each_s=1.5)
    placement = spark.placement()
    with pytest.raises(EpochFailed, match=r"no progress for 1 s \(slot\.request\.timeout is 1 s\)"):
        placement.place({}, spark.settings(slot_timeout_ms=1_000), spark.place, Term(1))
    placed = placement.place({}, spark.settings(slot_timeout_ms=1_000), spark.place, Term(1))
    assert isinstance(placed, PlacedSlots)


def test_only_the_first_placement_checks_what_spark_does(monkeypatch, tmp_path):
    spark = Starts(monkeypatch, tmp_path, workers=1, each_s=0)
    placement = spark.placement()
    placement.place({}, spark.settings(slot_timeout_ms=60_000), spark.place, Term(1))
    monkeypatch.setattr(Anchor, "unpersist", lambda self: None)
    placement.discard_anchor()
    placement.place({}, spark.settings(slot_timeout_ms=60_000), spark.place, Term(1))
    assert [probe.checks_spark for probe in spark.probes] == [True, False]


def test_a_spark_that_fails_the_check_is_refused_at_once(monkeypatch, tmp_path):
    spark = Starts(monkeypatch, tmp_path, workers=1, each_s=0)
    tries = []

    def create_anchor(session: object, parallelism: int, probe: Probe) -> Anchor:
        tries.append(probe)
        raise IncompatibleSpark("a union does not keep the partitions of its inputs")

    monkeypatch.setattr(slot_placement, "create_anchor", create_anchor)
    with pytest.raises(IncompatibleSpark):
        spark.placement().place({}, spark.settings(slot_timeout_ms=60_000), spark.place, Term(1))
    assert len(tries) == 1


class Clocked:
    """Spark, whose placements take as long as they are told to, in a time of their own. None: until they are interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, takes_s: list[float | None]) -> None:
        self.now_s = 0.0
        self.interrupts = threading.Event()
        self.place = MarkPlace("job", LINE, None, str(tmp_path))
        self.tries = 0
        self.is_stopped = False

        def create_anchor(session: object, parallelism: int, probe: Probe) -> Anchor:
            self.tries += 1
            if self.is_stopped:
                self.now_s += 60
                raise ConnectionRefusedError(111, "Connection refused")
            took_s = takes_s.pop(0)
            if took_s is None:
                self.interrupts.wait(20)
                self.now_s += 3_600
                raise RuntimeError("cancelled" if self.interrupts.is_set() else "not interrupted")
            self.now_s += took_s
            return Anchor(SimpleNamespace(unpersist=lambda: None), (A, A), (70, 71))  # type: ignore[arg-type]

        monkeypatch.setattr(slot_placement, "create_anchor", create_anchor)
        clock = SimpleNamespace(monotonic=lambda: self.now_s, time=time.time, sleep=lambda _: None)
        monkeypatch.setattr(slot_placement, "time", clock)
        monkeypatch.setattr(slot_placement, "_COLD_START_MS", 100)

    @property
    def conf(self) -> SimpleNamespace:
        def get(key: str) -> str:
            if self.is_stopped:
                raise ConnectionRefusedError(111, "Connection refused")
            return "job"

        return SimpleNamespace(get=get)

    def range(self, end: int) -> None: ...

    def interruptAll(self) -> None:
        self.interrupts.set()


def test_one_slow_placement_does_not_delay_the_loss_of_a_host_forever(monkeypatch, tmp_path):
    """The first one took ten minutes. Ten fast ones later, a host that is silent has the time that it had before."""
    spark = Clocked(monkeypatch, tmp_path, [600.0, *[0.1] * 16, None])
    placement = SlotPlacement(spark, 1, LocalVersions("job", LINE, {}))  # type: ignore[arg-type]
    settings = Settings(parallelism=2, max_parallelism=4, host_timeout_ms=300)
    for _ in range(17):
        placement.place({}, settings, spark.place, Term(1))
        placement.discard_anchor()
    with pytest.raises(EpochFailed, match="made no progress for"):
        placement.place({TaskId(1, Slot(0)): A}, settings, spark.place, Term(1))


@pytest.mark.parametrize("hosts", [{}, {TaskId(1, Slot(0)): A}], ids=["any host", "the host of the state"])
def test_a_placement_ends_at_once_if_the_session_is_dead(monkeypatch, tmp_path, hosts):
    spark = Clocked(monkeypatch, tmp_path, [])
    spark.is_stopped = True
    placement = SlotPlacement(spark, 1, LocalVersions("job", LINE, {}))  # type: ignore[arg-type]
    with pytest.raises(EpochFailed, match="session has ended") as failed:
        placement.place(hosts, Settings(parallelism=2, max_parallelism=4), spark.place, Term(1))
    assert failed.value.session_ended
    assert spark.tries == 1
