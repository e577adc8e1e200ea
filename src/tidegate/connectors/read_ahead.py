"""Reading staged rows ahead: storage responds in tens of milliseconds, and a commit may read hundreds of objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

AHEAD = 4
"""Objects that are being read or wait to be used."""


def read_ahead(read: Callable[[str], bytes], tokens: Iterable[str]) -> Iterator[bytes]:
    """Yield the data behind the tokens, in order. A single one is read in the caller's thread."""
    waiting = list(tokens)
    if len(waiting) < 2:
        yield from map(read, waiting)
        return
    coming: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(AHEAD, "tidegate-read-ahead") as pool:
        try:
            for token in waiting:
                coming.append(pool.submit(read, token))
                # No more than that is in memory, however slowly the caller takes it.
                if len(coming) == AHEAD:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for each in coming:
                # The caller has stopped early, or failed: what has not begun is not read.
                each.cancel()
