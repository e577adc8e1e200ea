"""Every state of a snapshot gets a verdict before a job starts, and the job starts only if none is a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import make_dataclass
from typing import Any

import pytest

from tests.unit.savepoint.checkpoint_kit import Operator, listing, mapping, value
from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorInfo, SnapshotKind, SourcePosition
from tidegate.core.ids import EpochId, Lineage, Term, Uid
from tidegate.core.types import codec_of
from tidegate.graph.states import StateKind, StateSpec
from tidegate.savepoint.compatibility import Compatibility, JobNow, VerdictKind, judge
from tidegate.state.accessors.ttl import Stamp, stamp_of, unstamped


def operator(uid: str, *states: StateSpec, key: tuple[str, ...] = ("string",)) -> OperatorInfo:
    ids = {(uid, state.name): number for number, state in enumerate(states, 1)}
    return Operator(uid, key, states, {}).info(ids, 2, "hashmap")


def snapshot(*operators: OperatorInfo, sources: tuple[str, ...] = ()) -> CheckpointMetadata:
    epoch = EpochId(Term(1), 1)
    positions = tuple(SourcePosition(Uid(uid), ("{}",)) for uid in sources)
    return CheckpointMetadata(
        job="job",
        lineage=Lineage("l"),
        checkpoint_id=1,
        term=Term(1),
        epoch=epoch,
        kind=SnapshotKind.SAVEPOINT,
        triggered_ms=0,
        completed_ms=0,
        tidegate_version="0.1.0",
        spark_version="4.3.0",
        max_parallelism=128,
        parallelism=2,
        clock_ms=0,
        operators=operators,
        positions=positions,
    )


def outcomes(answer: Compatibility) -> dict[str, str]:
    return {f"{v.uid}/{v.state}": str(v.outcome) for v in answer.verdicts}


BEFORE = snapshot(operator("totals", value("total", int), mapping("seen", str, int)), sources=("clicks",))


@pytest.mark.feature("I16", "I17")
def test_state_without_an_operator_needs_leave_to_be_dropped() -> None:
    now = JobNow((operator("sums", value("total", int)),), (Uid("clicks"),))
    answer = judge(BEFORE, now)
    assert outcomes(answer) == {
        "sums/total": "new", "totals/total": "dropped", "totals/seen": "dropped", "clicks/None": "as is",
    }  # fmt: skip
    assert not answer.compatible
    assert "-n" in answer.refusals[0].advice
    assert judge(BEFORE, now, allow_non_restored_state=True).compatible


@pytest.mark.feature("I37")
def test_a_mapped_uid_is_the_same_operator() -> None:
    now = JobNow((operator("sums", *[value("total", int), mapping("seen", str, int)]),), (Uid("taps"),))
    mapped = JobNow(now.operators, now.sources, uids={"totals": "sums", "clicks": "taps"})
    assert set(outcomes(judge(BEFORE, mapped)).values()) == {"as is"}


@pytest.mark.feature("I31")
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([value("total", int), mapping("seen", str, int)], {"total": "as is", "seen": "as is"}),
        ([value("total", float), mapping("seen", str, int)], {"total": "migrated", "seen": "as is"}),
        ([value("total", str), mapping("seen", str, int)], {"total": "incompatible", "seen": "as is"}),
        ([listing("total", int), mapping("seen", str, int)], {"total": "incompatible", "seen": "as is"}),
        ([value("total", int), mapping("seen", int, int)], {"total": "as is", "seen": "incompatible"}),
        ([value("total", int), mapping("seen", str, float)], {"total": "as is", "seen": "migrated"}),
        ([value("total", int)], {"total": "as is", "seen": "as is"}),
        ([value("total", int), value("more", int)], {"total": "as is", "seen": "incompatible", "more": "new"}),
    ],
)
def test_each_state_is_judged_for_itself(states: list[StateSpec], expected: Mapping[str, str]) -> None:
    answer = judge(BEFORE, JobNow((operator("totals", *states),), (Uid("clicks"),)))
    assert {v.state: str(v.outcome) for v in answer.verdicts if v.state} == expected


@pytest.mark.feature("I31")
def test_a_key_never_changes_silently() -> None:
    now = operator("totals", value("total", int), mapping("seen", str, int), key=("bigint",))
    answer = judge(BEFORE, JobNow((now,), (Uid("clicks"),)), allow_non_restored_state=True)
    assert {v.state: v.outcome for v in answer.refusals} == dict.fromkeys(["total", "seen"], VerdictKind.INCOMPATIBLE)


@pytest.mark.feature("A13")
def test_max_parallelism_is_part_of_the_verdict() -> None:
    now = JobNow(BEFORE.operators, (Uid("clicks"),), max_parallelism=64)
    [refusal] = judge(BEFORE, now).refusals
    assert "savepoint copy --max-parallelism 64" in refusal.advice


@pytest.mark.feature("I32")
def test_sources_may_be_added_and_removed() -> None:
    answer = judge(BEFORE, JobNow(BEFORE.operators, (Uid("taps"),)))
    assert outcomes(answer)["taps/None"] == "new"
    assert [v.uid for v in answer.refusals] == ["clicks"]


@pytest.mark.feature("I31")
def test_the_conversion_of_a_list_takes_whole_segments_and_declared_renames() -> None:
    old, new = make_dataclass("R", [("a", int)]), make_dataclass("R", [("z", float)])
    before = snapshot(operator("op", listing("l", old)))
    now = JobNow((operator("op", listing("l", new)),), renames={("op", "l"): {"a": "z"}})
    [verdict] = judge(before, now).verdicts
    assert verdict.outcome is VerdictKind.MIGRATED
    assert verdict.convert is not None
    segment: Any = codec_of(list[old]).encode([old(1), old(2)])
    assert codec_of(list[new]).decode(verdict.convert(segment)) == [new(1.0), new(2.0)]


@pytest.mark.feature("I31")
def test_kinds_with_one_layout_may_take_each_others_place() -> None:
    sorted_map = StateSpec(name="seen", kind=StateKind.SORTED_MAP, value=int, map_key=str)
    reducing = StateSpec(name="total", kind=StateKind.REDUCING, value=int, function=max)
    answer = judge(BEFORE, JobNow((operator("totals", reducing, sorted_map),), (Uid("clicks"),)))
    assert set(outcomes(answer).values()) == {"as is"}


def test_a_conversion_keeps_the_stamp_of_a_time_to_live() -> None:
    now = JobNow((operator("totals", value("total", float), mapping("seen", str, int)),))
    verdict = next(v for v in judge(BEFORE, now).verdicts if v.state == "total")
    assert verdict.convert is not None
    stamp = Stamp(True, 7)
    raw = verdict.convert(stamp.before(codec_of(int).encode(5)))
    assert (stamp_of(raw), codec_of(float).decode(unstamped(raw))) == (stamp, 5.0)
