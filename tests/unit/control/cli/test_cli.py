"""The command line on storage alone: what a person sees, what a program reads, what the exit code says."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit.runtime.driver.run_kit import run_report
from tests.unit.runtime.monitoring.test_progress import complete, coordinator
from tests.unit.savepoint.checkpoint_kit import Held, History, Operator, listing, mapping, value
from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.job_log.entry import to_bytes
from tidegate.checkpoint.job_log.log import path_of
from tidegate.checkpoint.layout import JobLayout
from tidegate.control.cli import main
from tidegate.core.storage_cost import LIST_PRICES, StorageCalls
from tidegate.graph.states import StateKind, StateSpec
from tidegate.savepoint import snapshot as snapshot_module
from tidegate.state.keys.entry_keys import TimeWindow
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


def test_list_shows_the_storage_requests_of_recorded_runs(history: History, tmp_path: Path) -> None:
    statistics, two = CheckpointStatsTracker(prices=LIST_PRICES), coordinator()
    two.statistics = statistics
    complete(two, 1_000)
    complete(two, 2_000)
    statistics.record_calls(2, StorageCalls(writes=12, lists=3, reads=2, written_bytes=4_096))
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


def test_show_prints_states_tasks_and_positions(chk: Path) -> None:
    document = told("checkpoints", "show", chk)
    assert document["id"] == 2
    assert document["positions"] == {"clicks": ['{"0":15}']}
    assert [s["state"] for s in document["states"]] == ["total", "seen", "last"]
    assert "Full checkpoint data size" in run("checkpoints", "show", chk).output


def test_verify_of_a_damaged_checkpoint_exits_with_1(history: History, chk: Path) -> None:
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


def test_diff_distinguishes_files_of_one_name_with_different_content(tmp_path: Path) -> None:
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


NOON_MS = 1_767_268_800_000
SUMS = StateSpec(name="sums", kind=StateKind.VALUE, value=int, windowed=True)


def sum_two_windows(held: Held) -> None:
    group = held.group_of("u1")
    if group is None:
        return
    for start_ms, total in ((NOON_MS, 3), (NOON_MS + 600_000, 4)):
        scope = held.keyed.window_scope
        scope.key, scope.key_group = ("u1", TimeWindow(start_ms, start_ms + 600_000)), group
        held.keyed.value_state("sums").update(total)


def test_state_get_without_a_window_lists_the_windows_of_the_key(tmp_path: Path) -> None:
    made = History(tmp_path)
    path = made.checkpoint(1, Operator("windows", ("string",), (SUMS,), {}, also=sum_two_windows))
    asked = run("state", "get", path, "windows", "sums", "u1")
    assert asked.exit_code == 2
    assert "has a value for each window" in asked.output
    assert "--window 2026-01-01T12:10:00 2026-01-01T12:20:00" in asked.output
    assert (
        run("state", "get", path, "windows", "sums", "u1", "--window", "2026-01-01T12:10", "2026-01-01T12:20").output
        == "4\n"
    )
    window = (str(NOON_MS), str(NOON_MS + 600_000))
    assert run("state", "get", path, "windows", "sums", "u1", "--window", *window).output == "3\n"
    assert "is no time" in run("state", "get", path, "windows", "sums", "u1", "--window", "noon", "1").output
    assert run("state", "get", path, "windows", "sums", "nobody").exit_code == 1


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
def test_a_copy_can_rename_drop_and_redistribute_state(chk: Path, tmp_path: Path) -> None:
    changes = ["--max-parallelism", "16", "--rename", "totals=sums", "--drop", "totals/seen"]
    assert run("savepoint", "copy", chk, tmp_path / "sp", *changes).exit_code == 0
    document = told("savepoint", "show", tmp_path / "sp")
    assert document["max_parallelism"] == 16
    assert [(s["operator"], s["state"]) for s in document["states"]] == [("sums", "total"), ("sums", "last")]


@pytest.mark.feature("I21", "N23")
def test_flinks_dispose_flag_disposes_of_a_savepoint(chk: Path, tmp_path: Path) -> None:
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
RECENT = "recent = tg.ListState(__import__('decimal').Decimal)"


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
        ("float", RECENT, "totals", [], 1, {"as is", "new", "incompatible"}),
        ("float", RECENT, "totals", ["-n"], 1, {"as is", "new", "incompatible"}),
        ("float", RECENT, "totals", ["--drop-state", "totals/last"], 0, {"as is", "new", "dropped"}),
        ("float", f"{RECENT[:-1]}, renamed_from='last')", "totals", [], 0, {"as is"}),
    ],
)
def test_compat_reports_a_verdict_for_each_state(
    chk: Path, tmp_path: Path, total: str, more: str, uid: str, flags: list[str], code: int, verdicts: set[str]
) -> None:
    (tmp_path / "job.py").write_text(JOB.format(total=total, more=more, uid=uid))
    document = told("compat", tmp_path / "job.py", "--from", chk, *flags, code=code)
    assert {v["verdict"] for v in document["verdicts"]} == verdicts
    assert document["compatible"] == (code == 0)


@pytest.fixture(params=["the job file", "the file for all jobs"])
def job_file(request: pytest.FixtureRequest, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job whose checkpoint directory is configured where `tidegate run` looks for it. Another job keeps its own there."""
    other = History(tmp_path / "other", job="other", url=history.url)
    other.checkpoint(1, TOTALS)
    path, text = tmp_path / "job.py", JOB.format(total="float", more=LAST, uid="totals")
    if request.param == "the job file":
        text += f"checkpoint = tg.Checkpointing(dir={str(tmp_path / 'ckpt')!r}, interval='10 s')\n"
    else:
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "config.yaml").write_text(f"execution.checkpointing.dir: {tmp_path / 'ckpt'}\n")
        monkeypatch.setenv("TIDEGATE_CONF_DIR", str(tmp_path / "conf"))
    path.write_text(text)
    return path


def test_commands_find_the_checkpoints_of_a_job_file_as_run_does(job_file: Path, tmp_path: Path) -> None:
    assert [each["id"] for each in told("checkpoints", "list", job_file)["checkpoints"]] == [1, 2]
    assert told("compat", job_file)["path"].endswith("/orders/chk-2")
    assert told("checkpoints", "show", job_file) == told("checkpoints", "show", tmp_path / "ckpt" / "orders" / "chk-2")
    assert len(told("checkpoints", "verify", job_file)["checked"]) == 2
    assert told("savepoint", "show", job_file)["id"] == 2
    assert told("savepoint", "copy", job_file, tmp_path / "sp")["entries"] > 0
    assert told("compat", job_file, "--from", tmp_path / "sp")["compatible"]


@pytest.mark.parametrize("job_file", ["the file for all jobs"], indirect=True)
def test_without_an_argument_the_configured_directory_is_used(job_file: Path) -> None:
    assert {each["job"] for each in told("checkpoints", "list")["checkpoints"]} == {"orders", "other"}
    assert len(told("checkpoints", "verify", "--quick")["checked"]) == 3


def test_an_error_asks_for_the_directory_if_none_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_CONF_DIR", raising=False)
    path = tmp_path / "job.py"
    path.write_text(JOB.format(total="float", more=LAST, uid="totals"))
    for command in (["checkpoints", "list"], ["compat", str(path)]):
        result = run(*command)
        assert result.exit_code != 0
        assert "There is no checkpoint directory." in result.output
    path.write_text(
        path.read_text() + f"checkpoint = tg.Checkpointing(dir={str(tmp_path / 'new')!r}, interval='10 s')\n"
    )
    assert "holds no checkpoint of the job 'orders'" in run("compat", path).output


@pytest.mark.feature("I31", "I37")
@pytest.mark.parametrize("said", ["by an option in the file", "by the operator"])
def test_compat_reads_the_recovery_options_of_the_job_file(chk: Path, tmp_path: Path, said: str) -> None:
    text = JOB.format(total="float", more=LAST, uid="sums")
    if said == "by the operator":
        text = text.replace('process("sums"', 'process(tg.Uid("sums", renamed_from="totals")')
    else:
        text += "checkpoint = tg.Checkpointing(dir='/tmp/x', interval='10 s', map_uids={'totals': 'sums'})\n"
    (tmp_path / "job.py").write_text(text)
    assert {v["verdict"] for v in told("compat", tmp_path / "job.py", "--from", chk)["verdicts"]} == {"as is"}


@pytest.mark.feature("I28", "I31")
def test_a_copy_for_a_job_has_the_names_that_the_job_declares(chk: Path, tmp_path: Path) -> None:
    more = f"{RECENT[:-1]}, renamed_from='last')"
    (tmp_path / "job.py").write_text(JOB.format(total="float", more=more, uid="sums"))
    flags = ["--rename", "totals=sums", "--for", tmp_path / "job.py"]
    told("savepoint", "copy", chk, tmp_path / "sp", *flags)
    (tmp_path / "job.py").write_text(JOB.format(total="float", more=RECENT, uid="sums"))
    assert told("compat", tmp_path / "job.py", "--from", tmp_path / "sp")["compatible"]


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


def test_compat_prints_advice(chk: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB.format(total="int", more=LAST, uid="totals"))
    text = run("compat", tmp_path / "job.py", "--from", chk).output
    assert "was float and is int" in text
    assert "Keep float" in text


def test_a_file_without_a_job_is_an_error(chk: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("x = 1")
    assert told("compat", tmp_path / "job.py", "--from", chk, code=3)["error"]["code"] == "NO_JOB"


def test_errors_exit_with_3_and_wrong_usage_with_2(tmp_path: Path) -> None:
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


def test_a_broken_job_does_not_hide_the_others_in_a_list(history: History, tmp_path: Path) -> None:
    history.storage.put(JobLayout("broken").log(1), b"not a log")
    found = told("checkpoints", "list", tmp_path / "ckpt", code=1)
    assert [(c["job"], c["id"]) for c in found["checkpoints"]] == [("orders", 1), ("orders", 2)]
    assert [problem["job"] for problem in found["problems"]] == ["broken"]
    assert "broken" in run("checkpoints", "list", tmp_path / "ckpt").output


def test_a_broken_checkpoint_does_not_hide_the_others_in_a_list(history: History, tmp_path: Path) -> None:
    (tmp_path / "ckpt" / "orders" / "chk-1" / "_metadata").write_bytes(b"nothing")
    found = told("checkpoints", "list", tmp_path / "ckpt", code=1)
    assert [c["id"] for c in found["checkpoints"]] == [2]
    assert "checkpoint 1 cannot be read" in found["problems"][0]["problem"]


@pytest.mark.parametrize("elsewhere", ["s3://other-bucket/savepoint", "http://169.254.169.254/latest", "hdfs://host/x"])
def test_a_list_of_a_strangers_directory_calls_no_host_that_it_names(
    history: History, tmp_path: Path, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of a job may name a savepoint anywhere. Whoever looks has credentials for other stores."""
    name_elsewhere(history, f"{elsewhere}/_metadata")
    opened: list[str] = []
    real = snapshot_module.open_storage
    monkeypatch.setattr(
        snapshot_module, "open_storage", lambda url, **more: opened.append(str(url)) or real(url, **more)
    )
    found = told("checkpoints", "list", tmp_path / "ckpt", code=1)
    assert [c["id"] for c in found["checkpoints"]] == [1, 2]
    assert "is in another store and is not opened" in found["problems"][0]["problem"]
    assert not [url for url in opened if "://" in url]


def name_elsewhere(history: History, metadata: str) -> None:
    """Append an entry to the log that retains one more snapshot."""
    newest = history.log[-1]
    ref = replace(newest.retained[-1], id=9, metadata=metadata, owned=False, claimed=True)
    entry = replace(newest, slot=newest.slot + 1, retained=(*newest.retained, ref))
    history.storage.put(path_of(history.layout, entry), to_bytes(entry))


@pytest.mark.parametrize(
    ("key", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+SUM(A1)", "'+SUM(A1)"),
        ("-cmd|' /C calc'!A0", "'-cmd|' /C calc'!A0"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("-5", "-5"),
        ("+1.5e3", "+1.5e3"),
        ("ann", "ann"),
    ],
)
def test_exported_cells_are_never_formulas(tmp_path: Path, key: str, cell: str) -> None:
    operator = Operator("totals", ("string",), (value("total", str),), {"total": {key: "=HYPERLINK(1)"}})
    History(tmp_path).checkpoint(1, operator)
    target = tmp_path / "out.csv"
    result = run("state", "export", tmp_path / "ckpt" / "orders" / "chk-1", "totals", "total", "--to", target)
    assert result.exit_code == 0, result.output
    with target.open(newline="") as file:
        [row] = csv.DictReader(file)
    assert row["value"] == "'=HYPERLINK(1)"
    assert row["key"] in (cell, json.dumps([key]))


@pytest.mark.parametrize("number", [-5, -1.5, 7])
def test_a_number_in_an_export_stays_a_number(tmp_path: Path, number: float) -> None:
    operator = Operator("totals", ("string",), (value("total", float),), {"total": {"ann": float(number)}})
    History(tmp_path).checkpoint(1, operator)
    target = tmp_path / "out.csv"
    run("state", "export", tmp_path / "ckpt" / "orders" / "chk-1", "totals", "total", "--to", target)
    with target.open(newline="") as file:
        [row] = csv.DictReader(file)
    assert float(row["value"]) == number


def test_an_unknown_command_suggests_a_similar_one() -> None:
    assert "Did you mean 'stop'?" in run("stpo").output
    assert "Did you mean" not in run("xyzzy").output


def test_a_mistyped_option_never_suggests_giving_up_the_history(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("")
    told = run("run", tmp_path / "job.py", "--rest", "8081").output
    assert "-Drest.port=8081" in told
    assert "--fresh" not in told
    assert "--force" not in told
    assert "--parallelism" in run("run", tmp_path / "job.py", "--parallelsm", "2").output
