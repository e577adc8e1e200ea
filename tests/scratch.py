"""A copy of the project in which something can be broken, and a Python that loads the copy instead of what is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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
            file.write_text(broken)
            yield
        finally:
            file.write_bytes(whole)

    def python(self, timeout_s: float, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the interpreter on the copy. Spark passes PYTHONPATH on to its workers, so they load the copy, too."""
        path = f"{self.folder / 'src'}{os.pathsep}{self.folder}"
        own = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYSPARK_PYTHON": sys.executable}
        environment = {**os.environ, **own}
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
