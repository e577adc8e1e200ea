"""The command line on storage alone: what a person sees, what a program reads, what the exit code says."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit.runtime.driver.run_kit import run_report
from tests.unit.runtime.driver.test_progress import complete, coordinator
from tests.unit.savepoint.checkpoint_kit import History, Operator, listing, mapping, value
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.statistics import CheckpointStatistics
from tidegate.control.cli import main
from tidegate.core.storage_cost import LIST_PRICES, RequestCounts
from tidegate.testing.clock import at

TOTALS = Operator(
    "totals",
    ("string",),
    (value("total", float), mapping("seen", int, str), listing("last", Decimal)),
    {
        "total": {f"u{n}": n / 2 for n in range(40)},
        "seen": {"u1": {5: "five", 6: "six"}},
        "last": {"u1": [Decimal("1.50")]},
    },
)


def run(*args: str | Path, **more: Any) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], **more)


def told(*args: str | Path, code: int = 0) -> Any:
    """The JSON document of a command that ends with this code."""
    result = run(*args, "--output", "json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.checkpoint(1, TOTALS)
    made.checkpoint(2, TOTALS)
    return made


@pytest.fixture
def chk(history: History, tmp_path: Path) -> Path:
    return tmp_path / "ckpt" / "orders" / "chk-2"


@pytest.mark.parametrize("where", ["", "orders"])
def test_list_shows_what_the_log_retains(history: History, tmp_path: Path, where: str) -> None:
    found = told("checkpoints", "list", tmp_path / "ckpt" / where)["checkpoints"]
    assert [(c["job"], c["id"], c["restart_from"]) for c in found] == [("orders", 1, False), ("orders", 2, True)]
    text = run("checkpoints", "list", tmp_path / "ckpt").output
    assert "chk-2" in text
    assert "Checkpointed data" in text


def test_list_shows_the_requests_that_a_record_of_a_run_knows(history: History, tmp_path: Path) -> None:
    statistics, two = CheckpointStatistics(prices=LIST_PRICES), coordinator()
    two.statistics = statistics
    complete(two, 1_000)
    complete(two, 2_000)
    statistics.charge(2, RequestCounts(writes=12, lists=3, reads=2, written_bytes=4_096))
    record = run_report(checkpoints=statistics.report(at(3_000)))
    history.storage.put(JobLayout("orders").run(record.term), record.to_bytes())
    first, second = told("checkpoints", "list", tmp_path / "ckpt")["checkpoints"]
    assert first["storage"] is None
    assert second["storage"]["requests"] == {"write": 12, "list": 3, "read": 2, "delete": 0}
    text = run("checkpoints", "list", tmp_path / "ckpt").output
    assert "Storage requests" in text
    assert "$0.000076" in text
    assert "4.0 KiB" in text


def test_a_job_and_a_directory_may_have_any_name(tmp_path: Path) -> None:
    home = tmp_path / "größe & co"
    History(home, job="my job/2 @home").checkpoint(1, TOTALS)
    [folder] = [path for path in (home / "ckpt").iterdir() if path.is_dir()]
    for where in (home / "ckpt", folder, folder.as_uri()):
        [found] = told("checkpoints", "list", where)["checkpoints"]
        assert found["job"] == "my job/2 @home"
        assert told("checkpoints", "show", found["external_path"])["id"] == 1
    assert run("savepoint", "copy", (folder / "chk-1").as_uri(), home / "sp").exit_code == 0
    assert run("state", "get", home / "sp", "totals", "total", "u3").output == "1.5\n"


def test_show_tells_states_tasks_and_positions(chk: Path) -> None:
    document = told("checkpoints", "show", chk)
    assert document["id"] == 2
    assert document["positions"] == {"clicks": ['{"0":15}']}
    assert [s["state"] for s in document["states"]] == ["total", "seen", "last"]
    assert "Full checkpoint data size" in run("checkpoints", "show", chk).output


def test_verify_says_no_by_its_exit_code(history: History, chk: Path) -> None:
    assert told("checkpoints", "verify", chk.parent)["whole"]
    next((chk.parent / "shared").rglob("chk-2-*")).unlink()
    document = told("checkpoints", "verify", chk.parent, "--quick", code=1)
    assert [c["whole"] for c in document["checked"]] == [True, False]
    assert "is missing" in run("checkpoints", "verify", chk).output


def test_diff_compares_metadata(chk: Path, tmp_path: Path) -> None:
    document = told("checkpoints", "diff", chk.with_name("chk-1"), chk)
    assert {c["what"]: (c["before"], c["after"]) for c in document["changes"]} == {"epoch": ("1.10", "1.20")}
    assert document["files"]["new"] > 0


def files_between(before: Path, after: Path) -> dict[str, int]:
    return told("checkpoints", "diff", before, after)["files"]


def test_diff_finds_the_files_of_a_checkpoint_in_its_native_savepoint(chk: Path, tmp_path: Path) -> None:
    assert run("savepoint", "copy", chk, tmp_path / "sp", "--type", "native").exit_code == 0
    found = told("checkpoints", "diff", chk, tmp_path / "sp")["files"]
    assert (found["gone"], found["new"]) == (0, 0)
    assert found["shared"] > 0
    assert found["shared_bytes"] == told("checkpoints", "show", chk)["state_size"]


def test_diff_does_not_take_one_name_for_one_content(tmp_path: Path) -> None:
    """Canonical savepoints of different states name their files alike."""
    for number in (1, 2):
        other = Operator("totals", ("string",), (value("total", float),), {"total": {"u1": float(number)}})
        History(tmp_path / str(number)).checkpoint(1, other)
        chk = tmp_path / str(number) / "ckpt" / "orders" / "chk-1"
        assert run("savepoint", "copy", chk, tmp_path / f"sp-{number}").exit_code == 0
    found = told("checkpoints", "diff", tmp_path / "sp-1", tmp_path / "sp-2")["files"]
    assert found["new"] > 0
    assert found["gone"] == found["new"]
    assert found["shared_bytes"] + found["new_bytes"] == told("checkpoints", "show", tmp_path / "sp-2")["state_size"]


def test_state_get_reads_typed_keys_and_values(chk: Path) -> None:
    assert run("state", "get", chk, "totals", "total", "u3").output == "1.5\n"
    assert told("state", "get", chk, "totals", "seen", "u1")["value"] == [[5, "five"], [6, "six"]]
    assert run("state", "get", chk, "totals", "seen", "u1", "--map-key", "6").output == "six\n"
    assert told("state", "get", chk, "totals", "last", "u1")["value"] == ["1.50"]
    assert not told("state", "get", chk, "totals", "total", "nobody", code=1)["found"]


def test_state_show_lists_states_and_first_entries(chk: Path) -> None:
    assert len(told("state", "show", chk)["states"]) == 3
    document = told("state", "show", chk, "totals", "total", "--limit", "7")
    assert len(document["entries"]) == 7
    assert document["more"]
    assert "… and more" in run("state", "show", chk, "totals", "total").output


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
def test_state_export_writes_every_entry(chk: Path, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"out.{suffix}"
    assert told("state", "export", chk, "totals", "total", "--to", target)["entries"] == 40
    if suffix == "parquet":
        import pyarrow.parquet as pq

        assert sum(pq.read_table(target)["value"].to_pylist()) == 390.0
    else:
        assert len(target.read_text().splitlines()) == 40 + (suffix == "csv")


def test_state_export_refuses_a_format_it_does_not_know(chk: Path, tmp_path: Path) -> None:
    document = told("state", "export", chk, "totals", "total", "--to", tmp_path / "out.xml", code=3)
    assert document["error"]["code"] == "UNKNOWN_FORMAT"
    assert document["error"]["help"] == "Help: tidegate explain UNKNOWN_FORMAT"


@pytest.mark.feature("N23")
@pytest.mark.parametrize("form", ["canonical", "native"])
def test_a_savepoint_is_copied_shown_and_disposed_of(chk: Path, tmp_path: Path, form: str) -> None:
    result = run("savepoint", "copy", chk, tmp_path / "sp", "--type", form)
    assert result.output.startswith("Savepoint completed. Path: ")
    assert told("savepoint", "show", tmp_path / "sp")["savepointFormat"] == form.upper()
    assert run("state", "get", tmp_path / "sp", "totals", "total", "u3").output == "1.5\n"
    assert run("savepoint", "dispose", tmp_path / "sp", input="n\n").exit_code == 1
    assert run("savepoint", "dispose", tmp_path / "sp", "--yes").output.endswith("disposed.\n")
    assert told("savepoint", "show", tmp_path / "sp", code=3)["error"]["code"] == "SNAPSHOT_NOT_FOUND"


@pytest.mark.feature("I28")
def test_a_savepoint_can_be_changed_on_the_way(chk: Path, tmp_path: Path) -> None:
    changes = ["--max-parallelism", "16", "--rename", "totals=sums", "--drop", "totals/seen"]
    assert run("savepoint", "copy", chk, tmp_path / "sp", *changes).exit_code == 0
    document = told("savepoint", "show", tmp_path / "sp")
    assert document["max_parallelism"] == 16
    assert [(s["operator"], s["state"]) for s in document["states"]] == [("sums", "total"), ("sums", "last")]


@pytest.mark.feature("I21", "N23")
def test_flinks_way_to_dispose(chk: Path, tmp_path: Path) -> None:
    run("savepoint", "copy", chk, tmp_path / "sp")
    assert run("savepoint", "-d", tmp_path / "sp").output.endswith("disposed.\n")
    assert run("savepoint", "-d", chk).exit_code == 3


JOB = """
import tidegate as tg
from tests.unit.api.shop import Frame, NullSink

class Totals(tg.KeyedProcessFunction):
    total = tg.ValueState({total})
    seen = tg.MapState(int, str)
    {more}

    def process_element(self, row, ctx):
        yield row

def build():
    job = tg.Job("orders", parallelism=2)
    clicks = job.source("clicks", Frame("user string,amount double"))
    clicks.key_by("user").process("{uid}", Totals(), schema="user string, amount double").sink("out", NullSink())
    return job

if __name__ == "__main__":
    raise SystemExit("must not run")
"""
LAST = "last = tg.ListState(__import__('decimal').Decimal)"


@pytest.mark.parametrize(
    ("total", "more", "uid", "flags", "code", "verdicts"),
    [
        ("float", LAST, "totals", [], 0, {"as is"}),
        ("float | None", LAST, "totals", [], 0, {"as is"}),
        ("int", LAST, "totals", [], 1, {"as is", "incompatible"}),
        ("float", "", "totals", [], 0, {"as is"}),
        ("float", LAST, "sums", [], 1, {"as is", "new", "dropped"}),
        ("float", LAST, "sums", ["-n"], 0, {"as is", "new", "dropped"}),
        ("float", LAST, "sums", ["--map-uid", "totals=sums"], 0, {"as is"}),
    ],
)
def test_compat_says_whether_the_job_will_start(
    chk: Path, tmp_path: Path, total: str, more: str, uid: str, flags: list[str], code: int, verdicts: set[str]
) -> None:
    (tmp_path / "job.py").write_text(JOB.format(total=total, more=more, uid=uid))
    document = told("compat", tmp_path / "job.py", "--from", chk, *flags, code=code)
    assert {v["verdict"] for v in document["verdicts"]} == verdicts
    assert document["compatible"] == (code == 0)


@pytest.mark.feature("I28", "I31")
def test_a_savepoint_is_converted_to_the_types_of_a_job(tmp_path: Path) -> None:
    old = Operator("totals", ("string",), (value("total", int),), {"total": {"ann": 7, "bob": 8}})
    History(tmp_path).checkpoint(1, old)
    chk = tmp_path / "ckpt" / "orders" / "chk-1"
    (tmp_path / "job.py").write_text(JOB.format(total="float", more="", uid="totals"))
    assert told("compat", tmp_path / "job.py", "--from", chk)["verdicts"][0]["verdict"] == "migrated"
    assert run("savepoint", "copy", chk, tmp_path / "sp", "--for", tmp_path / "job.py").exit_code == 0
    assert told("compat", tmp_path / "job.py", "--from", tmp_path / "sp")["verdicts"][0]["verdict"] == "as is"
    assert run("state", "get", tmp_path / "sp", "totals", "total", "ann").output == "7.0\n"
    (tmp_path / "job.py").write_text(JOB.format(total="str", more="", uid="totals"))
    refused = told("savepoint", "copy", chk, tmp_path / "sp-2", "--for", tmp_path / "job.py", code=3)
    assert "was int and is str" in refused["error"]["message"]


def test_compat_tells_a_person_what_to_do(chk: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB.format(total="int", more=LAST, uid="totals"))
    text = run("compat", tmp_path / "job.py", "--from", chk).output
    assert "was float and is int" in text
    assert "Keep float" in text


def test_a_file_without_a_job_is_an_error(chk: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("x = 1")
    assert told("compat", tmp_path / "job.py", "--from", chk, code=3)["error"]["code"] == "NO_JOB"


def test_errors_are_messages_and_usage_is_usage(tmp_path: Path) -> None:
    missing = run("checkpoints", "show", tmp_path / "chk-9")
    assert missing.exit_code == 3
    assert "SNAPSHOT_NOT_FOUND" in missing.stderr
    assert run("checkpoints", "list", tmp_path).exit_code == 3
    assert run("checkpoints", "frobnicate").exit_code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: str) -> None:
    assert "_TIDEGATE_COMPLETE" in run("completion", shell).output


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom tidegate.control.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'pyarrow', 'numpy', 'pyspark', 'rocksdict', 'obstore', 'rich'}\n"
        "sys.exit(sorted(heavy & {name.partition('.')[0] for name in sys.modules}) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.feature("I15")
def test_the_path_of_a_snapshot_is_relative_to_the_current_directory(tmp_path, monkeypatch):
    from tidegate.control.cli.run import snapshot_path

    (tmp_path / "saved" / "savepoint-1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert snapshot_path("saved/savepoint-1") == f"{tmp_path}/saved/savepoint-1"
    assert snapshot_path("orders/chk-7") == "orders/chk-7"
    assert snapshot_path("s3://bucket/savepoint-1") == "s3://bucket/savepoint-1"
