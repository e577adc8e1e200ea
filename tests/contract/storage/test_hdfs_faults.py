"""Real HDFS behind an unlucky network: who wrote must learn the truth or stop, and nothing half is ever seen.

A write is three requests: the NameNode names a DataNode, the DataNode takes the body, the NameNode renames the file.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.storage.conftest import OpenHdfs
from tests.servers.hdfs import HdfsAddresses
from tests.servers.proxy import (
    Answer,
    CutReply,
    CutRequest,
    Delay,
    DropReply,
    Fault,
    FaultyProxy,
    Refuse,
    Rule,
    Throttle,
)
from tidegate.storage import (
    Lost,
    ObjectMissing,
    OutcomeUnknown,
    Patience,
    StorageDenied,
    StorageUnavailable,
    Won,
    new_nonce,
    open_storage,
)

IMPATIENT = Patience(attempts=3, first_ms=1)
LOCATE, BODY, RENAME = r"op=CREATE&(?!.*namenoderpc)", "op=CREATE&.*namenoderpc", "op=RENAME"
BEFORE_OR_AFTER: list[Fault] = [
    DropReply(),
    Refuse(),
    *(Answer(status, applied) for status in (500, 503) for applied in (False, True)),
]


@pytest.fixture(params=[LOCATE, BODY, RENAME], ids=["locate", "body", "rename"])
def request_of_a_write(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.mark.feature("E5")
@pytest.mark.parametrize("fault", BEFORE_OR_AFTER, ids=str)
def test_a_writer_learns_that_it_won(
    hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy, fault: Fault, request_of_a_write: str
) -> None:
    storage, nonce = hdfs_through_proxy(), new_nonce()
    hdfs_proxy.script(Rule(fault, path=request_of_a_write))
    assert storage.create("log/1", nonce.encode(), nonce) == Won()
    assert [seen.fault for seen in hdfs_proxy.seen if seen.fault] == [fault]
    assert storage.get("log/1") == nonce.encode()
    assert [each.path for each in storage.list()] == ["log/1"]


@pytest.mark.feature("E5")
@pytest.mark.parametrize("fault", BEFORE_OR_AFTER, ids=str)
def test_a_writer_learns_that_it_lost(
    hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy, fault: Fault, request_of_a_write: str
) -> None:
    storage, nonce = hdfs_through_proxy(), new_nonce()
    storage.put("log/1", b"another's")
    hdfs_proxy.script(Rule(fault, path=request_of_a_write))
    assert storage.create("log/1", nonce.encode(), nonce) == Lost(b"another's")
    assert [seen.fault for seen in hdfs_proxy.seen if seen.fault] == [fault]
    assert storage.get("log/1") == b"another's"


def test_a_loser_leaves_no_private_file(hdfs_through_proxy: OpenHdfs) -> None:
    storage, nonce = hdfs_through_proxy(), new_nonce()
    storage.put("log/1", b"another's")
    storage.create("log/1", nonce.encode(), nonce)
    assert storage.sweep() == 0


def test_a_writer_that_can_read_nothing_back_stops(hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy) -> None:
    storage, nonce = hdfs_through_proxy(IMPATIENT), new_nonce()
    hdfs_proxy.script(Rule(DropReply(), path=RENAME), Rule(Answer(503, applied=False), method="GET", times=None))
    with pytest.raises(OutcomeUnknown, match="Stop what depends on it") as caught:
        storage.create("log/1", nonce.encode(), nonce)
    assert caught.value.path == "log/1"
    hdfs_proxy.script()
    assert storage.create("log/1", nonce.encode(), nonce) == Won()


def test_a_writer_whose_body_was_not_taken_is_not_in_doubt(
    hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy
) -> None:
    storage, nonce = hdfs_through_proxy(IMPATIENT), new_nonce()
    hdfs_proxy.script(Rule(Refuse(), path=BODY, times=None))
    with pytest.raises(StorageUnavailable, match="DataNode"):
        storage.create("log/1", nonce.encode(), nonce)
    assert not [seen for seen in hdfs_proxy.seen if RENAME in seen.path]


def test_a_rename_given_up_in_doubt_may_come_late_and_is_still_ours(
    hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy
) -> None:
    hasty, patient = hdfs_through_proxy(Patience(attempts=1), timeout_ms=700), hdfs_through_proxy()
    nonce = new_nonce()
    hdfs_proxy.script(Rule(Delay(1.5), path=RENAME))
    with pytest.raises(OutcomeUnknown):
        hasty.create("log/1", nonce.encode(), nonce)
    with pytest.raises(ObjectMissing):
        patient.get("log/1")
    time.sleep(1.6)
    assert patient.get("log/1") == nonce.encode()
    assert patient.create("log/1", nonce.encode(), nonce) == Won()


@pytest.mark.feature("E5")
def test_a_rename_that_comes_late_does_not_replace_a_newer_body(
    hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy
) -> None:
    hasty, patient = hdfs_through_proxy(IMPATIENT, timeout_ms=700), hdfs_through_proxy()
    hdfs_proxy.script(Rule(Delay(2.0), path=RENAME))
    hasty.put("owner", b"old")
    patient.put("owner", b"new")
    time.sleep(2.2)
    assert [seen.answered for seen in hdfs_proxy.seen if RENAME in seen.path] == [404, 200, 200]
    assert patient.get("owner") == b"new"


@pytest.mark.feature("E5")
def test_what_is_read_is_synced_to_the_edit_log(hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy) -> None:
    storage, nonce = hdfs_through_proxy(), new_nonce()
    storage.put("log/1", b"another's")
    for read in (lambda: storage.get("log/1"), lambda: storage.create("log/1", nonce.encode(), nonce)):
        hdfs_proxy.script(Rule(Refuse(), path="op=SETTIMES"))
        read()
        edits = [seen for seen in hdfs_proxy.seen if "op=SETTIMES" in seen.path]
        assert [(seen.fault, seen.answered) for seen in edits] == [(Refuse(), None), (None, 200)]


@pytest.mark.feature("E5")
def test_a_cut_upload_is_never_seen(hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy) -> None:
    storage, data = hdfs_through_proxy(IMPATIENT), bytes(4_000_000)
    hdfs_proxy.script(Rule(CutRequest(1_500_000), path=BODY, times=None))
    with pytest.raises(StorageUnavailable) as caught:
        storage.put("shared/x", data)
    assert caught.value.retryable
    assert len([seen for seen in hdfs_proxy.seen if seen.fault]) == IMPATIENT.attempts
    assert storage.list() == []
    with pytest.raises(ObjectMissing):
        storage.get("shared/x")
    hdfs_proxy.script(Rule(CutRequest(1_500_000), path=BODY))
    storage.put("shared/x", data)
    assert storage.get("shared/x") == data


def test_a_cut_heartbeat_leaves_the_old_one(hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy) -> None:
    storage = hdfs_through_proxy(IMPATIENT)
    storage.put("owner", b"old")
    hdfs_proxy.script(Rule(CutRequest(10), path=BODY, times=None))
    with pytest.raises(StorageUnavailable):
        storage.put("owner", b"new and longer than ten bytes")
    assert storage.get("owner") == b"old"


def test_a_cut_answer_is_read_again(hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy) -> None:
    storage, data = hdfs_through_proxy(), bytes(range(256)) * 4000
    storage.put("x", data)
    hdfs_proxy.script(Rule(CutReply(300_000), path="op=OPEN.*namenoderpc", times=2))
    assert storage.get("x") == data
    hdfs_proxy.script(Rule(CutReply(100), path="op=OPEN.*namenoderpc"))
    assert storage.get_range("x", 1000, 5000) == data[1000:6000]


@pytest.mark.parametrize("fault", [DropReply(), Answer(503, applied=False), Refuse()], ids=str)
def test_what_may_be_repeated_is_repeated(hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy, fault: Fault) -> None:
    storage = hdfs_through_proxy()
    operations = ("CREATE", "RENAME", "GETFILESTATUS", "LISTSTATUS_BATCH", "DELETE")
    hdfs_proxy.script(*(Rule(fault, path=f"op={operation}&") for operation in operations))
    storage.put("a/1", b"x")
    assert storage.size("a/1") == 1
    assert [each.path for each in storage.list("a")] == ["a/1"]
    storage.delete(["a/1", "a/2"])
    assert sum(seen.fault is not None for seen in hdfs_proxy.seen) == len(operations)
    assert storage.list() == []


def test_a_data_node_that_does_not_respond_is_avoided_while_there_are_others(
    hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy
) -> None:
    storage = hdfs_through_proxy()
    hdfs_proxy.script(Rule(Refuse(), path=BODY))
    storage.put("x", b"1")
    asked = [seen for seen in hdfs_proxy.seen if "op=CREATE" in seen.path and "namenoderpc" not in seen.path]
    assert ["excludedatanodes=127.0.0.1" in seen.path for seen in asked] == [False, True, False]
    assert [seen.answered for seen in asked] == [307, 403, 307], "there is only this one, so it is asked again"


def test_a_listing_after_a_name_does_not_read_what_comes_before(
    hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy
) -> None:
    storage = hdfs_through_proxy()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: storage.put(f"job/log/{n:012d}", b""), range(220)))
    hdfs_proxy.script()
    assert len(storage.list("job/log", after=f"job/log/{200:012d}")) == 19
    assert len(hdfs_proxy.seen) == 1
    assert len(storage.list("job/log")) == 220
    assert len(hdfs_proxy.seen) == 1 + 3, "pages of a hundred"
    hdfs_proxy.script()
    assert storage.folders("job") == ["log"]
    assert len(hdfs_proxy.seen) == 2, "a page, and an edit, which only the NameNode that acts can make"
    assert "op=SETTIMES" in str(hdfs_proxy.seen[-1])


def test_a_slow_network_changes_nothing_but_time(hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy) -> None:
    storage, data = hdfs_through_proxy(), bytes(range(256)) * 1000
    hdfs_proxy.script(Rule(Throttle(400_000), times=None))
    began = time.monotonic()
    storage.put("x", data)
    assert storage.get("x") == data
    assert time.monotonic() - began > 1.0


def test_a_refusal_is_not_repeated(hdfs_through_proxy: OpenHdfs, hdfs_proxy: FaultyProxy, hdfs: HdfsAddresses) -> None:
    storage, nonce = hdfs_through_proxy(user="a-stranger"), new_nonce()
    with pytest.raises(StorageDenied, match=r"hdfs.user \(a-stranger\)"):
        storage.create("log/1", nonce.encode(), nonce)
    assert len([seen for seen in hdfs_proxy.seen if "op=CREATE" in seen.path]) == 2


def test_a_user_with_read_permission_only_can_read(hdfs_through_proxy: OpenHdfs) -> None:
    hdfs_through_proxy().put("a/x", b"1")
    assert hdfs_through_proxy(user="a-stranger").get("a/x") == b"1"


def test_connections_are_kept_and_not_shared_with_a_forked_child(hdfs: HdfsAddresses) -> None:
    storage = open_storage(f"{hdfs.url}/forked-{new_nonce()}", patience=IMPATIENT, **hdfs.options())
    storage.put("x", b"1")
    child = os.fork()
    if child == 0:
        try:
            done = all(storage.get("x") == b"1" for _ in range(20))
        finally:
            os._exit(7 if done else 8)
    assert all(storage.get("x") == b"1" for _ in range(20))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
