"""Files that a source has read must stay; Spark's log of files says which they were."""

from __future__ import annotations

import json

import pytest

import tidegate as tg
from tests.unit.api.shop import Frame
from tidegate.runtime.kept_files import FilesVanish, check_kept
from tidegate.runtime.query_directory import Positions


def sources(at_most_once: bool):
    job = tg.Job("j")
    job.source("other", Frame("a int"))
    job.source("files", Frame("a int"), at_most_once=at_most_once)
    return job.draft().sources


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


def test_a_file_that_is_gone_is_told(read):
    directory, positions, kept = read
    check_kept(directory, positions, sources(False))
    kept.unlink()
    with pytest.raises(FilesVanish, match=r"a.json was read by source 'files'"):
        check_kept(directory, positions, sources(False))
    check_kept(directory, positions, sources(True))


def test_an_entry_that_was_put_together_with_others_is_not_looked_at(read):
    directory, _, kept = read
    kept.unlink()
    check_kept(directory, Positions(("-", '{"logOffset":9}')), sources(False))
