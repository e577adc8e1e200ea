"""A start that cannot succeed is refused before a Spark session is made, which takes long."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.control import rest
from tidegate.control.cli import main
from tidegate.control.rest import listen
from tidegate.core.errors import PreconditionFailed

BUILT = "the job was built, for which Spark would have been started"
JOB = """
import tidegate as tg

checkpoint = tg.Checkpointing(dir={dir!r}, interval="10 s")

def build():
    raise RuntimeError({built!r})
"""


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def run(folder: Path, *flags: str, checkpoints: Path | None = None) -> Result:
    job = folder / "job.py"
    job.write_text(JOB.format(dir=str(checkpoints or folder / "checkpoints"), built=BUILT))
    return CliRunner().invoke(main, ["run", str(job), *flags])


def said(result: Result) -> str:
    return f"{result.output}{result.exception}"


def test_a_job_is_built_when_everything_else_is_right(tmp_path: Path) -> None:
    assert BUILT in said(run(tmp_path, "-Drest.port=0"))


def test_a_chosen_port_that_is_taken_is_refused_by_name(tmp_path: Path, taken: int) -> None:
    result = run(tmp_path, f"-Drest.port={taken}")
    assert f"127.0.0.1:{taken}" in said(result)
    assert BUILT not in said(result)
    assert not (tmp_path / "checkpoints").exists()


def test_a_default_port_that_is_taken_moves_on(
    taken: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rest, "DEFAULT_PORT", taken)
    monkeypatch.setattr(rest, "_LAST_DEFAULT", taken + 50)
    with listen() as found:
        port = found.getsockname()[1]
        assert taken < port <= taken + 50
        assert f"port {taken} is taken, so REST listens on 127.0.0.1:{port}" in caplog.text
        with pytest.raises(PreconditionFailed, match=f"127.0.0.1:{port} "):
            listen(port=port)


def test_run_moves_on_from_a_default_port_that_is_taken(
    tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rest, "DEFAULT_PORT", taken)
    monkeypatch.setattr(rest, "_LAST_DEFAULT", taken + 50)
    assert BUILT in said(run(tmp_path))
    assert f"port {taken} is taken" in caplog.text


def test_a_port_that_was_taken_by_a_start_that_failed_is_free_again(tmp_path: Path) -> None:
    with listen(port=0) as found:
        port = found.getsockname()[1]
    assert BUILT in said(run(tmp_path, f"-Drest.port={port}"))
    listen(port=port).close()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-Dexecution.checkpointing.intervall=1 s",), "execution.checkpointing.intervall"),
        (("-Dexecution.checkpointing.mode=TWICE",), "TWICE"),
        (("--trigger", "sometimes"), "sometimes"),
        (("--savepoint-on-stop",), "--savepoint-on-stop needs a directory for savepoints"),
        (("--stop-within", "soon"), "soon"),
    ],
)
def test_options_are_checked_before_spark(tmp_path: Path, flags: tuple[str, ...], message: str) -> None:
    result = run(tmp_path, "-Drest.port=0", *flags)
    assert message in said(result)
    assert BUILT not in said(result)
    assert result.exit_code != 0


def test_a_checkpoint_directory_that_is_a_file_is_refused_before_spark(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run(tmp_path, "-Drest.port=0", checkpoints=tmp_path / "file" / "checkpoints")
    assert "is a file" in said(result)
    assert BUILT not in said(result)


def test_a_savepoint_directory_that_is_a_file_is_refused_before_spark(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run(tmp_path, "-Drest.port=0", f"-Dexecution.checkpointing.savepoint-dir={tmp_path}/file/savepoints")
    assert f"{tmp_path}/file is a file" in said(result)
    assert BUILT not in said(result)


@pytest.mark.parametrize("path", ["none", "job.py", "empty"])
def test_a_path_to_start_from_that_is_no_snapshot_is_refused_before_spark(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    result = run(tmp_path, "-Drest.port=0", "-s", str(tmp_path / path))
    assert f"{tmp_path / path} is no checkpoint or savepoint" in said(result)
    assert BUILT not in said(result)


def test_a_path_in_the_checkpoint_directory_is_left_to_the_job(tmp_path: Path) -> None:
    assert BUILT in said(run(tmp_path, "-Drest.port=0", "-s", "chk-7"))


def test_a_snapshot_may_be_named_by_its_directory_or_its_metadata(tmp_path: Path) -> None:
    snapshot = tmp_path / "savepoint-1"
    snapshot.mkdir()
    (snapshot / "_metadata").touch()
    assert BUILT in said(run(tmp_path, "-Drest.port=0", "-s", str(snapshot)))
    assert BUILT in said(run(tmp_path, "-Drest.port=0", "-s", str(snapshot / "_metadata")))


def test_a_file_that_cannot_be_imported_is_refused_before_spark(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text("import there_is_no_such_module\n")
    result = CliRunner().invoke(main, ["run", str(job), "-Drest.port=0"])
    assert "there_is_no_such_module" in said(result)
