"""A job out of a user's file: loaded, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tidegate.control.jobs.job_file import NoJob, checkpoint_of, load_job
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


def test_a_file_that_starts_its_job_in_its_main_block_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"{DECLARED}\nif __name__ == '__main__':\n    job.run()\n")
    assert isinstance(load_job(str(file)), tg.Job)


@pytest.mark.parametrize(
    ("line", "found"), [("checkpoint = 's3://bucket/checkpoints'", "s3://bucket/checkpoints"), ("", None)]
)
def test_a_job_file_may_configure_checkpoints(tmp_path: Path, line: str, found: str | None) -> None:
    file = tmp_path / "says.py"
    file.write_text(f"{DECLARED}\n{line}\n")
    load_job(str(file))
    assert checkpoint_of(str(file)) == found


def test_a_checkpoint_attribute_of_another_type_is_refused(tmp_path: Path) -> None:
    """A job that silently ran without checkpoints would lose its state."""
    file = tmp_path / "wrong.py"
    file.write_text(f"{DECLARED}\ncheckpoint = {{'dir': 's3://bucket/checkpoints'}}\n")
    load_job(str(file))
    with pytest.raises(NoJob, match=r"`checkpoint` in .*wrong\.py is dict; it must be tg\.Checkpointing"):
        checkpoint_of(str(file))


def test_checkpointing_under_another_name_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "named.py"
    file.write_text(f"{DECLARED}\ncheckpoints = tg.Checkpointing(dir='checkpoints', interval='1 s')\n")
    load_job(str(file))
    with caplog.at_level("WARNING", logger="tidegate"):
        assert checkpoint_of(str(file)) is None
    assert "holds tg.Checkpointing as checkpoints; only `checkpoint` is used" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import math\nlimit = math.sqrt(amuont)\n",
            "NameError: name 'amuont' is not defined.\n  {file}:2, in <module>",
        ),
        (
            "import math\nlimit = math.sqrt(amuont)\n",
            "\n      limit = math.sqrt(amuont)\n                        ^^^^^^",
        ),
        ("x = 1\ndef build(:\n    pass\n", "SyntaxError"),
        ("x = 1\ndef build(:\n    pass\n", "{name}:2\n      def build(:"),
    ],
)
def test_an_import_error_shows_the_line_of_the_job_file(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(NoJob, match=r"broken\.py cannot be imported") as refused:
        load_job(str(file))
    place = "/".join(file.parts[-2:])
    assert said.format(file=place, name=file.name) in str(refused.value)
    assert "job_file.py" not in str(refused.value)


def test_an_error_in_an_imported_module_shows_the_lines_of_both_files(tmp_path: Path) -> None:
    (tmp_path / "rules_of_broken.py").write_text("limit = 1 / 0\n")
    file = tmp_path / "broken.py"
    file.write_text("import rules_of_broken\n")
    with pytest.raises(NoJob) as refused:
        load_job(str(file))
    place = tmp_path.name
    shown = [line for line in str(refused.value).splitlines() if " in <module>" in line]
    assert shown == [f"  {place}/broken.py:1, in <module>", f"  {place}/rules_of_broken.py:1, in <module>"]


@pytest.mark.parametrize("around", ["", "def build():\n    "])
def test_a_declaration_error_shows_the_line_of_the_job_file(tmp_path: Path, around: str) -> None:
    file = tmp_path / "declares.py"
    file.write_text(f"import tidegate as tg\n{around}tg.Job('orders', parallelism=0)\n")
    with pytest.raises(GraphError, match=r"parallelism is 0") as refused:
        load_job(str(file))
    assert f"declares.py:{3 if around else 2}, in {'build' if around else '<module>'}" in str(refused.value)
    assert str(refused.value).count("tg.Job('orders', parallelism=0)") == 1
