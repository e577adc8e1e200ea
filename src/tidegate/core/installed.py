"""Path prefixes of installed Python code."""

from __future__ import annotations

import sysconfig
from pathlib import Path

LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
"""The standard library, and packages installed with pip."""
TIDEGATE = str(Path(__file__).parents[1])
"""This package, which may lie outside of these: an editable install does."""
