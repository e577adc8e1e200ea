"""A state under another name: carried over where the job says so, and refused where it could be lost without a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.savepoint.checkpoint_kit import History, Operator, listing, mapping, value
from tests.unit.savepoint.test_compatibility import operator, outcomes, snapshot
from tests.unit.savepoint.test_restore_compatibility import Landing
from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorInfo, StateInfo, StateNumber, decode, encode
from tidegate.checkpoint.metadata.operators import with_undeclared_states
from tidegate.checkpoint.task.assignment import RestoreTarget, plan_restore
from tidegate.config.errors import OptionError
from tidegate.core.ids import Uid
from tidegate.graph.state_ids import assign
from tidegate.graph.states import Distribution, StateKind, StateSpec
from tidegate.savepoint.compatibility import JobInHarness, JobNow, judge
from tidegate.savepoint.copy import copy_snapshot
from tidegate.savepoint.renames import DeclaredNames, carried_over
from tidegate.savepoint.restore_compatibility import StateChanged, check_names, fit
from tidegate.savepoint.snapshot import CANONICAL, NATIVE, StoredSnapshot
from tidegate.storage import open_storage

UID = Uid("totals")
Names = Mapping[str, tuple[str, ...]]
"""The states that a version of a job declares, with their earlier names."""


@dataclass
class Limit:
    most: int


@dataclass
class Versions:
    """One job through its versions: each starts from the snapshot of the one before, as a driver does."""

    stored: CheckpointMetadata = field(default_factory=lambda: snapshot(operator(str(UID), value("a", int))))

    def start(self, names: Names, drops: frozenset[str] = frozenset()) -> dict[str, int] | None:
        """Start a version and take its first checkpoint. Return the number of each declared state; None if it is refused."""
        before = carried_over(self.stored, DeclaredNames({UID: names}))
        known = {(number.uid, number.name): number.id for number in before.state_numbers}
        numbers = assign(known, [(UID, name) for name in names])
        dropped = {(str(UID), name) for name in drops}
        now = self._described(names, numbers)
        job = JobNow((now,), drops=dropped)
        try:
            fit(before, job, False)
        except StateChanged:
            assert not judge(before, job).compatible
            return None
        assert judge(before, job).compatible
        described = with_undeclared_states([now], before, dropped - {(UID, name) for name in names})
        listed = tuple(StateNumber(uid, name, id) for (uid, name), id in numbers.items())
        # Through the bytes of `_metadata`: what tells a rename that was made must be stored.
        self.stored = decode(encode(replace(before, operators=described, state_numbers=listed)))
        assert carried_over(self.stored, DeclaredNames({UID: names})) == self.stored
        return {name: numbers[UID, name] for name in names}

    def held(self) -> dict[int, StateInfo]:
        return {state.id: state for each in self.stored.operators for state in each.states}

    def _described(self, names: Names, numbers: Mapping[tuple[Uid, str], int]) -> OperatorInfo:
        states = tuple(
            StateInfo(name=name, id=numbers[UID, name], kind="value", value={"type": "int"}, renamed_from=earlier)
            for name, earlier in names.items()
        )
        return OperatorInfo(UID, 1, 2, "hashmap", {"columns": ["string"]}, states)


@st.composite
def versions(draw: st.DrawFn) -> Names:
    """Draw what one version declares: no name claims itself, and none is claimed twice."""
    names = draw(st.lists(st.sampled_from("abcde"), unique=True, max_size=4))
    free = draw(st.permutations("abcdex"))
    claims: dict[str, tuple[str, ...]] = {}
    for name in names:
        wanted = draw(st.integers(0, 2))
        claims[name] = tuple(old for old in free if old != name)[:wanted]
        free = [old for old in free if old not in claims[name]]
    return claims


@pytest.mark.feature("I31")
@given(st.lists(st.tuples(versions(), st.frozensets(st.sampled_from("abcde"), max_size=2)), min_size=1, max_size=6))
def test_no_version_of_a_job_loses_a_state_silently(steps: list[tuple[Names, frozenset[str]]]) -> None:
    job = Versions()
    assert job.start({"a": ()}) is not None
    for names, drops in steps:
        before = job.held()
        numbers = job.start(names, drops)
        if numbers is None:
            assert job.held() == before
            continue
        assert len(set(numbers.values())) == len(numbers)
        new = {name: id for name, id in numbers.items() if id not in before}
        for id, was in before.items():
            if id not in job.held():
                assert was.name in drops
            elif was.declared and id not in numbers.values():
                assert not new, f"{was.name} disappeared while {new} appeared"
        for name, id in numbers.items():
            if id in before and before[id].name != name:
                assert before[id].name in names[name], "a state was renamed that nobody declared"
        # A start of the same version from its own snapshot changes nothing, whatever its declarations still say.
        assert job.start(names) == numbers


@pytest.mark.feature("I31")
@given(st.sets(st.sampled_from("abcd"), min_size=1), st.data())
def test_declared_renames_carry_every_state_over(old: set[str], data: st.DataObject) -> None:
    job = Versions(snapshot())
    first = job.start(dict.fromkeys(sorted(old), ()))
    assert first is not None
    targets = data.draw(st.permutations("abcdefgh"))
    renames = dict(zip(sorted(old), targets))
    second = job.start({new: () if new == was else (was,) for was, new in renames.items()})
    assert second == {new: first[was] for was, new in renames.items()}
    back = job.start({was: () if new == was else (new,) for was, new in renames.items()})
    assert back == first or set(renames) & set(
        renames.values()
    )  # after a swap, the same declarations would be made again


@pytest.mark.feature("I31")
def test_a_state_that_disappears_while_another_appears_is_refused() -> None:
    before = snapshot(operator("totals", value("total", int)))
    now = JobNow((operator("totals", value("sum", int)),))
    answer = judge(before, now, allow_non_restored_state=True)
    assert outcomes(answer) == {"totals/sum": "new", "totals/total": "incompatible"}
    [refusal] = answer.refusals
    assert refusal.advice == (
        "If 'total' is now called 'sum', write sum = tg.ValueState(int, …, renamed_from=\"total\"). If it is not needed any "
        "more, drop it with --drop-state totals/total."
    )
    with pytest.raises(StateChanged, match=r'sum = tg\.ValueState\(int, …, renamed_from="total"\)'):
        fit(before, now, True)
    dropping = replace(now, drops={("totals", "total")})
    assert outcomes(judge(before, dropping)) == {"totals/sum": "new", "totals/total": "dropped"}
    assert judge(before, dropping).compatible


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (listing("sum", int), r"sum = tg\.ListState\(int, …, renamed_from=\"total\"\)"),
        (mapping("sum", str, int), r"sum = tg\.MapState\(str, int, …, renamed_from=\"total\"\)"),
        (value("sum", Limit), r"sum = tg\.ValueState\(…, renamed_from=\"total\"\)"),
    ],
)
def test_advice_shows_the_line_that_renames_a_state(state: StateSpec, line: str) -> None:
    before = snapshot(operator("totals", value("total", int)))
    with pytest.raises(StateChanged, match=line):
        fit(before, JobNow((operator("totals", state),)), False)


def test_advice_in_the_harness_is_what_the_harness_takes() -> None:
    before = snapshot(operator("totals", value("total", int)))
    job = JobInHarness((operator("totals", value("sum", int)),))
    with pytest.raises(StateChanged, match=r"drop it with drop_state=\['total'\]"):
        fit(before, job, False)


NAMED = snapshot(operator("totals", value("limit", Limit), value("total", int)))


@pytest.mark.parametrize(
    ("renames", "drops", "message"),
    [
        (
            {},
            {("totals", "totl")},
            r"--drop-state totals/totl: 'totals' has no state 'totl'\. Did you mean totals/total\?",
        ),
        ({}, {("zzzz", "qq:most")}, r"--drop-state zzzz/qq:most: .*There are totals/limit, totals/total\."),
        ({("totals", "limt"): {"most": "top"}}, (), r"--renamed totals/limt:most=top: .*Did you mean totals/limit\?"),
        (
            {("totals", "limit"): {"mst": "top"}},
            (),
            r"the snapshot has no field 'mst' in this state\. Did you mean most\?",
        ),
        (
            {("totals", "limit"): {"most": "topp"}},
            (),
            r"this state of the job has no field 'topp'\. Did you mean top\?",
        ),
    ],
)
def test_a_name_that_never_was_is_refused_with_the_nearest(renames: Any, drops: Any, message: str) -> None:
    now = make_dataclass("Limit", [("top", int, 0)])
    job = JobNow((operator("totals", value("limit", now)),), renames=renames, drops=drops)
    with pytest.raises(OptionError, match=message):
        check_names(NAMED, job)


def test_a_field_that_neither_the_snapshot_nor_the_job_has_is_refused_though_nothing_else_changed() -> None:
    job = JobNow((operator("totals", value("limit", Limit)),), renames={("totals", "limit"): {"mst": "top"}})
    with pytest.raises(OptionError, match=r"the snapshot has no field 'mst' in this state\. Did you mean most\?"):
        check_names(NAMED, job)


def test_the_harness_names_states_as_it_takes_them() -> None:
    job = JobInHarness((operator("totals", value("limit", Limit)),), drops={("totals", "limt")})
    with pytest.raises(
        OptionError, match=r"drop_state=\['limt'\]: 'totals' has no state 'limt'\. Did you mean limit\?"
    ):
        check_names(NAMED, job)
    with pytest.raises(OptionError, match=r"There are limit, total\."):
        check_names(NAMED, replace(job, drops={("totals", "zzz")}))


def test_a_declaration_that_finds_nothing_is_mentioned() -> None:
    before = snapshot(operator("totals", value("total", int)))
    renamed = operator("totals", value("sum", int))
    (described,) = renamed.states
    now = JobNow((replace(renamed, states=(replace(described, renamed_from=("totl",)),)),))
    (refusal,) = judge(before, now).refusals
    assert "(its renamed_from='totl' is no state of the snapshot)" in refusal.reason


def test_names_that_an_earlier_start_has_used_may_stay_in_a_script() -> None:
    now = make_dataclass("Limit", [("top", int, 0)])
    described = operator("totals", value("limit", now))
    # After that start: the field has its new name, and the dropped state is only known by its number.
    stored = replace(snapshot(described), state_numbers=(StateNumber(UID, "total", 2), StateNumber(UID, "limit", 1)))
    check_names(
        stored, JobNow((described,), renames={("totals", "limit"): {"most": "top"}}, drops={("totals", "total")})
    )


@pytest.mark.feature("I31")
def test_a_name_that_has_contents_cannot_be_taken_over() -> None:
    job = Versions()
    assert job.start({"a": (), "b": ()}) == {"a": 1, "b": 2}
    assert job.start({"b": ("a",)}) is None
    assert job.start({"b": ("a",), "a": ("b",)}) == {"b": 1, "a": 2}


@pytest.mark.feature("I31")
def test_an_old_name_can_be_used_again_while_the_declaration_stays() -> None:
    job = Versions()
    assert job.start({"a": ()}) == {"a": 1}
    assert job.start({"b": ("a",)}) == {"b": 1}
    assert job.start({"b": ("a",), "a": ()}) == {"b": 1, "a": 2}
    assert job.start({"b": ("a",), "a": ()}) == {"b": 1, "a": 2}
    assert job.start({"c": ("b", "a"), "a": ()}) == {"c": 1, "a": 2}


@pytest.mark.feature("I31")
def test_a_skipped_version_is_no_obstacle_if_all_earlier_names_are_declared() -> None:
    job = Versions()
    assert job.start({"a": ()}) == {"a": 1}
    assert job.start({"c": ("b",)}) is None
    assert job.start({"c": ("b", "a")}) == {"c": 1}


@pytest.mark.feature("I31")
def test_a_state_that_was_dropped_earlier_does_not_block_a_new_one() -> None:
    job = Versions()
    assert job.start({"a": (), "b": ()}) == {"a": 1, "b": 2}
    assert job.start({"a": ()}) == {"a": 1}
    assert job.start({"a": (), "c": ()}) == {"a": 1, "c": 3}
    assert job.start({"a": (), "c": (), "b": ()}) == {"a": 1, "c": 3, "b": 2}


@pytest.mark.feature("I31")
@pytest.mark.parametrize("kind", ["timers", "processor"])
def test_timers_are_not_mistaken_for_a_renamed_state(kind: str) -> None:
    timers = StateSpec(name="on_timer", kind=StateKind.TIMERS, value=int)
    if kind == "processor":
        timers = StateSpec(name="timers_of_key", kind=StateKind.MAP, value=bool, map_key=int)
    before, now = (operator("totals", value("total", int)), operator("totals", timers))
    assert judge(snapshot(before), JobNow((now,))).compatible
    assert judge(snapshot(now), JobNow((before,))).compatible


@pytest.mark.feature("I31")
def test_a_state_per_window_is_not_one_per_key() -> None:
    spec = value("fired", int)
    before, now = operator("op", replace(spec, windowed=True)), operator("op", spec)
    [verdict] = judge(snapshot(before), JobNow((now,))).refusals
    assert "it was one per key and window and is one per key" in verdict.reason


@pytest.mark.feature("I37")
def test_a_renamed_uid_takes_its_states_along_and_the_declaration_may_stay() -> None:
    before = replace(
        snapshot(operator("totals", value("total", int)), sources=("clicks",)),
        state_numbers=(StateNumber(UID, "total", 1),),
    )
    names = DeclaredNames({"sums": {"sum": ("total",)}}, {"sums": ("totals",), "taps": ("touches", "clicks")})
    new = carried_over(before, names)
    assert [(each.uid, each.states[0].name) for each in new.operators] == [("sums", "sum")]
    assert [(number.uid, number.name) for number in new.state_numbers] == [("sums", "sum")]
    assert [position.uid for position in new.positions] == ["taps"]
    assert carried_over(new, names) == new


@pytest.mark.feature("I37")
def test_the_advice_on_state_without_an_operator_names_the_operator_that_is_new() -> None:
    answer = judge(snapshot(operator("totals", value("n", int))), JobNow((operator("sums", value("n", int)),)))
    [refusal] = answer.refusals
    assert 'tg.Uid("sums", renamed_from="totals")' in refusal.advice
    assert "--map-uid totals=sums" in refusal.advice


KEYS = [f"u{n}" for n in range(40)]
NOTES = StateSpec(name="notes", kind=StateKind.LIST, value=int, distribution=Distribution.SPLIT)
OLD = Operator(
    "totals",
    ("string",),
    (value("total", int), mapping("seen", str, int), listing("last", int), NOTES),
    {
        "total": {key: n for n, key in enumerate(KEYS)},
        "seen": {key: {"a": n} for n, key in enumerate(KEYS)},
        "last": {key: [n, n + 1] for n, key in enumerate(KEYS)},
    },
    also=lambda held: held.lists.lists["notes"].update([held.slot, 10 + held.slot]),
)


@pytest.mark.feature("I31", "I37", "I40")
@pytest.mark.parametrize(
    ("backend", "parallelism", "form"),
    [
        ("hashmap", 2, None),
        ("rocksdb", 2, None),
        ("rocksdb", 3, CANONICAL),
        ("hashmap", 3, NATIVE),
        ("rocksdb", 3, None),
    ],
)
def test_renamed_states_have_what_they_held_in_every_backend_and_parallelism(
    tmp_path: Path, backend: str, parallelism: int, form: str | None
) -> None:
    origin = StoredSnapshot.open(History(tmp_path, backend="rocksdb").checkpoint(1, OLD))
    if form is not None:
        copy_snapshot(origin, open_storage(str(tmp_path / "sp")), form)
        origin = StoredSnapshot.open(tmp_path / "sp")
    specs = (
        value("sum", float),  # renamed, and of another type
        mapping("visits", str, int),
        listing("recent", int),
        replace(NOTES, name="remarks"),
    )
    earlier: Names = {"sum": ("total",), "visits": ("seen",), "recent": ("last",), "remarks": ("notes",)}
    names = DeclaredNames({"sums": earlier}, {"sums": ("totals",)})
    moved = replace(origin, metadata=carried_over(origin.metadata, names), layouts={})
    ids = {(str(n.uid), n.name): n.id for n in moved.metadata.state_numbers}
    now = Operator("sums", ("string",), specs, {}).info(ids, parallelism, backend)
    fitted = fit(moved.metadata, JobNow((now,), (Uid("clicks"),)), False)
    found = Landing(tmp_path / "restored", moved, backend, parallelism).land(now, fitted)
    for n, key in enumerate(KEYS):
        assert found["sum", key, None, None] == float(n)
        assert found["visits", key, "a", None] == n
        assert [found["recent", key, None, at] for at in (0, 1)] == [n, n + 1]
    assert sorted(number for (state, *_), number in found.items() if state == "remarks") == [0, 1, 10, 11]


@pytest.mark.feature("I31")
@pytest.mark.parametrize(("backend", "parallelism"), [("hashmap", 2), ("rocksdb", 2), ("rocksdb", 3)])
def test_a_dropped_state_leaves_no_entry_behind(tmp_path: Path, backend: str, parallelism: int) -> None:
    chk = StoredSnapshot.open(History(tmp_path, backend=backend).checkpoint(1, OLD))
    ids = {("totals", name): n for n, name in enumerate(("total", "seen", "last", "notes"), 1)}
    now = Operator("totals", ("string",), OLD.states[1:], {}).info(ids, parallelism, backend)
    fitted = fit(chk.metadata, JobNow((now,), (Uid("clicks"),), drops={("totals", "total")}), False)
    assert fitted.dropped == {1}
    target = RestoreTarget(128, parallelism, {UID: 1}, dropped=fitted.dropped)
    plans = plan_restore(chk.metadata, target)
    assert {id for plan in plans for share in plan.keyed for id in share.states} == {2, 3}
    assert all(plan.as_is is None for plan in plans)
    everything = Operator("totals", ("string",), OLD.states, {}).info(ids, parallelism, backend)
    found: dict[Any, Any] = Landing(tmp_path / "restored", chk, backend, parallelism).land(everything, fitted)
    assert {state for state, *_ in found} == {"seen", "last", "notes"}
