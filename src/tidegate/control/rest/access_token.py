"""The token that every request to a job's REST server carries, and the private file by which the command line finds it.

The file is named after the machine and the address that the server listens on, in a directory that only its owner can enter.
A token is never an argument of a command: every user of a machine can read those in `ps`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import stat
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from tidegate.control.rest.addresses import WILDCARDS, plain_host
from tidegate.core.errors import PreconditionFailed

VARIABLE = "TIDEGATE_TOKEN"
DIRECTORY_VARIABLE = "TIDEGATE_TOKEN_DIR"

_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_LONGEST = 4096


def new_token() -> str:
    return secrets.token_urlsafe(32)


def given_token(token: str | None) -> str | None:
    """Return the token that the user chose: the argument, else the variable TIDEGATE_TOKEN. Raises PreconditionFailed."""
    chosen = token if token is not None else os.environ.get(VARIABLE) or None
    if chosen is not None and (len(chosen) > _LONGEST or not _PRINTABLE.fullmatch(chosen)):
        raise PreconditionFailed(
            f"A token for REST consists of 1 to {_LONGEST} visible ASCII characters without spaces; the one given by "
            f"`token` or {VARIABLE} does not. `python -c 'import secrets; print(secrets.token_urlsafe(32))'` makes one."
        )
    return chosen


class TokenFile:
    """A generated token on disk, mode 0600, for as long as its server runs."""

    def __init__(self, token: str, paths: tuple[Path, ...]) -> None:
        self._token = token
        self.paths = paths

    @staticmethod
    def write(token: str, host: str, port: int) -> TokenFile:
        """Write the file for a server that listens there, replacing one that a killed driver left.

        Raises PreconditionFailed when no directory can be used.
        """
        problems: list[str] = []
        for directory in _directories():
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                _check_private(directory)
                paths = tuple(directory / _name(each, port) for each in _reached_by(host))
                for path in paths:
                    _write_private(path, token)
                return TokenFile(token, paths)
            except OSError as error:
                problems.append(f"{directory} ({error.strerror or error})")
        raise PreconditionFailed(
            f"The token for REST cannot be kept in {' or '.join(problems)}. Set {DIRECTORY_VARIABLE} to a directory that "
            f"only you can enter (mode 0700), or choose the token yourself with {VARIABLE}."
        )

    def remove(self) -> None:
        """Remove what is still ours: another server may listen on the same address by now."""
        for path in self.paths:
            with contextlib.suppress(OSError):
                if _read_private(path) == self._token:
                    path.unlink()


def find_token(host: str, port: int) -> str | None:
    """Return the token for the server at an address: TIDEGATE_TOKEN, else that of a server of this user on this machine."""
    chosen = given_token(None)
    if chosen is not None:
        return chosen
    for directory in _directories():
        with contextlib.suppress(OSError):
            _check_private(directory)
            return _read_private(directory / _name(host, port))
    return None


def _directories() -> list[Path]:
    # Chosen by the user, it is the only one: a fallback would hide that it cannot be used.
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen:
        return [Path(chosen).absolute()]
    # The home directory is the same for every login of a user; one that cannot be written to is common in containers.
    directories = [Path(tempfile.gettempdir()) / f"tidegate-rest-{os.getuid()}"]
    with contextlib.suppress(RuntimeError):
        directories.insert(0, Path.home() / ".tidegate" / "rest")
    return directories


def _reached_by(host: str) -> tuple[str, ...]:
    """Return the addresses by which this machine reaches a server that listens on `host`."""
    name = plain_host(host)
    if name not in WILDCARDS:
        return (name,)
    # A server on all addresses of IPv6 is also called by 127.0.0.1, the default of the command line.
    return tuple(dict.fromkeys((WILDCARDS[name], "127.0.0.1")))


def _name(host: str, port: int) -> str:
    name = plain_host(host)
    plain = "127.0.0.1" if name == "localhost" else name
    return quote(f"{socket.gethostname()}_{plain}_{port}.token", safe="")


def _check_private(directory: Path) -> None:
    """Raises OSError unless the directory itself, not a link to one, belongs to this user and nobody else may enter it."""
    _check_owner(directory.lstat(), stat.S_ISDIR)


def _check_owner(status: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    if not is_kind(status.st_mode):
        raise PermissionError("it is a link, or not what is expected there")
    if status.st_uid != os.geteuid():
        raise PermissionError("it belongs to another user")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError("other users have access to it: its mode must be 0700, that of a file 0600")


def _write_private(path: Path, token: str) -> None:
    # Created private under another name, then renamed: nobody can open the file between its creation and a `chmod`, and a
    # file that another user placed under this name is replaced, not written to.
    private = path.with_name(f".{uuid.uuid4().hex}")
    descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, token.encode())
    finally:
        os.close(descriptor)
    os.replace(private, path)


def _read_private(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Of the open file, which cannot be exchanged after the check.
        _check_owner(os.fstat(descriptor), stat.S_ISREG)
        return os.read(descriptor, _LONGEST).decode("ascii", errors="replace").strip()
    finally:
        os.close(descriptor)
