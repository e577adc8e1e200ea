"""A job out of a user's file: loaded, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tidegate.control.job_file import NoJob, checkpoint_of, load_job
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


@pytest.mark.parametrize(
    ("line", "found"), [("checkpoint = 's3://bucket/checkpoints'", "s3://bucket/checkpoints"), ("", None)]
)
def test_a_file_may_say_where_checkpoints_go(tmp_path: Path, line: str, found: str | None) -> None:
    file = tmp_path / "says.py"
    file.write_text(f"{DECLARED}\n{line}\n")
    load_job(str(file))
    assert checkpoint_of(str(file)) == found


def test_something_else_called_checkpoint_is_refused(tmp_path: Path) -> None:
    """A job that silently ran without checkpoints would lose its state."""
    file = tmp_path / "wrong.py"
    file.write_text(f"{DECLARED}\ncheckpoint = {{'dir': 's3://bucket/checkpoints'}}\n")
    load_job(str(file))
    with pytest.raises(NoJob, match=r"`checkpoint` in .*wrong\.py is dict; it must be tg\.Checkpointing"):
        checkpoint_of(str(file))


def test_checkpointing_under_another_name_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "named.py"
    file.write_text(f"{DECLARED}\ncheckpoints = tg.Checkpointing(dir='checkpoints', interval='1 s')\n")
    load_job(str(file))
    with caplog.at_level("WARNING", logger="tidegate"):
        assert checkpoint_of(str(file)) is None
    assert "holds tg.Checkpointing as checkpoints; only `checkpoint` is used" in caplog.text
