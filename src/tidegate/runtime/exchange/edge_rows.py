"""Some rows of one edge, as they arrive at a task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.graph.levels import Edge


class EdgeRows:
    """Columns in the order of the edge's schema, and the key group of each row."""

    def __init__(self, edge: Edge, columns: Sequence[pa.Array], groups: pa.Array, rows: int) -> None:
        self.edge = edge
        self.columns = columns
        self._groups = groups
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    @cached_property
    def groups(self) -> np.ndarray[Any, Any]:
        groups: np.ndarray[Any, Any] = self._groups.to_numpy(zero_copy_only=False)
        return groups
