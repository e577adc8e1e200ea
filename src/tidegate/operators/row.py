"""Rows in the signatures of what users may derive from."""

from __future__ import annotations

from typing import Any, TypeAlias

Row: TypeAlias = Any
"""A named tuple of the columns of a stream."""
