"""A start that cannot succeed is refused before a Spark session is made, which takes long."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.control.cli import main
from tidegate.control.rest import server as rest
from tidegate.control.rest.server import listen
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


def test_the_job_is_built_after_all_other_checks(tmp_path: Path) -> None:
    assert BUILT in said(run(tmp_path, "-Drest.port=0"))


def test_a_chosen_port_that_is_taken_is_refused_by_name(tmp_path: Path, taken: int) -> None:
    result = run(tmp_path, f"-Drest.port={taken}")
    assert f"REST cannot listen on 127.0.0.1:{taken}: port {taken} is taken. Set rest.port" in said(result)
    assert BUILT not in said(result)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (("rest.port=99999",), "port 99999: ports are 1 to 65535. Set rest.port"),
        (
            ("rest.bind-address=192.0.2.1", "rest.port=0"),
            "this machine has no address 192.0.2.1. Set rest.bind-address",
        ),
        (("rest.bind-address=a..b", "rest.port=0"), "'a..b': there is no such host. Set rest.bind-address"),
    ],
)
def test_an_impossible_address_is_refused(tmp_path: Path, address: tuple[str, ...], message: str) -> None:
    result = run(tmp_path, *[f"-D{each}" for each in address])
    assert message in said(result)
    assert isinstance(result.exception, SystemExit)
    assert BUILT not in said(result)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EACCES, "this user may not use port 80. Set rest.port to one above 1023"),
        (errno.ENOBUFS, "no buffer space"),
    ],
)
def test_a_privileged_port_is_refused(number: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(host: str, port: int) -> None:
        raise OSError(number, "no buffer space")

    monkeypatch.setattr(rest, "_bound", refuse)
    with pytest.raises(PreconditionFailed, match=message):
        listen(port=80)


def test_the_error_names_the_range_if_all_default_ports_are_taken(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "DEFAULT_PORT", taken)
    monkeypatch.setattr(rest, "_LAST_DEFAULT", taken + 1)

    def refuse(host: str, port: int) -> None:
        raise OSError(errno.EADDRINUSE, "in use")

    monkeypatch.setattr(rest, "_bound", refuse)
    with pytest.raises(PreconditionFailed, match=f"or any port up to {taken + 1}: all are taken"):
        listen()


def test_the_web_ui_names_its_own_flags(tmp_path: Path, taken: int) -> None:
    result = CliRunner().invoke(main, ["ui", str(tmp_path), "--port", str(taken)])
    assert f"port {taken} is taken. Set --port" in said(result)


def test_a_default_port_that_is_taken_moves_on(
    taken: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rest, "DEFAULT_PORT", taken)
    monkeypatch.setattr(rest, "_LAST_DEFAULT", taken + 50)
    with listen() as found:
        port = found.getsockname()[1]
        assert taken < port <= taken + 50
        assert f"port {taken} is taken, so REST listens on 127.0.0.1:{port}" in caplog.text
        with pytest.raises(PreconditionFailed, match=f"127.0.0.1:{port}: port {port} is taken"):
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
        (("-Drest.prot=1",), "rest.prot is not an option. Did you mean rest.port?"),
        (("-Dxyzzy=1",), "xyzzy is not an option. All options are in the documentation, on the page Options"),
        (("--trigger", "sometimes"), "--trigger='sometimes' is not a duration such as '500 ms'"),
        (
            ("--trigger", "sometimes"),
            "or 'available-now', which reads the rows that exist now and ends. Without a trigger",
        ),
        (("--trigger", "5"), "--trigger='5' has no unit. Write '5 s' or '5 ms', or 'available-now'"),
        (("--renamed", "totals"), "--renamed must be renames such as 'uid/state:old=new', not 'totals'"),
        (("--map-uid", "totals"), "--map-uid must be pairs such as 'old=new, old=new', not 'totals'"),
        (
            ("--drop-state", "total"),
            "such as 'uid/state', or fields of one such as 'uid/state:field', not 'total'",
        ),
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
    assert f"Savepoints cannot be kept in {tmp_path}/file/savepoints: {tmp_path}/file is a file" in said(result)
    assert BUILT not in said(result)


def test_a_savepoint_on_stop_needs_checkpoints(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(f"def build():\n    raise RuntimeError({BUILT!r})\n")
    result = CliRunner().invoke(main, ["run", str(job), "-Drest.port=0", "--savepoint-on-stop"])
    assert "--savepoint-on-stop needs checkpoints, and this job takes none: -Dexecution.checkpointing.dir" in said(
        result
    )
    assert BUILT not in said(result)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("none", "there is no such directory"),
        ("job.py", "it is a file, and not a _metadata"),
        ("empty", "the directory has no file _metadata. Give the directory of one, or its _metadata, to -s"),
    ],
)
def test_a_path_to_start_from_that_is_no_snapshot_is_refused_before_spark(
    tmp_path: Path, path: str, reason: str
) -> None:
    (tmp_path / "empty").mkdir()
    result = run(tmp_path, "-Drest.port=0", "-s", str(tmp_path / path))
    assert f"{tmp_path / path} is no checkpoint or savepoint: {reason}" in said(result)
    assert BUILT not in said(result)


def test_a_directory_above_snapshots_names_the_newest_of_them(tmp_path: Path) -> None:
    for number in range(4):
        snapshot = tmp_path / "orders" / f"chk-{number}"
        snapshot.mkdir(parents=True)
        (snapshot / "_metadata").touch()
        os.utime(snapshot / "_metadata", (number, number))
    result = run(tmp_path, "-Drest.port=0", "-s", str(tmp_path))
    shown = ", ".join(str(tmp_path / "orders" / f"chk-{number}") for number in (3, 2, 1))
    assert f"Below it are {shown} and 1 more" in said(result)


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


def test_a_misspelt_attribute_of_a_module_suggests_the_nearest(tmp_path: Path) -> None:
    """As Python says it when it prints the error itself."""
    job = tmp_path / "job.py"
    job.write_text("import tidegate as tg\n\n\nclass Totals(tg.KeyedProcesFunction):\n    pass\n")
    result = CliRunner().invoke(main, ["run", str(job), "-Drest.port=0"])
    assert "has no attribute 'KeyedProcesFunction'. Did you mean 'KeyedProcessFunction'?" in said(result)


def test_settings_of_spark_are_refused_with_the_place_they_belong_to(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text("def build(spark):\n    raise AssertionError\n")
    result = CliRunner().invoke(main, ["run", str(job), "-Drest.port=0", "-Dspark.executor.memory=2g"])
    assert "spark.executor.memory is not an option. Settings of Spark are not options of a job: tg.session(" in said(
        result
    )
