"""Sixteen writers want one name: one wins and knows it, fifteen lose and know to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.storage.conftest import OpenHdfs, OpenS3
from tests.contract.storage.racing import WRITERS, assert_one_winner_each, race_of_processes, race_of_threads
from tests.servers.proxy import Answer, CutReply, DropReply, FaultyProxy, Refuse, Rule
from tidegate.storage import LocalStorage, Storage, Won


@pytest.mark.feature("E5")
def test_threads_race(storage: Storage) -> None:
    rounds, lanes = {"s3": (6, 6), "hdfs": (20, 2)}.get(storage.url.partition(":")[0], (200, 1))
    entries = race_of_threads([storage] * WRITERS, rounds, lanes)
    assert_one_winner_each(storage, entries, rounds)


def test_processes_race_for_files(tmp_path: Path) -> None:
    rounds = 40
    entries = race_of_processes(tmp_path, rounds)
    assert_one_winner_each(LocalStorage(tmp_path), entries, rounds)
    assert len({entry.body.split()[1] for entry in entries if entry.outcome == Won()}) > 1
    assert LocalStorage(tmp_path).sweep() == 0


def test_threads_race_while_answers_are_lost_or_wrong(s3_through_proxy: OpenS3, s3_proxy: FaultyProxy) -> None:
    rounds = 30
    quiet = s3_through_proxy()
    s3_proxy.script(
        # So often that every second winner does not hear of it: fewer than five of thirty happen once in 30,000 runs.
        Rule(DropReply(), method="PUT", chance=0.5, times=None),
        Rule(Answer(409, applied=False), method="PUT", chance=0.1, times=None),
        Rule(Answer(409, applied=True), method="PUT", chance=0.1, times=None),
        Rule(Answer(503, applied=True), method="PUT", chance=0.1, times=None),
        Rule(Refuse(), method="PUT|GET", chance=0.1, times=None),
        Rule(CutReply(5), method="GET", chance=0.1, times=None),
    )
    entries = race_of_threads([s3_through_proxy() for _ in range(WRITERS)], rounds, lanes=rounds)
    struck = [seen for seen in s3_proxy.seen if seen.fault is not None]
    s3_proxy.script()
    assert_one_winner_each(quiet, entries, rounds)
    assert sum(seen.fault == DropReply() and seen.answered == 200 for seen in struck) >= 5


def test_threads_race_for_files_of_hdfs_while_answers_are_lost(
    hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy
) -> None:
    rounds = 30
    quiet = hdfs_through_proxy()
    hdfs_proxy.script(
        Rule(DropReply(), path="op=RENAME", chance=0.5, times=None),
        Rule(Answer(503, applied=True), path="op=RENAME", chance=0.1, times=None),
        Rule(Answer(503, applied=False), path="op=(RENAME|OPEN)", chance=0.1, times=None),
        Rule(Refuse(), chance=0.05, times=None),
        Rule(CutReply(5), method="GET", path="namenoderpcaddress", chance=0.1, times=None),
    )
    entries = race_of_threads([hdfs_through_proxy() for _ in range(WRITERS)], rounds, lanes=2)
    struck = [seen for seen in hdfs_proxy.seen if seen.fault is not None]
    hdfs_proxy.script()
    assert_one_winner_each(quiet, entries, rounds)
    assert sum(seen.fault == DropReply() and seen.answered == 200 for seen in struck) >= 5
