"""What has changed since the last run that somebody recorded.

A Python file whose program is the same has not changed, whatever became of its comments and its layout; nor has a page whose
blocks are the same. Lint, types, the unit tests and those of the architecture run with every change, and read all the rest.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.tiers.times import FILE, last_run

ROOT = Path(__file__).resolve().parents[2]
_OF_TIMES = {
    str(FILE.relative_to(ROOT)),
    *(f"tests/tiers/{name}.py" for name in ("__main__", "budgets", "times", "change", "selection")),
}
"""How long tests took and may take, and which run. A change of these makes no other test fail, and their own tests always run."""
BASE = "TIDEGATE_BASE"
"""Names another commit to compare with, for a contributor's own change: `make affected` uses the main branch."""


_BLOCK = re.compile(r"^```.*?^```|<!--.*?-->", re.MULTILINE | re.DOTALL)
"""What a test runs of a page: its blocks, and those in comments, which the page does not show."""


@dataclass(frozen=True, slots=True)
class Change:
    """Files that differ between a commit and the working tree."""

    base: str
    files: frozenset[str]
    """Those that do something else than before."""
    described: frozenset[str] = frozenset()
    """Programs that do the same, with other docstrings. The examples in these are tests."""


def change_since(base: str, root: Path = ROOT) -> Change | None:
    """What differs from `base`, with files that git does not know yet. None if this clone does not have that commit."""
    if _git(root, "merge-base", "--is-ancestor", base, "HEAD") is None:
        return None
    changed = _git(root, "diff", "--name-only", "--no-renames", base)
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    if changed is None or new is None:
        return None
    differing = frozenset((changed + new).splitlines()) - _OF_TIMES
    files = set()
    described = set()
    for file in differing:
        texts = _texts(root, base, file)
        if texts is None or _differ(file, texts, docstrings=False):
            files.add(file)
        elif _differ(file, texts, docstrings=True):
            described.add(file)
    return Change(base, frozenset(files), frozenset(described))


def program_of(file: str, text: str, *, docstrings: bool) -> str:
    """What a program or a page does, in a form that is equal for two texts that do the same. A program that cannot be parsed does
    what its text says."""
    if file.endswith(".md"):
        return "\n".join(_BLOCK.findall(text))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    if not docstrings:
        for node in ast.walk(tree):
            _remove_docstrings(node)
    return ast.dump(tree)


def _remove_docstrings(node: ast.AST) -> None:
    """Also those below an attribute or a constant: a statement that is only a text does nothing."""
    body = getattr(node, "body", None)
    if isinstance(body, list):
        node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _texts(root: Path, base: str, file: str) -> tuple[str, str] | None:
    """A program or page at the base and now. None if it is new, was deleted, or is another kind of file, such as a picture."""
    now = root / file
    if not file.endswith((".py", ".md")) or not now.is_file():
        return None
    before = _git(root, "show", f"{base}:{file}")
    return None if before is None else (before, now.read_text())


def _differ(file: str, texts: tuple[str, str], *, docstrings: bool) -> bool:
    before, after = (program_of(file, text, docstrings=docstrings) for text in texts)
    return before != after


def base_commit() -> str | None:
    """The commit to compare with: what `TIDEGATE_BASE` says, or that of the last recorded run."""
    last = last_run()
    return os.environ.get(BASE) or (None if last is None else last.commit)


def failed_before() -> tuple[str, ...]:
    """What failed in the last recorded run."""
    last = last_run()
    return () if last is None else tuple(last.failed)


def turn_of_head(root: Path = ROOT) -> int:
    """A number that grows by one with every commit, so that consecutive commits take consecutive turns.

    A commit's hash would not do: four consecutive hashes rarely fall into four different quarters.
    """
    count = _git(root, "rev-list", "--count", "HEAD")
    return 0 if count is None else int(count)


def _git(root: Path, *words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None
