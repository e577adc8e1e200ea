"""Real HDFS: NameNodes and a DataNode, each a process, on loopback only.

Their jars come from the public Maven repository, see `maven`. The mini-cluster's artifact holds the servers.
"""

from __future__ import annotations

import contextlib
import getpass
import http.client
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from tests.servers.maven import brought, java_program
from tests.servers.process import ServerProcess, free_ports

VERSION = "3.5.0"
USER = "tidegate"
_IVY = f"""<ivy-module version="2.0">
  <info organisation="tidegate" module="hdfs-for-tests"/>
  <dependencies>
    <dependency org="org.apache.hadoop" name="hadoop-client-minicluster" rev="{VERSION}" conf="default" transitive="false"/>
    <dependency org="org.apache.hadoop" name="hadoop-client-api" rev="{VERSION}" conf="default" transitive="false"/>
    <dependency org="org.apache.hadoop" name="hadoop-client-runtime" rev="{VERSION}" conf="default" transitive="false"/>
    <dependency org="org.slf4j" name="slf4j-reload4j" rev="2.0.17" conf="default"/>
    <dependency org="org.slf4j" name="jcl-over-slf4j" rev="2.0.17" conf="default"/>
  </dependencies>
</ivy-module>
"""
_LOG = """log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{1}: %m%n
"""
_ONE_NODE = {
    "dfs.replication": "1",
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.handler.count": "16",
    "dfs.ls.limit": "100",
    "dfs.heartbeat.interval": "1",
    # A writer that closes a file asks the NameNode whether the block is there; the default waits 400 ms before the second time.
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
}


@dataclass(frozen=True, slots=True)
class HdfsAddresses:
    """Where the servers are. `behind` gives the same ones as seen through a proxy."""

    rpc_port: int
    web_port: int
    data_web_port: int

    @property
    def url(self) -> str:
        """As Spark has it. Below it is a directory that the user of the tests may write to."""
        return f"hdfs://127.0.0.1:{self.rpc_port}/user/{USER}"

    def options(self) -> dict[str, str]:
        """Keyword options for `open_storage("hdfs://…")`."""
        return {"web_address": f"127.0.0.1:{self.web_port}", "user": USER}

    def behind(self, port: int) -> HdfsAddresses:
        return HdfsAddresses(self.rpc_port, port, self.data_web_port)


class Hdfs:
    """One file system. Ready when the constructor returns (about 6 s); servers can be killed and started again."""

    def __init__(self, directory: Path, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self._directory = directory
        rpc, web, data, data_web, data_ipc = free_ports(5)
        self.addresses = HdfsAddresses(rpc, web, data_web)
        _configure(
            self.conf,
            {
                "fs.defaultFS": f"hdfs://127.0.0.1:{rpc}",
                "hadoop.tmp.dir": str(directory / "tmp"),
                "dfs.namenode.http-address": f"127.0.0.1:{web}",
                "dfs.namenode.name.dir": str(directory / "name"),
                "dfs.datanode.data.dir": str(directory / "data"),
                "dfs.datanode.address": f"127.0.0.1:{data}",
                "dfs.datanode.http.address": f"127.0.0.1:{data_web}",
                "dfs.datanode.ipc.address": f"127.0.0.1:{data_ipc}",
                **_ONE_NODE,
                **settings,
            },
        )
        subprocess.run(
            [*self._java("namenode.NameNode"), "-format", "-force"], check=True, capture_output=True, cwd=directory
        )
        self._name_node: ServerProcess | None = None
        self._data_node: ServerProcess | None = None
        self.start()

    def start(self) -> None:
        """Start what does not run, and return when files are taken."""
        if self._name_node is None:
            self._name_node = ServerProcess(self._java("namenode.NameNode"), self._directory / "namenode.log")
        if self._data_node is None:
            self._data_node = ServerProcess(self._java("datanode.DataNode"), self._directory / "datanode.log")
        self._name_node.wait_until(self._takes_files, timeout_s=180)

    def kill_name_node(self) -> None:
        """SIGKILL. What it has synced to its edit log stays."""
        if self._name_node is not None:
            self._name_node.kill()
        self._name_node = None

    def kill_data_node(self) -> None:
        if self._data_node is not None:
            self._data_node.kill()
        self._data_node = None

    def stop(self) -> None:
        # An orderly end takes seconds, and nobody will read the data again.
        self.kill_data_node()
        self.kill_name_node()

    @property
    def conf(self) -> Path:
        """What HADOOP_CONF_DIR names for clients of this file system."""
        return self._directory / "conf"

    def _java(self, server: str) -> list[str]:
        return _java(self.conf, f"server.{server}")

    def _takes_files(self) -> bool:
        """Whether a file can be written, and the directory of the tests is there."""
        me = f"user.name={getpass.getuser()}"  # Who starts a NameNode is its superuser.
        located = self._ask(self.addresses.web_port, f"/webhdfs/v1/ready?op=CREATE&overwrite=true&{me}")
        if located is None or located.status != 307:
            return False
        target = urlsplit(located.headers["Location"])
        written = self._ask(self.addresses.data_web_port, f"{target.path}?{target.query}")
        directory = f"/webhdfs/v1/user/{USER}"
        return (
            written is not None
            and written.status == 201
            and self._ask(self.addresses.web_port, f"{directory}?op=MKDIRS&{me}") is not None
            and self._ask(self.addresses.web_port, f"{directory}?op=SETOWNER&owner={USER}&{me}") is not None
        )

    def _ask(self, port: int, target: str) -> http.client.HTTPResponse | None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("PUT", target, b"x", {"Content-Type": "application/octet-stream"})
            return connection.getresponse()
        return None


@cache
def _jars() -> Path:
    return brought(f"hdfs-{VERSION}", _IVY)


def _configure(folder: Path, settings: dict[str, str]) -> None:
    folder.mkdir()
    properties = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n" for name, value in settings.items()
    )
    for name in ("core-site.xml", "hdfs-site.xml"):
        # Each is read right after the defaults of its part.
        (folder / name).write_text(f"<configuration>\n{properties}</configuration>\n")
    (folder / "log4j.properties").write_text(_LOG)


def _java(conf: Path, program: str) -> list[str]:
    return [
        java_program(), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={conf.parent}",
        "-cp", f"{conf}:{_jars()}/*", f"org.apache.hadoop.hdfs.{program}",
    ]  # fmt: skip


class HdfsPair:
    """A name service `bank`: two NameNodes that share an edit log, of which the first is active, and a DataNode."""

    url = "hdfs://bank/"
    superuser = getpass.getuser()

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        ports = iter(free_ports(7))
        common = {"fs.defaultFS": "hdfs://bank", "dfs.nameservices": "bank", "dfs.ha.namenodes.bank": "nn1,nn2"}
        for node in ("nn1", "nn2"):
            common[f"dfs.namenode.rpc-address.bank.{node}"] = f"127.0.0.1:{next(ports)}"
            common[f"dfs.namenode.http-address.bank.{node}"] = f"127.0.0.1:{next(ports)}"
        for part in ("address", "http.address", "ipc.address"):
            common[f"dfs.datanode.{part}"] = f"127.0.0.1:{next(ports)}"
        common |= {
            "dfs.client.failover.proxy.provider.bank": "org.apache.hadoop.hdfs.server.namenode.ha."
            "ConfiguredFailoverProxyProvider",
            "dfs.namenode.shared.edits.dir": (directory / "shared").as_uri(),
            "dfs.ha.fencing.methods": "shell(/bin/true)",
            "dfs.ha.tail-edits.period": "1",
            "dfs.datanode.data.dir": str(directory / "data"),
            "hadoop.tmp.dir": str(directory / "tmp"),
        }
        for node in ("nn1", "nn2"):
            own = {"dfs.ha.namenode.id": node, "dfs.namenode.name.dir": str(directory / node)}
            _configure(directory / f"conf-{node}", common | own | _ONE_NODE)
        self.conf = directory / "conf-nn1"
        self._processes: dict[str, ServerProcess] = {}
        self._run("nn1", "server.namenode.NameNode", "-format", "-force")
        self.start("nn1")
        # It copies what the first one has formatted, as soon as that responds.
        self._until(lambda: self._succeeds("nn2", "server.namenode.NameNode", "-bootstrapStandby", "-force"))
        self.start("nn2")
        command = _java(self.conf, "server.datanode.DataNode")
        self._processes["datanode"] = ServerProcess(command, directory / "datanode.log")
        self.activate("nn1")

    def start(self, node: str) -> None:
        command = _java(self._directory / f"conf-{node}", "server.namenode.NameNode")
        self._processes[node] = ServerProcess(command, self._directory / f"{node}.log")

    def activate(self, node: str) -> None:
        """As an operator does when the other one is dead."""
        self._until(lambda: self._succeeds(node, "tools.DFSHAAdmin", "-transitionToActive", "--forceactive", node))

    def kill(self, node: str) -> None:
        self._processes.pop(node).kill()

    def stop(self) -> None:
        for node in list(self._processes):
            self.kill(node)

    def _run(self, node: str, program: str, *arguments: str) -> None:
        assert self._succeeds(node, program, *arguments), (self._directory / "commands.log").read_text()[-3000:]

    def _succeeds(self, node: str, program: str, *arguments: str) -> bool:
        with (self._directory / "commands.log").open("ab") as log:
            command = [*_java(self._directory / f"conf-{node}", program), *arguments]
            ended = subprocess.run(command, input=b"Y\n", stdout=log, stderr=log, cwd=self._directory)
            return ended.returncode == 0

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(20):
            if done():
                return
        raise RuntimeError((self._directory / "commands.log").read_text()[-4000:])
