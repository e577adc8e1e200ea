"""A real S3 server behind an unlucky network: who wrote must learn the truth or stop, and nothing half is ever seen."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.storage.conftest import OpenS3
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
from tests.servers.seaweedfs import S3Address
from tests.waiting import eventually
from tidegate.storage import (
    Lost,
    ObjectMissing,
    OutcomeUnknown,
    Patience,
    StorageDenied,
    StorageMisconfigured,
    StorageUnavailable,
    Won,
    new_nonce,
    open_storage,
)

IMPATIENT = Patience(attempts=3, first_ms=1)
BEFORE_OR_AFTER: list[Fault] = [
    DropReply(),
    Refuse(),
    *(Answer(status, applied) for status in (409, 412, 500, 503) for applied in (False, True)),
]


@pytest.mark.parametrize("fault", BEFORE_OR_AFTER, ids=str)
def test_a_writer_learns_that_it_won(s3_through_proxy: OpenS3, s3_proxy: FaultyProxy, fault: Fault) -> None:
    storage, nonce = s3_through_proxy(), new_nonce()
    s3_proxy.script(Rule(fault, method="PUT"))
    assert storage.create("log/1", nonce.encode(), nonce) == Won()
    assert s3_proxy.seen[0].fault == fault
    assert storage.get("log/1") == nonce.encode()


@pytest.mark.parametrize("fault", BEFORE_OR_AFTER, ids=str)
def test_a_writer_learns_that_it_lost(s3_through_proxy: OpenS3, s3_proxy: FaultyProxy, fault: Fault) -> None:
    storage, nonce = s3_through_proxy(), new_nonce()
    storage.put("log/1", b"another's")
    s3_proxy.script(Rule(fault, method="PUT"))
    assert storage.create("log/1", nonce.encode(), nonce) == Lost(b"another's")
    assert s3_proxy.seen[0].fault == fault
    assert storage.get("log/1") == b"another's"


def test_a_writer_that_can_read_nothing_back_stops(s3_through_proxy: OpenS3, s3_proxy: FaultyProxy) -> None:
    storage, nonce = s3_through_proxy(IMPATIENT), new_nonce()
    s3_proxy.script(Rule(DropReply(), method="PUT"), Rule(Answer(503, applied=False), method="GET", times=None))
    with pytest.raises(OutcomeUnknown, match="Stop what depends on it") as caught:
        storage.create("log/1", nonce.encode(), nonce)
    assert caught.value.path == "log/1"
    s3_proxy.script()
    assert storage.create("log/1", nonce.encode(), nonce) == Won()


def test_a_write_given_up_in_doubt_may_come_late_and_is_still_ours(
    s3_through_proxy: OpenS3, s3_proxy: FaultyProxy
) -> None:
    hasty, patient = s3_through_proxy(Patience(attempts=1), client_options={"timeout": "300ms"}), s3_through_proxy()
    nonce = new_nonce()
    # Long enough for a loaded machine to see that it has not come yet.
    s3_proxy.script(Rule(Delay(3), method="PUT"))
    with pytest.raises(OutcomeUnknown):
        hasty.create("log/1", nonce.encode(), nonce)
    with pytest.raises(ObjectMissing):
        patient.get("log/1")
    eventually(patient.list, "the write has come")
    assert patient.get("log/1") == nonce.encode()
    assert patient.create("log/1", nonce.encode(), nonce) == Won()


def test_a_cut_upload_is_never_seen(s3_through_proxy: OpenS3, s3_proxy: FaultyProxy) -> None:
    storage, data = s3_through_proxy(IMPATIENT), bytes(4_000_000)
    s3_proxy.script(Rule(CutRequest(1_500_000), method="PUT", times=None))
    with pytest.raises(StorageUnavailable) as caught:
        storage.put("shared/x", data)
    assert caught.value.retryable
    assert len(s3_proxy.seen) == IMPATIENT.attempts
    assert storage.list() == []
    with pytest.raises(ObjectMissing):
        storage.get("shared/x")
    s3_proxy.script(Rule(CutRequest(1_500_000), method="PUT"))
    storage.put("shared/x", data)
    assert storage.get("shared/x") == data


def test_a_cut_heartbeat_leaves_the_old_one(s3_through_proxy: OpenS3, s3_proxy: FaultyProxy) -> None:
    storage = s3_through_proxy(IMPATIENT)
    storage.put("owner", b"old")
    s3_proxy.script(Rule(CutRequest(10), method="PUT", times=None))
    with pytest.raises(StorageUnavailable):
        storage.put("owner", b"new and longer than ten bytes")
    assert storage.get("owner") == b"old"


def test_a_cut_answer_is_read_again(s3_through_proxy: OpenS3, s3_proxy: FaultyProxy) -> None:
    storage, data = s3_through_proxy(), bytes(range(256)) * 4000
    storage.put("x", data)
    s3_proxy.script(Rule(CutReply(300_000), method="GET", times=2))
    assert storage.get("x") == data
    assert [seen.fault for seen in s3_proxy.seen] == [CutReply(300_000), CutReply(300_000), None]
    s3_proxy.script(Rule(CutReply(100), method="GET"))
    assert storage.get_range("x", 1000, 5000) == data[1000:6000]


@pytest.mark.parametrize("fault", [DropReply(), Answer(503, applied=False), Refuse()], ids=str)
def test_what_may_be_repeated_is_repeated(s3_through_proxy: OpenS3, s3_proxy: FaultyProxy, fault: Fault) -> None:
    storage = s3_through_proxy()
    s3_proxy.script(*(Rule(fault, method=method) for method in ("PUT", "HEAD", "GET", "POST")))
    storage.put("a/1", b"x")
    assert storage.size("a/1") == 1
    assert [each.path for each in storage.list("a")] == ["a/1"]
    storage.delete(["a/1", "a/2"])
    assert sum(seen.fault is not None for seen in s3_proxy.seen) == 4
    assert storage.list() == []


def test_folders_are_listed_in_one_request_however_many_names_they_hold(
    s3_through_proxy: OpenS3, s3_proxy: FaultyProxy
) -> None:
    storage = s3_through_proxy()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: storage.put(f"job/log/{n:012d}", b"x"), range(1100)))
    storage.put("job/chk-7/_metadata", b"x")
    s3_proxy.script()
    assert storage.folders("job") == ["chk-7", "log"]
    assert len(s3_proxy.seen) == 1


def test_a_slow_network_changes_nothing_but_time(s3_through_proxy: OpenS3, s3_proxy: FaultyProxy) -> None:
    storage, data = s3_through_proxy(), bytes(range(256)) * 1000
    s3_proxy.script(Rule(Throttle(400_000), times=None))
    began = time.monotonic()
    storage.put("x", data)
    assert storage.get("x") == data
    assert time.monotonic() - began > 1.0


def test_a_refusal_is_not_repeated(s3_server: S3Address, s3_proxy: FaultyProxy) -> None:
    options = {**s3_server.behind(s3_proxy.port).options(), "secret_access_key": "wrong"}
    storage, nonce = open_storage(f"s3://{s3_server.bucket}/x", **options), new_nonce()
    with pytest.raises(StorageDenied, match="credentials"):
        storage.create("log/1", nonce.encode(), nonce)
    assert len(s3_proxy.seen) == 1


def test_a_store_used_before_a_fork_says_so_instead_of_hanging(s3_through_proxy: OpenS3) -> None:
    storage = s3_through_proxy()
    storage.put("x", b"1")
    child = os.fork()
    if child == 0:
        try:
            storage.get("x")
        except StorageMisconfigured as error:
            os._exit(7 if "only after forking" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
