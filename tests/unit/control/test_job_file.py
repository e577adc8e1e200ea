"""A job out of a user's file: loaded, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tidegate.control.job_file import load_job
from tidegate.core.errors import GraphError

DECLARED = """
import tidegate as tg

job = tg.Job("orders")
job.source("in", tg.testing.frame("user string")).sink("out", tg.CollectSink())
"""


@pytest.mark.parametrize("how", ["run", "start"])
def test_a_file_that_starts_its_job_is_refused_before_anything_runs(tmp_path: Path, how: str) -> None:
    """A dry run would otherwise read rows and write output."""
    file = tmp_path / "script.py"
    file.write_text(f"{DECLARED}\njob.{how}(trigger='available-now')\n")
    with pytest.raises(GraphError, match=r"script.py starts its job while it is loaded.*build\(spark\)"):
        load_job(str(file))


def test_a_file_that_starts_its_job_only_as_a_program_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"{DECLARED}\nif __name__ == '__main__':\n    job.run()\n")
    assert isinstance(load_job(str(file)), tg.Job)
