"""The page about autoscaling says what the program says."""

from __future__ import annotations

import re

from click.testing import CliRunner

from tests.sparks import ROOT
from tidegate.autoscaler.decision import DecisionKind
from tidegate.autoscaler.trace import ScalingTrace
from tidegate.config.declared import ALL
from tidegate.control.cli import main

PAGE = (ROOT / "docs" / "operations" / "autoscaling.md").read_text()
TRACE = ROOT / "tests" / "unit" / "autoscaler" / "traces" / "growing.json"


def printed(*words: str) -> str:
    done = CliRunner().invoke(main, ["autoscale", "explain", "--trace", str(TRACE), *words])
    assert done.exit_code == 0, done.output
    return "\n".join(line.rstrip() for line in done.output.rstrip().splitlines())


def test_the_example_prints_what_the_page_shows() -> None:
    (shown,) = re.findall(r"^```\n\$ tidegate autoscale explain [^\n]*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert printed() == shown.rstrip()


def test_the_numbers_of_the_text_are_those_of_the_example() -> None:
    decision, _ = ScalingTrace.from_bytes(TRACE.read_bytes()).replay()[-1]
    found = decision.evaluation
    assert found is not None
    (share, rate) = re.findall(r"were busy (\d+) % of the time for ([\d,]+) rows/s", PAGE)[0]
    assert (f"{found.load:.0%}", f"{found.read_rate:,.0f}") == (f"{share}%", rate)


def test_other_options_give_other_decisions() -> None:
    assert "SCALE_UP" in printed("-Djob.autoscaler.metrics.window=5 min")
    assert "SCALE_UP" not in printed("-Djob.autoscaler.stabilization.interval=2 h")


def test_every_decision_is_in_the_table() -> None:
    rows = "".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`([A-Z_]+)`", rows)) == {str(kind) for kind in DecisionKind}


def test_options_that_the_page_names_exist() -> None:
    named = {key.rstrip(".*") for key in re.findall(r"`(job\.autoscaler\.[a-z.*-]+)", PAGE)}
    keys = {option.key for option in ALL}
    assert {name for name in named if not any(key.startswith(name) for key in keys)} == set()
