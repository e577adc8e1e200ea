"""Wraps a backend so that its attempts write change files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.core.ids import Term
from tidegate.state.changelog.store import ChangelogStore
from tidegate.state.port import BudgetedBackend, DividingBackend, StateBackend
from tidegate.state.version import Manifest, VersionId


@dataclass(frozen=True, slots=True)
class ChangelogBackend:
    """See `StateBackend`. Versions are those of the wrapped backend, under its name."""

    inner: StateBackend

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def cuts_cheaply(self) -> bool:
        return self.inner.cuts_cheaply

    @property
    def write_cache_bytes(self) -> int | None:
        """See `BudgetedBackend`."""
        return self.inner.write_cache_bytes if isinstance(self.inner, BudgetedBackend) else None

    def bytes_by_state(self, file: Path) -> Mapping[int, int]:
        """See `DividingBackend`."""
        return self.inner.bytes_by_state(file) if isinstance(self.inner, DividingBackend) else {}

    def begin(
        self, directory: Path, base: VersionId | None, target: VersionId, key_groups: tuple[int, int]
    ) -> ChangelogStore:
        return ChangelogStore(self.inner.begin(directory, base, target, key_groups), directory, base, target)

    def manifest(self, directory: Path, version: VersionId) -> Manifest:
        return self.inner.manifest(directory, version)

    def tidy(self, directory: Path, term: Term, keep: Iterable[VersionId], *, ended: bool = False) -> None:
        self.inner.tidy(directory, term, keep, ended=ended)


def without_changelog(backend: StateBackend) -> StateBackend:
    """Return the wrapped backend, for attempts whose changes no checkpoint needs."""
    return backend.inner if isinstance(backend, ChangelogBackend) else backend
