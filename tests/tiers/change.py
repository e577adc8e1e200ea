"""What has changed since the last run that somebody recorded."""

from __future__ import annotations

import os
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


@dataclass(frozen=True, slots=True)
class Change:
    """Files that differ between a commit and the working tree."""

    base: str
    files: frozenset[str]


def change_since(base: str, root: Path = ROOT) -> Change | None:
    """What differs from `base`, with files that git does not know yet. None if this clone does not have that commit."""
    if _git(root, "merge-base", "--is-ancestor", base, "HEAD") is None:
        return None
    changed = _git(root, "diff", "--name-only", "--no-renames", base)
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    if changed is None or new is None:
        return None
    return Change(base, frozenset((changed + new).splitlines()) - _OF_TIMES)


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
