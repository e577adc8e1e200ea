"""A writer to HDFS is killed after each of its steps, and so are the servers: all of an object is there, or nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.fixtures import hdfs_servers
from tests.servers.hdfs import Hdfs, HdfsAddresses
from tests.servers.proxy import FaultyProxy, Rule, Throttle
from tests.waiting import eventually
from tidegate.core import faults
from tidegate.storage import Lost, ObjectMissing, Patience, Storage, StorageUnavailable, Won, new_nonce, open_storage
from tidegate.storage.hdfs.address import HdfsAddress
from tidegate.storage.hdfs.client import WebHdfsClient
from tidegate.storage.hdfs.listing import Listing

__all__ = ["hdfs_servers"]

NONCE = "0123456789abcdef0123456789abcdef"
BODY = NONCE.encode() * 20_000
STEPS = ["0-located", "1-written", "2-named"]
LEFT = {"0-located": (False, 0), "1-written": (False, 1), "2-named": (True, 0)}
"""After each step: whether the object is there, and how many private files are."""
KILL_AT = """
import os, signal
def reached(point, **context):
    if point == {point!r}: os.kill(os.getpid(), signal.SIGKILL)
"""
WRITE = """
import json, sys
from tidegate.storage import open_storage
storage, body = open_storage(sys.argv[1], **json.loads(sys.argv[2])), sys.argv[3].encode() * 20_000
storage.put("job/log/1", body) if sys.argv[4] == "put" else storage.create("job/log/1", body, sys.argv[3])
"""


@pytest.fixture
def root(hdfs: HdfsAddresses) -> str:
    return f"{hdfs.url}/{uuid.uuid4().hex}"


def command(root: str, options: dict[str, str], operation: str) -> list[str]:
    return [sys.executable, "-c", WRITE, root, json.dumps(options), NONCE, operation]


@pytest.mark.feature("E5")
@pytest.mark.parametrize("operation", ["put", "create"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_after_a_step(hdfs: HdfsAddresses, root: str, tmp_path: Path, operation: str, step: str) -> None:
    script = tmp_path / "faults.py"
    script.write_text(KILL_AT.format(point=f"storage.hdfs.{operation}.{step}"))
    ended = subprocess.run(command(root, hdfs.options(), operation), env={**os.environ, "TIDEGATE_FAULTS": str(script)})
    assert ended.returncode == -signal.SIGKILL
    storage = open_storage(root, **hdfs.options())
    named, private_files = LEFT[step]
    assert [(each.path, each.size_bytes) for each in storage.list()] == ([("job/log/1", len(BODY))] if named else [])
    assert storage.sweep() == private_files
    assert storage.create("job/log/1", BODY, NONCE) == Won()
    assert storage.get("job/log/1") == BODY


@pytest.mark.feature("E5")
def test_killed_in_the_middle_of_the_body(hdfs: HdfsAddresses, hdfs_proxy: FaultyProxy, root: str) -> None:
    storage = open_storage(root, **hdfs.options())
    hdfs_proxy.script(Rule(Throttle(len(BODY) / 20), path="op=CREATE&.*namenoderpc"))
    writer = subprocess.Popen(command(root, hdfs.behind(hdfs_proxy.port).options(), "create"))
    wait_for_private_file(hdfs, root)
    assert storage.list() == []
    os.kill(writer.pid, signal.SIGKILL)
    assert writer.wait() == -signal.SIGKILL
    assert storage.list() == []
    assert storage.create("job/log/1", BODY, NONCE) == Won()
    assert storage.sweep() == 1
    assert [(each.path, each.size_bytes) for each in storage.list()] == [("job/log/1", len(BODY))]


def wait_for_private_file(hdfs: HdfsAddresses, root: str) -> None:
    """Until a DataNode has begun to write, as every client of the file system can see."""
    listing = Listing(WebHdfsClient(HdfsAddress.of(root, hdfs.options())), Patience())
    eventually(lambda: list(listing.files("")), "a private file")


def test_a_sweep_under_a_writer_only_makes_it_write_again(hdfs: HdfsAddresses, root: str) -> None:
    storage = open_storage(root, **hdfs.options())
    swept = []

    def sweep_once(point: str, **context: object) -> None:
        if point.endswith("1-written") and len(swept) < 2:
            swept.append(storage.sweep())

    faults.arm(sweep_once)
    try:
        assert storage.create("log/1", BODY, NONCE) == Won()
        swept.pop()
        storage.put("log/2", BODY)
    finally:
        faults.arm(None)
    assert swept == [1, 1]
    assert storage.get("log/1") == storage.get("log/2") == BODY
    assert storage.sweep() == 0


@pytest.mark.feature("E5")
def test_a_writer_whose_private_file_was_swept_does_not_take_the_winner_for_itself(
    hdfs: HdfsAddresses, root: str
) -> None:
    storage, other = open_storage(root, **hdfs.options()), new_nonce()

    def interfere(point: str, **context: object) -> None:
        if point.endswith("create.1-written"):
            faults.arm(None)
            assert storage.sweep() == 1
            assert storage.create("log/1", other.encode(), other) == Won()

    faults.arm(interfere)
    try:
        assert storage.create("log/1", BODY, NONCE) == Lost(other.encode())
    finally:
        faults.arm(None)
    assert storage.get("log/1") == other.encode()


def test_folders_that_became_empty_are_gone_and_made_again(hdfs: HdfsAddresses, root: str) -> None:
    storage = open_storage(root, **hdfs.options())
    for number in range(3):
        storage.put(f"a/b/{number}", b"x")
        storage.delete([f"a/b/{number}"])
        assert storage.folders() == []
    with pytest.raises(ObjectMissing):
        storage.get("a/b/1")


@pytest.mark.budget(150)
class TestServersDie:
    """Each test ends with both servers alive."""

    @pytest.fixture(autouse=True)
    def revived(self, hdfs_servers: Hdfs) -> Iterator[None]:
        yield
        hdfs_servers.start()

    @pytest.fixture
    def storage(self, hdfs_servers: Hdfs, root: str) -> Storage:
        return open_storage(root, patience=Patience(attempts=3, first_ms=1), **hdfs_servers.addresses.options())

    @pytest.mark.feature("E5")
    def test_what_was_written_survives_the_name_node(self, hdfs_servers: Hdfs, storage: Storage) -> None:
        nonce = new_nonce()
        storage.put("owner", b"me")
        assert storage.create("log/1", nonce.encode(), nonce) == Won()
        hdfs_servers.kill_name_node()
        with pytest.raises(StorageUnavailable, match="no NameNode is reachable"):
            storage.get("owner")
        hdfs_servers.start()
        assert storage.get("owner") == b"me"
        assert storage.get("log/1") == nonce.encode()

    def test_a_body_whose_data_node_dies_is_never_seen(
        self, hdfs_servers: Hdfs, storage: Storage, hdfs_proxy: FaultyProxy, root: str
    ) -> None:
        """The DataNode is the one that holds the lease, and it ends before it can close the file."""
        addresses = hdfs_servers.addresses
        hdfs_proxy.script(Rule(Throttle(len(BODY) / 20), path="op=CREATE&.*namenoderpc"))
        writer = subprocess.Popen(command(root, addresses.behind(hdfs_proxy.port).options(), "create"))
        wait_for_private_file(addresses, root)
        hdfs_servers.kill_data_node()
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        assert storage.list() == []
        with pytest.raises(StorageUnavailable):
            storage.put("x", b"1")
        hdfs_servers.start()
        assert storage.sweep() >= 1, "the file is still open, and goes all the same"
        assert storage.create("job/log/1", BODY, NONCE) == Won()
        assert [(each.path, each.size_bytes) for each in storage.list()] == [("job/log/1", len(BODY))]
        assert storage.sweep() == 0
