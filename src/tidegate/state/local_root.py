"""The local state root: the directory of this host below which tasks keep their versions, and the host's id by it.

It lies outside Spark's own directories, so that versions outlive the executor that made them.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tidegate.core.errors import StateError
from tidegate.core.ids import HostId, Lineage, TaskId

VARIABLE = "TIDEGATE_LOCAL_DIR"
_UUID_NAME = ".host-uuid"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def local_directory(option: str | os.PathLike[str] | None = None) -> Path:
    """Where this host keeps state: the variable TIDEGATE_LOCAL_DIR, else the job's option, else a directory in /tmp.

    The variable is first, since it belongs to the host, and the option to a job that may run on many unlike hosts.
    """
    chosen = os.environ.get(VARIABLE) or option
    if chosen is None:
        return Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}"
    return Path(chosen).expanduser().absolute()


@dataclass(frozen=True, slots=True)
class LocalRoot:
    """A root that exists and is ours."""

    path: Path
    host: HostId
    """Another one after a reboot or with another disk: what versions said under it is then no longer believed."""

    @staticmethod
    def open(option: str | os.PathLike[str] | None = None) -> LocalRoot:
        """Find the root, making it if need be. Any number of processes may do so at once; all get the same id.

        Raises `StateError` when it cannot be made or belongs to someone else.
        """
        path = local_directory(option)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.stat().st_uid != os.geteuid():
                raise StateError(
                    f"The local state directory {path} belongs to another user. Set {VARIABLE} to one of your own."
                )
            return LocalRoot(path, HostId(f"{_root_uuid(path)}@{boot_id()}"))
        except OSError as error:
            raise StateError(
                f"The local state directory {path} cannot be used: {error}. Set {VARIABLE} to a writable directory."
            ) from error

    def task_directory(self, job: str, lineage: Lineage, task: TaskId) -> Path:
        """Where the versions of one task lie. Two jobs, or a fork and its origin, never share one."""
        return self.lineage_directory(job, lineage) / str(task)

    def lineage_directory(self, job: str, lineage: Lineage) -> Path:
        return self.path / _component(job) / _component(lineage)


def boot_id() -> str:
    """Changes with every boot of the machine. On systems that do not tell it, a constant: their disks are trusted."""
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return "unknown"


def _root_uuid(root: Path) -> str:
    """The UUID kept in `root`; the first who comes writes it.

    1. Write a UUID into a file of one's own. A crash leaves that file, which means nothing.
    2. Link it to the final name. It appears whole, for one process only; the others find it there.
    """
    final = root / _UUID_NAME
    if not final.exists():
        own = root / f"{_UUID_NAME}-{uuid.uuid4().hex}"
        try:
            own.write_text(str(uuid.uuid4()))
            with suppress(FileExistsError):
                os.link(own, final)
        finally:
            own.unlink(missing_ok=True)
    found = final.read_text().strip()
    try:
        return str(uuid.UUID(found))
    except ValueError as error:
        raise StateError(
            f"{final} should hold a UUID and holds {found!r}. Remove it to give this host a new one."
        ) from error


def _component(name: str) -> str:
    """`name` as one component of a path: different for different names, and never one that begins with a dot."""
    quoted = quote(name, safe=" =,+@")
    return quoted.replace(".", "%2E") if quoted.startswith(".") else quoted
