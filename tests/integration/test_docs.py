"""The Python blocks of README and of all pages are run, each page from top to bottom as one program.

What a page leaves out, such as the job that a line belongs to, is a `python` block in a comment of the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.programs import Programs
from tests.integration.terminal import play

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN_ELSEWHERE = {
    "docs/guide/kafka-to-postgres.md": "tests/integration/kafka/test_pages.py, with servers",
    "docs/operations/hdfs.md": "tests/integration/test_hdfs.py, with a NameNode",
    "docs/operations/upgrade.md": "below, as a session in a terminal",
}
PROGRAMS = "docs/examples/"
"""Pages that show a file of `examples`, as tests/architecture/test_example_pages.py makes sure; the files are run below."""
PAGES = sorted(
    name
    for page in (ROOT / "docs").rglob("*.md")
    if (name := str(page.relative_to(ROOT))) not in RUN_ELSEWHERE
    and not name.startswith(PROGRAMS)
    and BLOCK.search(page.read_text())
)


def blocks(page: str) -> list[str]:
    return BLOCK.findall((ROOT / page).read_text())


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    made = Programs()
    yield made
    made.close()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs(page, programs, tmp_path):
    found = blocks(page)
    assert found
    programs.run("\n".join(found), tmp_path, LIMIT_S)


def test_the_quick_start_of_the_readme_counts_until_it_is_stopped(programs, tmp_path):
    """The example runs for ever; it gets a Ctrl-C once it has printed counts."""
    first, second = blocks("README.md")
    programs.run(second, tmp_path, LIMIT_S)
    script = tmp_path / "first.py"
    script.write_text(first)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(
        [sys.executable, "-u", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    counts = []
    for line in process.stdout:
        if found := re.fullmatch(r"digit=(\d) n=(\d+)\n", line):
            counts.append((int(found[1]), int(found[2])))
            if len(counts) == 60:
                process.send_signal(2)
                break
    process.stdout.read()
    assert process.wait(60) == 0
    for digit in range(10):
        seen = [n for d, n in counts if d == digit]
        # Not every row of an epoch is printed, but counts only grow, from epoch to epoch.
        assert seen == sorted(set(seen))
    assert max(n for _, n in counts) > 3


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        pytest.param(
            "word_count.py", ["word='to' n=4", "word='be' n=2", "word='question' n=1"], marks=pytest.mark.feature("N1")
        ),
        (
            "alerts.py",
            [
                "alert      customer='ann' rule='large'",
                "customer='bob' rule='often'",
                "customer='eve' rule='large'",
                "unreadable customer='\"bob\"' error=",
            ],
        ),
        pytest.param(
            "offsets.py",
            ["long  partition=5 offset=12 known=6", "short partition=5 offset=12 known=6"],
            marks=pytest.mark.feature("N4", "N5"),
        ),
        pytest.param(
            "windowed_word_count.py",
            [
                "window word='to' n=2",
                "window word='be' n=1",
                "window word='to' n=1",
                "window word='question' n=2",
                "late   word='to' ",
            ],
        ),
        pytest.param(
            "network_word_count.py",
            ["window word='to' n=2", "window word='be' n=1", "window word='to' n=1", "window word='not' n=1"],
            marks=pytest.mark.feature("N2"),
            id="network_word_count",
        ),
        pytest.param(
            "maps_at_least_once.py",
            [
                "AT_LEAST_ONCE: 40 different rows, each counted once; 24 shown again",
                "EXACTLY_ONCE: 40 different rows, each counted once; 0 shown again",
            ],
            marks=pytest.mark.feature("N31"),
            id="maps_at_least_once",
        ),
        pytest.param(
            "join.py",
            [
                "match product='tea' bidder='ann' bid=4 seller='zoe' price=3",
                "match product='tea' bidder='eve' bid=5 seller='zoe' price=3",
                "match product='oil' bidder='bob' bid=9 seller='max' price=8",
                "match product='tea' bidder='ann' bid=4 seller='kim' price=6",
                "match product='tea' bidder='eve' bid=5 seller='kim' price=6",
            ],
            marks=pytest.mark.feature("N9"),
        ),
        (
            "orders.py",
            [
                "total   region='north' total=19.5 customers=2",
                "total   region='south' total=5.0 customers=1",
                "unknown customer='zoe' amount=3.0",
            ],
        ),
    ],
)
def test_an_example_runs_and_prints_what_it_says(example, expected, programs, tmp_path):
    output = programs.run((ROOT / "examples" / example).read_text(), tmp_path, LIMIT_S)
    assert all(line in output for line in expected), output


@pytest.mark.slow
@pytest.mark.feature("H1")
def test_the_job_that_is_killed_counts_exactly(tmp_path):
    """The first thing in the README, with a single kill of each job. In CI the tutorials are killed, and jobs on a cluster."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, str(ROOT / "examples" / "kill_me.py"), "--kills", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "0 lost, 0 doubled" in done.stdout
    assert "goes up by one at a time: yes" in done.stdout


@pytest.mark.budget(800)
@pytest.mark.feature("I1", "I2", "I3", "I10", "I12", "I15", "I37", "I38", "I39", "N23", "N24", "N25", "N26")
def test_the_upgrade_of_a_running_job_works_as_the_page_describes(tmp_path):
    page = (ROOT / "docs" / "operations" / "upgrade.md").read_text()
    for step, printed in play(page, tmp_path, timeout_s=880):
        assert step.holds(printed) or not step.wanted, f"$ {step.command}\n{printed}\nwanted: {step.wanted}"
