"""A real Spark cluster on one machine: a master and several workers, each on its own loopback address.

Each worker plays a host. It has its own local state root (`TIDEGATE_LOCAL_DIR`, inherited by executors and Python workers),
which is wiped when the host is lost, as are Spark's own files: a version that survives here would survive a dead disk.
pyspark is only located, never imported: the daemons are started by the package's own `spark-class`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tidegate.core.errors import ControlError
from tidegate.runtime.epochs import worker_daemon
from tidegate.testing.processes import Leash, alive, children, command_line, descendants, kill_tree, send, wait_gone

LOCAL_DIR = "TIDEGATE_LOCAL_DIR"
"""Environment variable that names the local state root of a host."""

_MASTER_UP = re.compile(r"Starting Spark master at (spark://\S+)")
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_WORKER_UP = "Successfully registered with master"
_DAEMONS = frozenset({worker_daemon.MODULE, worker_daemon.SPARKS_OWN})
"""The modules that fork Python workers: ours, and Spark's own where that has taken over or a session has no other setting."""


class ClusterError(ControlError):
    """The cluster for tests did not come up or did not obey."""

    code = "TEST_CLUSTER"


@dataclass(slots=True)
class Worker:
    """One host of the cluster: an address, directories that are lost with it, and a daemon unless the host is lost."""

    index: int
    host: str
    directory: Path
    daemon: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def local_root(self) -> Path:
        """The directory where tidegate keeps state versions on this host."""
        return self.directory / "state"

    @property
    def spark_root(self) -> Path:
        """The directory where Spark keeps shuffle files and cached blocks on this host."""
        return self.directory / "spark"

    @property
    def log(self) -> Path:
        """The log of the most recently started daemon."""
        return self.directory.parent / f"worker-{self.index}.{self.starts}.log"


class StandaloneCluster:
    """Master on 127.0.0.1, workers on 127.0.0.2 and up. Start and stop it, or use it in a `with` block.

    Workers are identified by index, from 0. Nothing outlives the process that created the
    cluster, not even a paused worker.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 2,
        memory_mb: int = 1536,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        lost_after_s: int = 8,
    ) -> None:
        """`environment` is added to that of the daemons, and therefore of executors and Python workers too.

        `lost_after_s`: a worker that is silent for this long counts as lost; one that dies is noticed immediately.
        """
        self._given_directory = directory
        self._directory = directory or Path()
        self._count = workers
        self._cores = cores
        self._memory_mb = memory_mb
        self._environment = dict(environment or {})
        self._lost_after_s = lost_after_s
        self._master: subprocess.Popen[bytes] | None = None
        self._leash: Leash | None = None
        self._url = ""
        self.workers: list[Worker] = []

    @property
    def url(self) -> str:
        """The value for a session's `master`."""
        if not self._url:
            raise ClusterError("The cluster is not running. Call start() first.")
        return self._url

    @property
    def cores(self) -> int:
        """The number of cores of all workers together."""
        return self._count * self._cores

    @property
    def directory(self) -> Path:
        """Contains the logs, the work directories and the hosts' roots."""
        return self._directory

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> StandaloneCluster:
        """Start the master, then all workers. If anything fails, everything is stopped again."""
        self._leash = Leash()
        self._directory = self._given_directory or Path(tempfile.mkdtemp(prefix="tidegate-cluster-"))
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start_master()
            self.workers = [Worker(i, f"127.0.0.{i + 2}", self._directory / f"host-{i}") for i in range(self._count)]
            for worker in self.workers:
                self._launch(worker)
            for worker in self.workers:
                self._await_registered(worker)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop every process of the cluster and remove its directory, unless that was given. May be called again."""
        for worker in self.workers:
            self._end(worker.daemon)
            worker.daemon = None
        self._end(self._master)
        self._master = None
        self._url = ""
        if self._leash is not None:
            self._leash.close()
            self._leash = None
        if self._given_directory is None and self._directory.name.startswith("tidegate-cluster-"):
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> StandaloneCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- who is there ----------------------------------------------------------------------------------------------

    def executors(self, worker: int) -> list[int]:
        """Return the process ids of the executors currently running on a worker."""
        daemon = self.workers[worker].daemon
        if daemon is None:
            return []
        return [
            pid for pid in children(daemon.pid) if any("CoarseGrainedExecutorBackend" in a for a in command_line(pid))
        ]

    def python_workers(self, worker: int) -> list[int]:
        """Return the process ids of the Python workers of a host: those that run tasks, not the daemon that forks them."""
        below = [child for pid in self.executors(worker) for child in children(pid)]
        forkers = [pid for pid in below if _DAEMONS.intersection(command_line(pid))]
        return [pid for forker in forkers for pid in children(forker)]

    def worker_of(self, host: str) -> int:
        """Return the index of the worker with this address."""
        return next(worker.index for worker in self.workers if worker.host == host)

    # -- what may go wrong ------------------------------------------------------------------------------------------

    def kill_executor(self, worker: int) -> list[int]:
        """SIGKILL the executors of a host; the worker starts new ones. Its local root stays. Return the killed process ids."""
        killed = self.executors(worker)
        send(killed, signal.SIGKILL)
        wait_gone(killed)
        return killed

    def kill_worker(self, worker: int, *, wipe: bool = True) -> list[int]:
        """Lose a host: its daemon, executors and Python workers together, then, if `wipe`, its disks."""
        host = self.workers[worker]
        daemon = host.daemon
        if daemon is None:
            raise ClusterError(f"Worker {worker} is already lost. Call restart_worker({worker}) first.")
        killed = kill_tree(daemon.pid)
        self._reap(daemon)
        host.daemon = None
        if wipe:
            shutil.rmtree(host.directory)
        return killed

    def restart_worker(self, worker: int) -> None:
        """Restart a lost host under the same address, with whatever its disks still hold."""
        host = self.workers[worker]
        if host.daemon is not None and host.daemon.poll() is None:
            raise ClusterError(f"Worker {worker} is running. Call kill_worker({worker}) first.")
        self._launch(host)
        self._await_registered(host)

    def kill_python_workers(self, worker: int) -> list[int]:
        """SIGKILL the Python workers of a host; Spark forks new ones and retries their tasks."""
        killed = self.python_workers(worker)
        send(killed, signal.SIGKILL)
        wait_gone(killed)
        return killed

    def pause(self, worker: int) -> None:
        """Freeze a host: daemon, executors and Python workers stop where they are, and do not respond."""
        send(self._tree(worker), signal.SIGSTOP)

    def resume(self, worker: int) -> None:
        """Resume a frozen host as if no time had passed."""
        send(self._tree(worker), signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self, pids: list[int]) -> Iterator[None]:
        """Freeze single processes, such as Python workers, for the duration of a block."""
        send(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            send(pids, signal.SIGCONT)

    # -- daemons ---------------------------------------------------------------------------------------------------

    def _start_master(self) -> None:
        log = self._directory / "master.log"
        arguments = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._master = self._spawn(arguments, log, {"SPARK_LOCAL_IP": "127.0.0.1"})
        self._url = _await_line(log, _MASTER_UP, self._master)

    def _launch(self, worker: Worker) -> None:
        worker.starts += 1
        for root in (worker.local_root, worker.spark_root):
            root.mkdir(parents=True, exist_ok=True)
        arguments = ["org.apache.spark.deploy.worker.Worker", "--host", worker.host, "--port", "0", "--webui-port", "0"]
        arguments += ["--cores", str(self._cores), "--memory", f"{self._memory_mb}m"]
        arguments += ["--work-dir", str(worker.directory / "work"), self._url]
        own = {
            "SPARK_LOCAL_IP": worker.host,
            "SPARK_LOCAL_DIRS": str(worker.spark_root),
            LOCAL_DIR: str(worker.local_root),
        }
        worker.daemon = self._spawn(arguments, worker.log, own)

    def _await_registered(self, worker: Worker) -> None:
        assert worker.daemon is not None
        _await_line(worker.log, re.compile(f"({_WORKER_UP})"), worker.daemon)

    def _spawn(self, arguments: list[str], log: Path, own: Mapping[str, str]) -> subprocess.Popen[bytes]:
        home = spark_home()
        # Settings of the machine must not leak in: neither a spark-env.sh nor a SPARK_MASTER_HOST.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_") and k != LOCAL_DIR}
        # No limit on executor retries: a test kills more executors than Spark would accept of an application.
        options = f"-XX:+UseSerialGC -Dspark.worker.timeout={self._lost_after_s} -Dspark.deploy.maxExecutorRetries=-1"
        environment = {
            **inherited,
            "SPARK_HOME": str(home),
            # The folder does not exist: with a folder on its class path, Java could not share
            # class data (tests/tiers/jvms.py).
            "SPARK_CONF_DIR": str(self._directory / "conf"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": options,
            "PYSPARK_PYTHON": sys.executable,
            **self._environment,
            **own,
        }
        with log.open("ab") as sink:
            # Its own session: Ctrl-C in the terminal reaches the tests first, and they stop the cluster gracefully.
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                start_new_session=True,
            )
        assert self._leash is not None
        self._leash.hold(process.pid)
        return process

    def _tree(self, worker: int) -> list[int]:
        daemon = self.workers[worker].daemon
        return [] if daemon is None else [daemon.pid, *descendants(daemon.pid)]

    def _end(self, daemon: subprocess.Popen[bytes] | None) -> None:
        if daemon is None:
            return
        # Killed, not asked to stop: nothing of a cluster for tests is kept, and a paused process would not answer.
        if alive(daemon.pid):
            kill_tree(daemon.pid)
        self._reap(daemon)

    def _reap(self, daemon: subprocess.Popen[bytes]) -> None:
        daemon.wait(timeout=10)
        if self._leash is not None:
            self._leash.release(daemon.pid)


def spark_home() -> Path:
    """Return the directory of the installed pyspark package, located without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ClusterError("pyspark is not installed in this environment. Install tidegate with its dependencies.")
    return Path(spec.submodule_search_locations[0])


def _await_line(log: Path, pattern: re.Pattern[str], process: subprocess.Popen[bytes], silence_s: float = 240.0) -> str:
    """Return the first group of the pattern as soon as it appears in the log.

    Raises with the end of the log if the daemon ends, or writes nothing for `silence_s`: on a machine that is busy with other
    work, a daemon may need minutes to start, and its log shows that it does.
    """
    size = 0
    deadline = time.monotonic() + silence_s
    while True:
        text = log.read_text(errors="replace")
        if found := pattern.search(text):
            return found[1]
        if len(text) > size:
            size = len(text)
            deadline = time.monotonic() + silence_s
        if process.poll() is not None or time.monotonic() > deadline:
            why = "ended" if process.poll() is not None else f"was silent for {silence_s:g} s"
            raise ClusterError(f"A Spark daemon {why} before it was ready. Its log {log} ends with:\n{text[-2000:]}")
        time.sleep(0.05)
