"""The key that an operator is processing."""

from __future__ import annotations

from typing import Any


class KeyScope:
    """One per operator and attempt; every accessor of the operator reads it."""

    __slots__ = ("key", "key_group")

    def __init__(self) -> None:
        self.key: Any = None
        self.key_group = -1
