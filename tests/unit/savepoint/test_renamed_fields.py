"""A field of a state that disappears while another one appears: refused, unless the user says what happened.

One list of cases goes through `tidegate compat`, the decision of a start, and the harness.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidegate as tg
from tests.unit.savepoint.checkpoint_kit import History, Operator, value
from tidegate.config.checkpoint_config import RecoveryConfig
from tidegate.config.errors import OptionError
from tidegate.config.reading import read_options
from tidegate.control.cli import main
from tidegate.control.cli.recovery_flags import recovery_options
from tidegate.core.ids import Uid
from tidegate.savepoint.compatibility import JobNow
from tidegate.savepoint.restore_compatibility import StateChanged, converter, fit
from tidegate.savepoint.snapshot import StoredSnapshot

SCHEMA = "user string, n bigint"


@dataclass
class Account:
    total: int
    name: str


Fields = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    fields: Fields
    """Of the new `Account`."""
    renamed: tuple[str, ...] = ()
    """`OLD=NEW`."""
    dropped: tuple[str, ...] = ()
    expected: dict[str, Any] | None = None
    """What the state of a key holds after the start. None: the start is refused."""
    misspelt: bool = False
    """It names a field that there never was, which is said before anything is decided."""


NAME = ("name", str)
SUM = ("sum", int, 0)
CASES = {
    "nothing changed": Case([("total", int), NAME], expected={"total": 7, "name": "x"}),
    "renamed without a word": Case([NAME, SUM]),
    "renamed and widened without a word": Case([NAME, ("sum", float, 0.0)]),
    "renamed to one that may be None": Case([NAME, ("sum", int | None, None)]),
    "another rename is declared": Case([NAME, SUM], renamed=("amount=sum",), misspelt=True),
    "another field is dropped": Case([NAME, SUM], dropped=("name",)),
    "renamed": Case([NAME, SUM], renamed=("total=sum",), expected={"name": "x", "sum": 7}),
    "renamed, with the name of the class": Case(
        [NAME, SUM], renamed=("Account.total=sum",), expected={"name": "x", "sum": 7}
    ),
    "renamed and widened": Case(
        [NAME, ("sum", float, 0.0)], renamed=("total=sum",), expected={"name": "x", "sum": 7.0}
    ),
    "dropped": Case([NAME, SUM], dropped=("total",), expected={"name": "x", "sum": 0}),
    "only removed": Case([NAME], expected={"name": "x"}),
    "only added": Case([("total", int), NAME, SUM], expected={"total": 7, "name": "x", "sum": 0}),
    "one appears that cannot hold the values": Case([NAME, ("note", str, "-")], expected={"name": "x", "note": "-"}),
    "the declaration stays": Case(
        [("total", int), NAME], renamed=("amount=total",), expected={"total": 7, "name": "x"}
    ),
    "both renamed, one declared": Case([SUM, ("title", str, "")], renamed=("total=sum",)),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def chk(tmp_path: Path) -> str:
    held = Operator("totals", ("string",), (value("account", Account),), {"account": {"ann": Account(7, "x")}})
    return History(tmp_path).checkpoint(1, held)


def now_of(case: Case) -> Any:
    return make_dataclass("Account", case.fields)


def flags(case: Case) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(f"totals/account:{each}" for each in case.renamed), tuple(f"totals/account:{f}" for f in case.dropped)


def files(chk: str) -> dict[str, str]:
    place = Path(chk.removeprefix("file://"))
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(place.rglob("*")) if p.is_file()}


@pytest.mark.feature("I31")
def test_a_start_decides_it_and_leaves_the_snapshot_as_it_was(case: Case, chk: str) -> None:
    before = files(chk)
    snapshot = StoredSnapshot.open(chk)
    recovery = RecoveryConfig.of(read_options(recovery_options(False, (), *flags(case))))
    now = Operator("totals", ("string",), (value("account", now_of(case)),), {}).info(
        {("totals", "account"): 1}, 2, "hashmap"
    )
    job = JobNow((now,), (Uid("clicks"),), renames=recovery.renamed_fields, drops=recovery.dropped_states)
    if case.expected is None:
        with pytest.raises(StateChanged, match="may be the same field under another name") as refused:
            fit(snapshot.metadata, job, True)  # -n is no answer
        assert "--renamed totals/account:" in str(refused.value)
        assert "--drop-state totals/account:" in str(refused.value)
    else:
        fitted = fit(snapshot.metadata, job, False)
        # A task converts by what the migration says, without the job's options.
        assert all(callable(converter(each)) for each in fitted.migrations)
        assert fitted.dropped == frozenset()
    assert before
    assert files(chk) == before


JOB = """
import tidegate as tg
from dataclasses import make_dataclass
from tests.unit.api.shop import Frame, NullSink

class Totals(tg.KeyedProcessFunction):
    account = tg.ValueState(make_dataclass("Account", {fields}))

    def process_element(self, row, ctx):
        yield row

def build():
    job = tg.Job("orders", parallelism=2)
    rows = job.source("clicks", Frame("user string,n bigint"))
    rows.key_by("user").process("totals", Totals(), schema="user string, n bigint").sink("out", NullSink())
    return job
"""


@pytest.mark.feature("I31")
def test_compat_decides_the_same(case: Case, chk: str, tmp_path: Path) -> None:
    before = files(chk)
    shown = ", ".join(
        f"({each[0]!r}, {getattr(each[1], '__name__', None) if isinstance(each[1], type) else each[1]}"
        + "".join(f", {default!r}" for default in each[2:])
        + ")"
        for each in case.fields
    )
    (tmp_path / "job.py").write_text(JOB.format(fields=f"[{shown}]"))
    renamed, dropped = flags(case)
    given = [part for each in renamed for part in ("--renamed", each)]
    given += [part for each in dropped for part in ("--drop-state", each)]
    result = CliRunner().invoke(main, ["compat", str(tmp_path / "job.py"), "--from", chk, *given, "--output", "json"])
    assert files(chk) == before
    if case.misspelt:
        assert json.loads(result.stdout)["error"]["code"] == "OPTION"
        assert result.exit_code not in (0, 1)
        return
    assert json.loads(result.stdout)["compatible"] == (case.expected is not None), result.output
    assert result.exit_code == (case.expected is None)


def totals(account: Any) -> Any:
    class Totals(tg.KeyedProcessFunction):
        state = tg.ValueState(account)

        def process_element(self, row, ctx):
            if self.state.value() is None:
                self.state.update(account(row.n, "x"))
            yield row

    return Totals()


@pytest.mark.feature("I31")
def test_the_harness_decides_the_same_and_converts_the_state(case: Case) -> None:
    with tg.testing.harness(totals(Account), key="user", schema=SCHEMA) as h:
        h.process(("ann", 7))
        snapshot = h.snapshot()
    answers: dict[str, Any] = {
        "renamed_fields": {"state": dict(each.split("=") for each in case.renamed)},
        "drop_state": [f"state:{field}" for field in case.dropped],
    }
    after = totals(now_of(case))
    if case.expected is None:
        kind, said = (
            (OptionError, "has no field 'amount'") if case.misspelt else (StateChanged, "may be the same field")
        )
        with pytest.raises(kind, match=said):
            tg.testing.harness(after, key="user", schema=SCHEMA, restore=snapshot, **answers)
        return
    with tg.testing.harness(after, key="user", schema=SCHEMA, restore=snapshot, **answers) as h:
        assert asdict(h.state("state", "ann")) == case.expected


@dataclass
class Limit:
    most: int


@dataclass
class Rule:
    limit: Limit


@pytest.mark.feature("I31")
def test_a_field_of_a_nested_class_is_named_with_its_class(chk: str) -> None:
    new = make_dataclass("Rule", [("limit", make_dataclass("Limit", [("maximum", int, 0)]))])

    def stored(tp: Any) -> Any:
        return Operator("totals", ("string",), (value("rule", tp),), {}).info({("totals", "rule"): 1}, 2, "hashmap")

    snapshot = StoredSnapshot.open(chk).metadata
    snapshot = replace(snapshot, operators=(stored(Rule),))
    with pytest.raises(StateChanged, match=r"--renamed totals/rule:Limit\.most=maximum"):
        fit(snapshot, JobNow((stored(new),), (Uid("clicks"),)), False)
    fit(snapshot, JobNow((stored(new),), (Uid("clicks"),), drops={("totals", "rule:Limit.most")}), False)
