"""Functions that wait for other services, with PyFlink's names: `stream.async_map("enrich", Enrich(), …)`."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Generic

from tidegate.api.context import RuntimeContext
from tidegate.api.functions import CheckpointedFunction, CheckpointListener, Function, ListCheckpointed
from tidegate.api.mistakes import ASYNC_CALLS, check_function, check_instance
from tidegate.api.rows import In
from tidegate.api.states import declared_states
from tidegate.core.errors import GraphError


class AsyncFunction(ABC, Generic[In]):
    """Calls another service for each row, many rows at a time.

    All methods run in one event loop of their task, so calls share attributes such as a client without locks. Code that blocks
    stops all calls of the task; put it into `asyncio.to_thread`. The function has no state, and a copy of it lives for one epoch.

    Examples:
        >>> class Tier(tg.AsyncFunction):
        ...     async def async_invoke(self, order):
        ...         return order.user, "gold" if order.amount > 100 else "plain"
        ...     def timeout(self, order):
        ...         return order.user, "unknown"
        >>> tiers = orders.async_map("tier", Tier(), schema="user string, tier string", timeout="5 s")
        >>> with tg.testing.harness(tiers) as h:
        ...     h.process((1, "ann", 250.0, T0))
        ...     h.output()
        [Struct(user='ann', tier='gold')]
    """

    async def open(self, ctx: RuntimeContext, /) -> None:
        """Create what cannot be pickled: a client, a connection pool.

        Args:
            ctx: The operator and the subtask that the function runs in.
        """

    @abstractmethod
    async def async_invoke(self, row: In, /) -> object:
        """Return the row to emit: a tuple in the order of the schema, a dict or a row; or a list of rows; or None for none.

        It is cancelled when the timeout is over, and when the attempt of the task fails.

        Args:
            row: A row of the stream, with an attribute for each column.
        """

    def timeout(self, row: In, /) -> object:
        """Return what to emit for a row whose call took too long, in the same forms. By default, it is an error.

        Args:
            row: The row whose call was cancelled.
        """
        raise TimeoutError

    async def close(self) -> None:
        """Release what `open` acquired. Also called after a failure, when all calls have ended."""


def check_async_function(uid: str, function: object) -> None:
    """Raise GraphError unless the object can be called for the rows of an `async_map`."""
    check_instance(f"async_map {uid!r}", function)
    name = type(function).__name__
    if not callable(getattr(function, "async_invoke", None)):
        instead = f" {name} is for map, filter, flat_map or process." if isinstance(function, Function) else ""
        raise GraphError(
            f"async_map {uid!r}: {function!r:.200} has no async_invoke.{instead} Derive it from AsyncFunction."
        )
    states = declared_states(function)
    if states or isinstance(function, CheckpointedFunction | ListCheckpointed):
        shown = f" {states[0].name!r}" if states else ""
        raise GraphError(
            f"async_map {uid!r}: {name} declares state{shown}, and an async function has none: its calls overlap, so no call has "
            "a key of its own. Keep state in a key_by(…).process(uid, …) before or after it."
        )
    if isinstance(function, CheckpointListener):
        raise GraphError(
            f"async_map {uid!r}: {name} is a CheckpointListener, and an async function is not notified of checkpoints. Use a "
            "process function for that."
        )
    check_function(function, (), ASYNC_CALLS)
    invoke = getattr(function, "async_invoke", None)
    if inspect.isasyncgenfunction(invoke) or inspect.isgeneratorfunction(invoke):
        raise GraphError(f"{name}.async_invoke yields rows, which cannot be awaited. Return a list of rows.")
    if inspect.iscoroutinefunction(getattr(function, "timeout", None)):
        raise GraphError(
            f"{name}.timeout is a coroutine, but the time of the row is over. Write def timeout(self, row)."
        )
