"""The page about scale says what the program says."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from click.testing import CliRunner

from tests.sparks import ROOT
from tidegate.config.declared import ALL
from tidegate.control.capacity.constants import DEFAULTS
from tidegate.control.cli import main

PAGE = (ROOT / "docs" / "operations" / "scale.md").read_text()


def printed(command: str) -> str:
    done = CliRunner().invoke(main, shlex.split(command)[1:])
    assert done.exit_code in (0, 1), done.output
    return "\n".join(line.rstrip() for line in done.output.rstrip().splitlines())


def test_the_worked_example_prints_what_the_page_shows() -> None:
    (shown,) = re.findall(r"^```\n\$ (tidegate plan .*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert printed(shown[0]) == shown[1].rstrip()


def test_other_commands_of_the_page_work() -> None:
    commands = re.findall(r"^```\n(tidegate plan [^\n]*)\n```", PAGE, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert "Executors" in printed(command.replace(" --constants mine.toml", ""))


def test_variants_of_the_example_differ_as_the_page_says() -> None:
    (command,) = re.findall(r"^\$ (tidegate plan .*)$", PAGE, re.MULTILINE)

    def found(changed: str) -> dict[str, float]:
        return dict(json.loads(printed(changed + " -o json"))["capacity"])

    shown, plain = found(command), found(command.replace("--changelog ", ""))
    often = found(command.replace('--materialize "1 h"', '--materialize "10 min"'))
    assert plain["upload_bytes"] == pytest.approx(5 * shown["upload_bytes"], rel=0.05)
    changes_per_s = shown["upload_bytes"] / 60
    assert shown["background_bytes_per_s"] == pytest.approx(2 * changes_per_s, rel=0.05)
    assert often["background_bytes_per_s"] == pytest.approx(5 * changes_per_s, rel=0.05)
    assert often["restore_host_s"] < shown["restore_host_s"]


def test_the_table_lists_every_constant() -> None:
    rows = [f"| `{each.name}` | {each.value:g} | {each.unit} | {each.source} |" for each in DEFAULTS]
    assert [line for line in PAGE.splitlines() if line in rows] == rows


def test_options_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`((?:execution|state)\.[a-z.-]+)", PAGE))
    assert (
        named - {option.key for option in ALL} - {"state.backend.rocksdb.compaction.level.target-file-size-base"}
        == set()
    )
