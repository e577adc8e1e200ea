"""A new project folder, from the templates that are part of the package."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from tidegate.control.cli.output import BadOption

_FILES = {
    "README.md": "README.md.txt",
    "job.py": "job.py.txt",
    "check.py": "check.py.txt",
    "tests/test_job.py": "test_job.py.txt",
    "deploy/__NAME__.service": "service.txt",
    "requirements.txt": "requirements.txt.txt",
    "pyproject.toml": "pyproject.toml.txt",
    ".gitignore": "gitignore.txt",
}
"""File of the project → its template. Templates have other names, since tools would take them for tests, settings and
requirements of this package."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Project:
    """A folder and the files to be written there. The folder's name is the name of the job."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.absolute().name

    def create(self) -> list[Path]:
        """Write all files. Raises before the first if the name does not suit, or the folder holds anything."""
        if not _NAME.fullmatch(self.name):
            raise BadOption(
                f"{self.name!r} cannot name a project, because it also names the job and its service. Use letters, digits, '-' "
                "and '_', beginning with a letter, such as 'page-views'."
            )

        # Texts and checks come before the first file, so a mistake in a name leaves none behind.
        texts = self._texts()
        try:
            self._check_empty()
            for path, text in texts.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BadOption(f"The project cannot be written to {self.folder}: {error}.") from None
        return list(texts)

    def _check_empty(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise BadOption(f"{self.folder} is a file. Choose another name.")
        names = sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise BadOption(
                f"{self.folder} is not empty: it holds {names[0]}{more}. Nothing was changed. Choose another name, or "
                "empty the folder."
            )

    def _texts(self) -> dict[Path, str]:
        templates = files("tidegate.control") / "project_template"
        words = {"__NAME__": self.name, "__VERSION__": version("tidegate")}
        filled = {}
        for path, template in _FILES.items():
            text = (templates / template).read_text(encoding="utf-8")
            filled[self.folder / _filled(path, words)] = _filled(text, words)
        return filled


def _filled(text: str, words: dict[str, str]) -> str:
    """Fill in all words at once: a name may hold another word."""
    return re.sub("|".join(words), lambda match: words[match[0]], text)
