"""What a job reads and writes, under the names that lineage services use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dataset:
    """The namespace names a system, such as `kafka://host:9092`, and the name one thing in it, such as a topic."""

    namespace: str
    name: str
    columns: tuple[tuple[str, str], ...] = ()
    """Names and types."""
