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
                if len(coming) == AHEAD:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for each in coming:
                each.cancel()
