"""A server of this process: an event loop in a thread of its own, listening on a free loopback port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


class LoopServer:
    """Listens until `stop`. `serve` is called for each connection, in the loop's thread."""

    def __init__(
        self, name: str, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._server = self.call(asyncio.start_server(serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in the loop's thread, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def stop(self) -> None:
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        # In the thread of its loop: a server that is closed while a connection of it ends, closes twice.
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
