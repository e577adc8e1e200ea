"""Two keyed streams that meet in one function."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.api.functions import KeyedCoProcessFunction, states_of
from tidegate.api.mistakes import called_like, check_instance
from tidegate.api.streams import KeyedStream, Stream, as_schema
from tidegate.core.errors import GraphError
from tidegate.graph.on_error import OnError
from tidegate.graph.schema import Schema
from tidegate.graph.validate import check_same_keys


class ConnectedStreams:
    """Made by `first.key_by(…).connect(second.key_by(…))`. Rows of a key meet in one task, in no order between the two."""

    def __init__(self, first: KeyedStream, second: KeyedStream) -> None:
        check_connected(first, second)
        self._first, self._second = first, second

    @called_like("process('matched', Match(), schema='order string, payment string')")
    def process(
        self, uid: str, function: KeyedCoProcessFunction, *, schema: str | Schema,
        side_outputs: Mapping[str, str | Schema] | None = None, on_error: OnError | str = "fail",
    ) -> Stream:  # fmt: skip
        """Run a function over the rows of both. State and timers belong to the key, whichever stream a row came from.
        `on_error` as for `KeyedStream.process`."""
        check_instance(f"process {uid!r}", function)
        for name in ("process_element1", "process_element2"):
            if not callable(getattr(function, name, None)):
                raise GraphError(f"{function!r} has no {name}. Derive a class from KeyedCoProcessFunction.")
        return self._first.operate(
            uid, function, states_of(function), as_schema(schema), side_outputs, second=self._second,
            on_error=OnError.of(on_error),
        )  # fmt: skip


def check_connected(first: KeyedStream, second: KeyedStream) -> None:
    if not isinstance(second, KeyedStream):
        raise GraphError(f"A keyed stream is connected to a keyed stream; got {second!r}. Add key_by(…).")
    if first._job is not second._job:
        raise GraphError("Streams of two jobs cannot meet. Declare both sources in one job.")
    check_same_keys((first.input, second.input))
