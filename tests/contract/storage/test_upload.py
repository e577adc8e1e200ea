"""Files go up in parts, whoever carries them, and come down verified."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.contract.storage.conftest import OpenS3
from tests.servers.proxy import FaultyProxy, Rule, Throttle
from tests.servers.seaweedfs import S3Address
from tidegate.core.errors import CorruptState
from tidegate.storage import (
    CorruptFile,
    FileHandle,
    ObjectMissing,
    Storage,
    Upload,
    UploadRecord,
    checksum_of_file,
    download,
    fetch,
    open_storage,
)

PART = 100_000
CARRY_ON = """
import json, pathlib, sys
from tidegate.storage import Upload, open_storage
url, options, source, record, part = sys.argv[1:]
storage = open_storage(url, **json.loads(options))
print(Upload(storage, pathlib.Path(source), "job/shared", pathlib.Path(record), int(part)).run().checksum)
"""


def random_file(path: Path, size: int) -> Path:
    path.write_bytes(random.Random(size).randbytes(size))
    return path


@pytest.mark.feature("E3")
@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART, 3 * PART + 7])
def test_a_file_goes_up_and_its_handle_alone_brings_it_back(storage: Storage, tmp_path: Path, size: int) -> None:
    source = random_file(tmp_path / "sst", size)
    handle = Upload(storage, source, "job/shared", tmp_path / "record", PART).run()
    assert {each.path: each.size_bytes for each in storage.list()} == dict(handle.parts())
    assert max(each.size_bytes for each in storage.list()) <= PART
    sent = msgspec.json.encode(handle)
    assert len(sent) < 300
    received = msgspec.json.decode(sent, type=FileHandle)
    download(storage, received, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == fetch(storage, received) == source.read_bytes()
    storage.delete(handle.objects())
    assert storage.list() == []


@pytest.mark.feature("E3")
def test_each_step_stores_one_part_and_another_object_may_take_the_next(storage: Storage, tmp_path: Path) -> None:
    source = random_file(tmp_path / "sst", 3 * PART)
    for done in (1, 2):
        carrier = Upload(storage, source, f"ignored-{done}", tmp_path / "record", PART)
        assert carrier.step() is None
        assert carrier.parts_left == 3 - done
        assert len(storage.list()) == done
    handle = Upload(storage, source, "ignored", tmp_path / "record", PART).step()
    assert handle is not None
    assert handle.checksum == checksum_of_file(source)
    assert Upload(storage, source, "ignored", tmp_path / "record", PART).handle == handle


def test_two_carriers_at_once_agree(storage: Storage, tmp_path: Path) -> None:
    source = random_file(tmp_path / "sst", 3 * PART)
    one, two = (Upload(storage, source, folder, tmp_path / "record", PART) for folder in ("one", "two"))
    one.step(), two.step(), two.step()
    assert one.run() == two.run()
    assert len(storage.list()) == 3


@pytest.mark.parametrize("damage", ["changed", "short", "missing"])
def test_a_damaged_file_is_not_brought_back(storage: Storage, tmp_path: Path, damage: str) -> None:
    source = random_file(tmp_path / "sst", 2 * PART + 5)
    handle = Upload(storage, source, "job/shared", tmp_path / "record", PART).run()
    victim = handle.objects()[1]
    if damage == "missing":
        storage.delete([victim])
    else:
        good = storage.get(victim)
        storage.put(victim, good[:-1] if damage == "short" else good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(ObjectMissing if damage == "missing" else CorruptFile, match=r"checkpoint|ends before"):
        download(storage, handle, tmp_path / "back")
    assert {each.name for each in tmp_path.iterdir()} - {"root"} == {"sst", "record"}


def test_a_file_that_is_not_the_one_begun_with_is_refused(storage: Storage, tmp_path: Path) -> None:
    source = random_file(tmp_path / "sst", 3 * PART)
    Upload(storage, source, "job/shared", tmp_path / "record", PART).step()
    random_file(source, 2 * PART)
    with pytest.raises(CorruptState, match="when its upload began"):
        Upload(storage, source, "job/shared", tmp_path / "record", PART)


def test_a_torn_record_restarts_the_upload(storage: Storage, tmp_path: Path) -> None:
    source = random_file(tmp_path / "sst", 2 * PART)
    Upload(storage, source, "job/shared", tmp_path / "record", PART).step()
    (tmp_path / "record").write_bytes(b"{")
    handle = Upload(storage, source, "job/shared", tmp_path / "record", PART).run()
    assert fetch(storage, handle) == source.read_bytes()


def test_an_upload_killed_in_the_middle_of_a_part_is_finished_by_another_process(
    s3_server: S3Address, s3_through_proxy: OpenS3, s3_proxy: FaultyProxy, tmp_path: Path
) -> None:
    source, record, size = random_file(tmp_path / "sst", 5 * PART), tmp_path / "record", 5
    storage = s3_through_proxy()
    options = msgspec.json.encode(s3_server.behind(s3_proxy.port).options()).decode()
    command = [sys.executable, "-c", CARRY_ON, storage.url, options, str(source), str(record), str(PART)]

    s3_proxy.script(Rule(Throttle(PART / 60), method="PUT", nth=3, times=None))
    first = subprocess.Popen(command)
    while not (record.exists() and msgspec.json.decode(record.read_bytes(), type=UploadRecord).parts_done == 2):
        time.sleep(0.02)
    time.sleep(0.3)
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    assert len(storage.list()) == 2

    s3_proxy.script()
    second = subprocess.run(command, capture_output=True, text=True, check=True)
    assert second.stdout.strip() == checksum_of_file(source)
    assert [seen.method for seen in s3_proxy.seen].count("PUT") == size - 2
    handle = Upload(storage, source, "ignored", record, PART).handle
    assert handle is not None
    direct = open_storage(storage.url, **s3_server.options())
    assert fetch(direct, handle) == source.read_bytes()


@pytest.mark.feature("C24")
@pytest.mark.parametrize("point", ["2-part-stored", "3-recorded", "4-complete"])
def test_an_upload_killed_after_a_step_is_finished_by_another_process(tmp_path: Path, point: str) -> None:
    source, record, root = random_file(tmp_path / "sst", 3 * PART), tmp_path / "record", tmp_path / "root"
    script = tmp_path / "faults.py"
    script.write_text(
        f"import os, signal\ndef reached(point, **at):\n"
        f"    if point == 'storage.upload.{point}' and at.get('index', 1) == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", CARRY_ON, str(root), "{}", str(source), str(record), str(PART)]
    killed = subprocess.run(command, env={**os.environ, "TIDEGATE_FAULTS": str(script)})
    assert killed.returncode == -signal.SIGKILL
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == checksum_of_file(source)
    assert len(open_storage(root).list()) == 3
