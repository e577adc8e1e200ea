"""The local state root: the directory in which the tasks of this host keep their versions, and the host id derived from it.

It is outside Spark's directories, so that versions outlive the executor that created them.
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
HOST_UUID = ".host-uuid"
"""The file in a root that has its UUID."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UNKNOWN_BOOT = "unknown"


def local_directory(option: str | os.PathLike[str] | None = None) -> Path:
    """Return where this host keeps state: the variable TIDEGATE_LOCAL_DIR, else the job's option, else a directory in /tmp.

    The variable takes precedence because it belongs to the host, while the option belongs to a job that may run on many
    different hosts.
    """
    chosen = os.environ.get(VARIABLE) or option
    if chosen is None:
        return Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}"
    return Path(chosen).expanduser().absolute()


@dataclass(frozen=True, slots=True)
class LocalRoot:
    """A root that exists and belongs to this user."""

    path: Path
    host: HostId
    """Changes after a reboot or with another disk; versions recorded under the old id are then no longer trusted."""

    @staticmethod
    def open(option: str | os.PathLike[str] | None = None) -> LocalRoot:
        """Open the root, creating it if necessary. Any number of processes may do so concurrently; all get the same id.

        Raises `StateError` if it cannot be created or belongs to another user.
        """
        path = local_directory(option)
        try:
            # State may be confidential, and whoever can write here can change it.
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            # In /tmp, another user may have made the directory before, to read what is written to it.
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
        """Return the directory of the versions of one task. Two jobs, or a fork and its origin, never share one."""
        return self.lineage_directory(job, lineage) / str(task)

    def lineage_directory(self, job: str, lineage: Lineage) -> Path:
        return self.path / _component(job) / _component(lineage)


def boot_id() -> str:
    """Return an id that changes with every boot of the machine. On systems without one, a constant: their disks are trusted."""
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return UNKNOWN_BOOT


def _root_uuid(root: Path) -> str:
    """Return the UUID stored in `root`; the first process writes it.

    1. Write a UUID to a private file. A crash leaves that file, which has no effect.
    2. Link it to the final name. It appears complete, and only one process succeeds; the others read its file.
    """
    final = root / HOST_UUID
    if not final.exists():
        own = root / f"{HOST_UUID}-{uuid.uuid4().hex}"
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
    """Encode `name` as one path component: different for different names, and never starting with a dot."""
    quoted = quote(name, safe=" =,+@")
    return quoted.replace(".", "%2E") if quoted.startswith(".") else quoted
