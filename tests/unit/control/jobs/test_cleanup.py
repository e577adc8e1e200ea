"""`tidegate cleanup` ends what an abandoned line of history has left, and nothing that anybody may still need."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.control.cli.test_cli import JOB, LAST, TOTALS, run, told
from tests.unit.runtime.driver.run_kit import run_report
from tests.unit.savepoint.checkpoint_kit import History
from tidegate.checkpoint.job_log.entry import RunOutcome
from tidegate.checkpoint.job_log.log import path_of
from tidegate.checkpoint.metadata import SnapshotKind, decode, encode
from tidegate.checkpoint.output.committables import record
from tidegate.connectors.files import FileSink
from tidegate.connectors.sink import Committable
from tidegate.core.ids import AttemptId, EpochId, Lineage, Term, Uid
from tidegate.testing.sink_trial import SinkTrial, new_rows

OLD, NEW = "line-1", "line-2"


@dataclass
class Shop:
    """A job with a file sink that was started afresh, after a run that left hidden files."""

    history: History
    folder: Path
    old: SinkTrial
    new: SinkTrial
    job_file: Path
    staged: list[Committable] = field(default_factory=list)

    def hidden(self) -> set[str]:
        return {path.name for path in (self.folder / "out" / ".tidegate-staged").glob("part-*~*.json")}

    def cleaned(self, *flags: str, code: int = 0) -> Any:
        return told("cleanup", self.job_file, *flags, code=code)

    def record_run(self, term: int, lineage: str) -> None:
        report = run_report(lineage=Lineage(lineage), term=Term(term))
        self.history.storage.put(self.history.layout.run(Term(term)), report.to_bytes())

    def abandon(self, *committables: Committable) -> None:
        """The new line has so many checkpoints that none of the old one is retained."""
        for id in (3, 4):
            self.history.checkpoint(id, TOTALS, committables=committables)


def trial_of(sink: FileSink, lineage: str, term: int) -> SinkTrial:
    trial = SinkTrial(sink)
    trial.lineage = Lineage(lineage)
    trial.at = EpochId(Term(term), 15)
    return trial


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return shop_in(tmp_path)


def shop_in(tmp_path: Path, in_copy: bool = False) -> Shop:
    history = History(tmp_path)
    sink = FileSink(str(tmp_path / "out"))
    old, new = trial_of(sink, OLD, 1), trial_of(sink, NEW, 2)
    history.checkpoint(1, TOTALS)
    staged = old.attempt(0, new_rows(2))
    assert staged is not None
    history.start_fresh(NEW, in_copy)
    new.attempt(0, new_rows(2))
    text = JOB.format(total="float", more=LAST, uid="totals")
    text = text.replace("NullSink()", f"tg.FileSink({str(tmp_path / 'out')!r})")
    text += f"checkpoint = tg.Checkpointing(dir={str(tmp_path / 'ckpt')!r}, interval='10 s')\n"
    job_file = tmp_path / "job.py"
    job_file.write_text(text)
    made = Shop(history, tmp_path, old, new, job_file, [staged])
    made.record_run(1, OLD)
    made.record_run(2, NEW)
    return made


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def of_lineage(names: set[str], lineage: str) -> set[str]:
    return {name for name in names if f"part-{lineage}~" in name}


def test_leftovers_of_an_abandoned_history_are_listed_and_then_deleted(shop: Shop) -> None:
    shop.abandon()
    before = everything(shop.folder)
    listed = shop.cleaned("--older-than", "0")
    (found,) = listed["found"]
    assert (found["what"], found["lineage"], found["sink"], found["epoch"]) == ("hidden file", OLD, "out", "1.15")
    assert (found["deleted"], found["kept"], found["size"] > 0, found["age"] >= 0) == (False, None, True, True)
    assert found["where"].endswith(next(iter(of_lineage(shop.hidden(), OLD))))
    assert listed["lineages"]["abandoned"] == [OLD]
    assert everything(shop.folder) == before
    assert "--delete ends and deletes 1 of 1" in run("cleanup", shop.job_file, "--older-than", "0").output
    assert shop.cleaned("--older-than", "0", "--delete")["found"][0]["deleted"]
    assert not of_lineage(shop.hidden(), OLD)
    assert of_lineage(shop.hidden(), NEW)
    assert shop.cleaned("--older-than", "0", "--delete")["found"] == []


def test_cleanup_of_a_copy_keeps_the_history_of_its_original(tmp_path: Path) -> None:
    """The records of runs were copied, too. The original may run, and wait for its target for more than a day."""
    shop = shop_in(tmp_path, in_copy=True)
    shop.abandon()
    listed = shop.cleaned("--older-than", "0", "--delete")
    assert listed["found"] == []
    assert of_lineage(shop.hidden(), OLD)
    assert len(shop.cleaned("--older-than", "0", "--lineage", OLD)["found"]) == 1, "who knows better may name it"


def test_the_history_of_a_retained_checkpoint_is_kept(shop: Shop) -> None:
    for id in (None, 3):
        if id is not None:
            shop.history.checkpoint(id, TOTALS)
        listed = shop.cleaned("--older-than", "0", "--delete")
        assert (listed["found"], listed["lineages"]["abandoned"]) == ([], [])
        assert {each["lineage"] for each in listed["lineages"]["kept"]} == {OLD, NEW}
    assert of_lineage(shop.hidden(), OLD)


def test_a_history_whose_output_a_checkpoint_carries_is_kept(shop: Shop) -> None:
    shop.abandon(*shop.staged)
    listed = shop.cleaned("--older-than", "0", "--delete")
    assert listed["found"] == []
    assert "carries output of it" in str(listed["lineages"]["kept"])
    assert of_lineage(shop.hidden(), OLD)


@pytest.mark.parametrize("place", ["sp", "savepoints/sp"])
def test_a_history_whose_output_a_savepoint_carries_is_kept(shop: Shop, place: str) -> None:
    shop.abandon()
    history = shop.history
    metadata = decode(history.storage.get(history.layout.metadata(4)))
    savepoint = replace(
        metadata,
        kind=SnapshotKind.SAVEPOINT,
        savepoint_format="NATIVE",
        lineage=Lineage(OLD),
        tasks=(),
        operators=(),
        state_numbers=(),
        committables=tuple(shop.staged),
    )
    history.storage.put(f"{place}/_metadata", encode(savepoint))
    listed = shop.cleaned("--older-than", "0", "--delete")
    assert listed["found"] == []
    assert f"the savepoint {place} carries output of it" in str(listed["lineages"]["kept"])
    assert shop.cleaned("--older-than", "0", "--lineage", OLD, code=3)["error"]["code"] == "BAD_OPTION"
    assert of_lineage(shop.hidden(), OLD)
    # Once its output is recorded as published, the savepoint needs nothing in the target.
    committed = history.layout.committed(Lineage(OLD), savepoint.term, savepoint.checkpoint_id)
    history.storage.put(committed, record(shop.staged))
    assert shop.cleaned("--older-than", "0", "--delete")["found"][0]["deleted"]


def test_a_history_that_another_job_continues_is_kept(shop: Shop) -> None:
    shop.abandon()
    other = History(shop.folder / "other", job="other", url=shop.history.url)
    other.checkpoint(1, TOTALS)
    listed = shop.cleaned("--older-than", "0", "--delete")
    assert listed["found"] == []
    assert "'other' continues it" in str(listed["lineages"]["kept"])


def test_naming_a_history_that_is_not_abandoned_is_refused(shop: Shop) -> None:
    shop.abandon()
    for flags in ((), ("--delete",)):
        error = shop.cleaned("--lineage", NEW, "--older-than", "0", *flags, code=3)["error"]
        assert (error["code"], "'orders' continues it" in error["message"]) == ("BAD_OPTION", True)
    assert of_lineage(shop.hidden(), NEW)


def test_leftovers_of_a_history_without_a_record_are_found_by_its_name(shop: Shop) -> None:
    shop.abandon()
    shop.history.storage.delete([shop.history.layout.run(Term(1))])
    listed = shop.cleaned("--older-than", "0", "--delete")
    assert (listed["found"], "--lineage" in str(listed["notes"])) == ([], True)
    assert shop.cleaned("--older-than", "0", "--lineage", OLD, "--delete")["found"][0]["deleted"]
    assert not of_lineage(shop.hidden(), OLD)


def test_output_of_a_deleted_directory_is_found_by_the_name_of_its_history(shop: Shop) -> None:
    shutil.rmtree(shop.folder / "ckpt")
    assert shop.cleaned(code=3)["error"]["code"] == "JOB_NOT_FOUND"
    assert shop.cleaned("--older-than", "0", "--lineage", OLD, "--delete")["found"][0]["deleted"]
    assert of_lineage(shop.hidden(), NEW)


def test_young_leftovers_are_kept(shop: Shop) -> None:
    shop.abandon()
    assert "--older-than" in shop.cleaned("--delete")["found"][0]["kept"]
    assert of_lineage(shop.hidden(), OLD)
    for path in (shop.folder / "out" / ".tidegate-staged").iterdir():
        os.utime(path, (1, 1))
    assert shop.cleaned("--delete")["found"][0]["deleted"]
    assert run("cleanup", shop.job_file, "--older-than", "soon").exit_code == 3


def test_output_of_a_copied_directory_is_kept_unless_its_history_is_named(shop: Shop) -> None:
    """The copy claimed the job, too. Its claim is in no log of this directory."""
    shop.abandon()
    copy = trial_of(FileSink(str(shop.folder / "out")), OLD, 2 << 32 | 77)
    copy.attempt(0, new_rows(1))
    found = shop.cleaned("--older-than", "0", "--delete")["found"]
    assert sorted(each["deleted"] for each in found) == [False, True]
    assert len(of_lineage(shop.hidden(), OLD)) == 1
    shop.cleaned("--older-than", "0", "--delete", "--lineage", OLD)
    assert not of_lineage(shop.hidden(), OLD)


@pytest.mark.parametrize("damage", ["log", "metadata"])
def test_nothing_is_deleted_while_a_job_or_a_checkpoint_of_the_directory_cannot_be_read(
    shop: Shop, damage: str
) -> None:
    shop.abandon()
    other = History(shop.folder / "other", job="other", url=shop.history.url, lineage=Lineage("line-3"))
    other.checkpoint(1, TOTALS)
    name = path_of(other.layout, other.log[-1]) if damage == "log" else other.layout.metadata(1)
    (shop.folder / "ckpt" / name).write_bytes(b"damaged")
    assert "error" in shop.cleaned("--older-than", "0", "--delete", code=3)
    assert of_lineage(shop.hidden(), OLD)


def test_an_unreachable_target_is_reported_and_hides_no_other(shop: Shop, monkeypatch) -> None:
    shop.abandon()

    def refuse(self, lineage, sink):
        raise OSError("no route to host")

    monkeypatch.setattr("tidegate.connectors.files.cleaner.FileCleaner.find", refuse)
    listed = shop.cleaned("--delete", code=1)
    assert "no route to host" in str(listed["problems"])


def test_unneeded_files_of_an_ended_job_are_found(shop: Shop) -> None:
    shop.abandon()
    history = shop.history
    staged = history.layout.staged(EpochId(Term(1), 7), Uid("out"), AttemptId(1), "rows")
    history.storage.put(staged, b"rows")
    for where in (shop.folder / "ckpt", shop.folder / "ckpt" / "orders"):
        listed = told("cleanup", where, "--delete")
        assert listed["found"] == []
        assert "has not ended" in str(listed["notes"])
    history.end(RunOutcome.SUSPENDED)
    other = History(shop.folder / "other", job="other", url=history.url)
    other.checkpoint(1, TOTALS)
    before = everything(shop.folder)
    for where in (shop.folder / "ckpt", shop.folder / "ckpt" / "orders", shop.job_file):
        found = [each for each in told("cleanup", where, "--older-than", "0")["found"] if each["sink"] is None]
        assert staged in [each["where"] for each in found]
        assert [each["lineage"] for each in found if each["where"] == staged] == [OLD]
    assert everything(shop.folder) == before
    told("cleanup", shop.folder / "ckpt", "--delete")
    with pytest.raises(Exception, match="rows"):
        history.storage.get(staged)
    assert told("checkpoints", "verify", shop.folder / "ckpt" / "orders")["whole"]
    assert told("cleanup", shop.folder / "ckpt")["found"] == []


def test_no_host_is_called_that_a_strangers_log_names(shop: Shop, monkeypatch) -> None:
    shop.abandon()
    history = shop.history
    elsewhere = replace(history.refs[-1], metadata="s3://stranger/sp/_metadata", owned=False, claimed=True)
    entry = history.log[-1]
    history.log[-1] = replace(entry, retained=(*entry.retained, elsewhere))
    history.end(RunOutcome.SUSPENDED)

    def called(url, **options):
        raise AssertionError(f"{url} was opened")

    monkeypatch.setattr("tidegate.storage.routed.open_storage", called)
    error = told("cleanup", shop.folder / "ckpt", "--delete", code=3)["error"]
    assert "another store" in error["message"]
