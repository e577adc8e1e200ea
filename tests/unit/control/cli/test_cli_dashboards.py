"""`tidegate dashboards` writes files for Prometheus and Grafana."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.control.cli import main


def dashboards(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["dashboards", "--to", str(folder), *options])


def test_three_files_are_written_and_listed(tmp_path: Path) -> None:
    done = dashboards(tmp_path / "new", "-o", "json")
    assert done.exit_code == 0
    assert [Path(name).name for name in json.loads(done.output)["files"]] == [
        "tidegate-dashboard.json",
        "tidegate-alerts.yml",
        "prometheus.yml",
    ]
    assert all(Path(name).stat().st_size for name in json.loads(done.output)["files"])


def test_targets_token_and_intervals_are_those_given(tmp_path: Path) -> None:
    dashboards(
        tmp_path,
        "--target",
        "a:1",
        "--target",
        "b:2",
        "--token-file",
        "/t",
        "--evaluation-interval",
        "7 s",
        "--stall",
        "2 h",
    )
    config, rules = (tmp_path / "prometheus.yml").read_text(), (tmp_path / "tidegate-alerts.yml").read_text()
    assert 'targets: ["a:1", "b:2"]' in config
    assert 'credentials_file: "/t"' in config
    assert "evaluation_interval: 7s" in config
    assert "interval: 7s" in rules
    assert "offset 2h" in rules


@pytest.mark.parametrize("given", ["soon", "100 ms", "1500 ms", "0 s"])
def test_an_interval_that_is_no_whole_number_of_seconds_is_refused(tmp_path: Path, given: str) -> None:
    done = dashboards(tmp_path, "--stall", given)
    assert done.exit_code == 3
    assert "BAD_OPTION" in done.output


def test_a_folder_that_cannot_be_written_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = dashboards(tmp_path / "file" / "below")
    assert done.exit_code == 3
    assert "cannot be written" in done.output
