"""A job keeps its checkpoints in real HDFS, is killed, and continues from there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections import defaultdict
from pathlib import Path

import pytest

from tests.servers.fixtures import hdfs_servers
from tests.servers.hdfs import USER, Hdfs
from tests.waiting import eventually, remove
from tidegate.storage import open_storage

__all__ = ["hdfs_servers"]

USERS = 5
PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations" / "hdfs.md"
PROGRAM = """
import sys
import tidegate as tg

folder, place, backend, parallelism, trigger = sys.argv[1:]

class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.id, row.user, self.n.value()

spark = tg.session("counts", master="local[2]", config={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
events = spark.readStream.schema("id bigint, user int").option("maxFilesPerTrigger", 1).json(f"file://{folder}/in")
job = tg.Job("counts", parallelism=int(parallelism))
counts = job.source("events", events).key_by("user").process("count", Count(), schema="id bigint, user int, n bigint")
counts.sink("out", tg.FileSink(f"{folder}/out"))
job.run(
    trigger=trigger,
    options={
        "state.backend.type": backend,
        "execution.checkpointing.dir": place,
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.incremental": "true",
        "local_dir": f"{folder}/local",
    },
)
"""


class Shop:
    """The job's process, its input and its output."""

    def __init__(self, folder: Path, servers: Hdfs, place: str) -> None:
        self._folder, self._place, self._sent = folder, place, 0
        (folder / "in").mkdir()
        (folder / "program.py").write_text(PROGRAM)
        self.environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HADOOP_CONF_DIR": str(servers.conf),
            "HADOOP_USER_NAME": USER,
        }

    def send(self, files: int) -> None:
        for _ in range(files):
            rows = [{"id": i, "user": i % USERS} for i in range(self._sent, self._sent + 20)]
            draft = self._folder / "draft"
            draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
            draft.rename(self._folder / "in" / f"{self._sent:08d}.json")
            self._sent += len(rows)

    def start(self, backend: str, parallelism: int, trigger: str) -> subprocess.Popen[bytes]:
        words = [str(self._folder), self._place, backend, str(parallelism), trigger]
        with (self._folder / "job.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(self._folder / "program.py"), *words],
                stdout=log, stderr=log, env=self.environment, start_new_session=True,
            )  # fmt: skip

    def rows(self) -> list[dict[str, int]]:
        files = (self._folder / "out").glob("*.json") if (self._folder / "out").exists() else ()
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def log(self) -> str:
        return (self._folder / "job.log").read_text()[-4000:]

    def forget_local_state(self) -> None:
        remove(self._folder / "local")

    def assert_exact(self) -> None:
        """Every event is there once, and the count of each user goes up by one at a time."""
        rows = self.rows()
        assert sorted(row["id"] for row in rows) == list(range(self._sent))
        counts = defaultdict(list)
        for row in rows:
            counts[row["user"]].append(row["n"])
        assert all(sorted(each) == list(range(1, len(each) + 1)) for each in counts.values())


def test_the_page_runs(tmp_path: Path, hdfs_servers: Hdfs) -> None:
    [program] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    addresses = hdfs_servers.addresses
    place = f"{addresses.url}/{uuid.uuid4().hex}"
    for written, real in {
        "hdfs://namenode:8020/user/ann/checkpoints": place,
        "namenode:9870": f"127.0.0.1:{addresses.web_port}",
        '"hdfs.user": "ann"': f'"hdfs.user": "{USER}"',
    }.items():
        assert written in program
        program = program.replace(written, real)
    (tmp_path / "program.py").write_text(program)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert open_storage(place, **addresses.options()).folders() == ["visits"]


@pytest.mark.budget(290)
@pytest.mark.feature("E5", "N20")
def test_a_killed_job_continues_from_checkpoints_in_hdfs(tmp_path: Path, hdfs_servers: Hdfs) -> None:
    place = f"{hdfs_servers.addresses.url}/{uuid.uuid4().hex}"
    shop = Shop(tmp_path, hdfs_servers, place)
    shop.send(10)
    first = shop.start("rocksdb", 2, "0 s")
    try:
        eventually(lambda: len(shop.rows()) >= 40 or first.poll() is not None, "output of the first run")
        assert first.poll() is None, shop.log()
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    shop.forget_local_state()
    shop.send(3)
    second = shop.start("hashmap", 3, "available-now")
    assert second.wait(150) == 0, shop.log()
    shop.assert_exact()

    storage = open_storage(place, **hdfs_servers.addresses.options())
    assert storage.folders() == ["counts"]
    assert any(each.startswith("chk-") for each in storage.folders("counts"))
    listed = subprocess.run(
        [sys.executable, "-c", "from tidegate.control.cli import main; main()", "checkpoints", "list", f"{place}/counts"],
        capture_output=True, text=True, env=shop.environment,
    )  # fmt: skip
    assert listed.returncode == 0, listed.stderr
    assert "chk-" in listed.stdout
