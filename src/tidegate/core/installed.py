"""Where installed Python code lies, by the beginning of its files' paths."""

from __future__ import annotations

import sysconfig
from pathlib import Path

LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
"""The standard library, and what pip has installed."""
TIDEGATE = str(Path(__file__).parents[1])
"""This package, which need not be among them: an editable install lies elsewhere."""
