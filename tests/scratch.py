"""A copy of the project in which something can be broken, and a Python that loads the copy instead of what is installed."""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PRELOADED = (
    "pytest", "hypothesis.stateful", "numpy", "pandas", "pyarrow.compute", "pyarrow.parquet", "msgspec", "pyspark.sql",
    "rocksdict", "obstore", "starlette.testclient", "click.testing",
)  # fmt: skip
"""What most tests import besides our own code, which a forked run must load from its copy."""


class StaleMutation(Exception):
    """The text that a mutation replaces does not occur exactly once: the code has changed since it was written."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """One place in one file, as it is and as it becomes. Fails loudly when the code has moved on."""

    file: str
    before: str
    after: str

    def applied_to(self, root: Path) -> str:
        """The text of the broken file."""
        file = root / self.file
        text = file.read_text() if file.exists() else ""
        if text.count(self.before) != 1:
            raise StaleMutation(f"{self.file} contains {text.count(self.before)} times: {self.before.strip()[:80]!r}")
        return text.replace(self.before, self.after)


class ScratchCopy:
    """All files of the project that git tracks or would track."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stamps = itertools.count(int(time.time()) + 2, 2)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        for name in filter(None, names):
            if (source := ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, folder / name)

    @contextmanager
    def broken(self, replacement: Replacement) -> Iterator[None]:
        file = self.folder / replacement.file
        whole, broken = file.read_bytes(), replacement.applied_to(self.folder)
        try:
            self._write(file, broken.encode())
            yield
        finally:
            self._write(file, whole)

    def _write(self, file: Path, content: bytes) -> None:
        """With a time of its own: bytecode is told apart from older bytecode by the second and the size."""
        file.write_bytes(content)
        stamp = next(self._stamps)
        os.utime(file, (stamp, stamp))

    def python(self, timeout_s: float, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the interpreter on the copy. Spark passes PYTHONPATH on to its workers, so they load the copy, too."""
        environment = {**os.environ, **self._environment()}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def pytest(self, timeout_s: float, *arguments: str) -> tuple[int, str]:
        """Run pytest on the copy in a fork of this process, which must have no threads. Returns its exit code and output.

        A fork has the libraries loaded, which take longer than most tests.
        """
        for name in _PRELOADED:
            importlib.import_module(name)
        told = self.folder / "pytest.out"
        child = os.fork()
        if child == 0:
            self._run_pytest(told, arguments)
        latest = time.monotonic() + timeout_s
        while time.monotonic() < latest:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status), told.read_text(errors="replace")
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise subprocess.TimeoutExpired("pytest", timeout_s)

    def _run_pytest(self, told: Path, arguments: tuple[str, ...]) -> None:
        """In the child. It ends here, whatever happens."""
        try:
            os.setsid()
            os.chdir(self.folder)
            os.environ.update(self._environment())
            output = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "tidegate")]:
                del sys.modules[name]
            elsewhere = {"", str(ROOT), str(ROOT / "src")}
            sys.path[:] = [str(self.folder / "src"), str(self.folder), *(p for p in sys.path if p not in elsewhere)]
            import pytest

            code = int(pytest.main(list(arguments)))
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(70)
        os._exit(code)

    def _environment(self) -> dict[str, str]:
        path = f"{self.folder / 'src'}{os.pathsep}{self.folder}"
        return {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
