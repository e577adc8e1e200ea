"""Functions written for another API: each makes the operators that run it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

from tidegate.core.errors import GraphError
from tidegate.operators.port import StatefulOperator


class PortedFunction(ABC):  # noqa: B024 (a function defines the methods of the places where it can be used)
    """A function of another API. It is not called itself, but through what its methods return."""

    def ported(self, broadcast: Sequence[object] = ()) -> StatefulOperator:
        """The function over keyed rows. `broadcast` are the descriptors that `stream.broadcast` was given."""
        raise self._misplaced("process")

    def transform(self) -> object:
        """The function over rows without a key."""
        raise self._misplaced("map, filter or flat_map")

    def window_function(self) -> object:
        """The function over windows: a `ProcessWindowFunction` of tidegate."""
        raise self._misplaced("process of windows")

    def _misplaced(self, method: str) -> GraphError:
        return GraphError(f"{type(self).__name__} is not a function for {method}. See the class that it derives from.")
