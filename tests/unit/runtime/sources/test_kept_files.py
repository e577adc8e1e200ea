"""Files that a source has read must stay; Spark's log of files says which they were."""

from __future__ import annotations

import json

import pytest

import tidegate as tg
from tests.unit.api.shop import Frame
from tidegate.runtime.sources.kept_files import FilesVanish, KeptUnknown, check_declared, check_kept
from tidegate.runtime.sources.query_directory import Positions
from tidegate.runtime.sources.source_checks import check_sources


def sources(at_most_once: bool = False, **more: bool):
    job = tg.Job("j")
    job.source("other", Frame("a int"))
    job.source("files", Frame("a int"), at_most_once=at_most_once, **more)
    return job.draft().sources


class Files(Frame):
    """A stream of files, as Spark prints its plan."""

    isStreaming = True

    def __init__(self, path: str) -> None:
        super().__init__("a int")
        self.path = path

    def explain(self, extended: bool) -> None:
        print(f"StreamingRelation DataSource(session,parquet,List()), FileSource[{self.path}], [a#0]")


def start(path: str, **more: bool) -> None:
    job = tg.Job("j")
    job.source("files", Files(path), **more)
    check_sources(job.draft().sources)


@pytest.fixture
def read(tmp_path):
    """Two sources: one without files, one whose entry 3 lists a local file and a remote one."""
    kept = tmp_path / "in put" / "a.json"
    kept.parent.mkdir()
    kept.touch()
    entry = tmp_path / "query" / "sources" / "1" / "3"
    entry.parent.mkdir(parents=True)
    paths = [kept.as_uri(), "s3a://bucket/b.json"]
    lines = [json.dumps({"path": path, "timestamp": 1, "batchId": 3}) for path in paths]
    entry.write_text("\n".join(["v1", *lines]))
    return tmp_path / "query", Positions(("42", '{"logOffset":3}')), kept


@pytest.mark.feature("J11")
def test_a_missing_file_is_reported(read):
    directory, positions, kept = read
    check_kept(directory, positions, sources(False))
    kept.unlink()
    with pytest.raises(FilesVanish, match=r"a.json was just read by source 'files'"):
        check_kept(directory, positions, sources(False))
    check_kept(directory, positions, sources(True))


def test_files_in_a_compacted_log_are_not_checked(read):
    directory, _, kept = read
    kept.unlink()
    check_kept(directory, Positions(("-", '{"logOffset":9}')), sources(False))


@pytest.mark.feature("J11")
@pytest.mark.parametrize("path", ["s3a://bucket/in", "hdfs://name/in", "abfss://c@a.dfs.core.windows.net/in"])
def test_unwatchable_files_are_refused_unless_declared_kept(path):
    with pytest.raises(KeptUnknown, match=r"source 'files' reads files in .*files_kept=True"):
        start(path)
    start(path, files_kept=True)
    start(path, at_most_once=True)


@pytest.mark.parametrize("path", ["/in", "file:/in", "file:///in"])
def test_files_on_a_disk_of_the_drivers_need_no_declaration(path):
    start(path)


@pytest.mark.feature("J11")
def test_a_path_without_a_scheme_that_leads_elsewhere_is_refused_with_its_first_batch(read):
    directory, positions, _ = read
    with pytest.raises(KeptUnknown, match=r"source 'files' reads files in s3a://bucket"):
        check_declared(directory, positions, sources())
    check_declared(directory, positions, sources(files_kept=True))
    check_declared(directory, positions, sources(at_most_once=True))
    check_declared(directory, Positions(("-", '{"logOffset":9}')), sources())


@pytest.mark.feature("J11")
def test_files_declared_kept_are_still_checked_where_possible(read):
    directory, positions, kept = read
    kept.unlink()
    with pytest.raises(FilesVanish):
        check_kept(directory, positions, sources(files_kept=True))
