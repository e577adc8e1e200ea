"""Put-if-absent that determines the winner, on stores whose responses can be lost or can misattribute a write."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.core.errors import StorageError
from tidegate.core.faults import reach
from tidegate.storage.errors import ObjectMissing, OutcomeUnknown
from tidegate.storage.port import Lost, Won
from tidegate.storage.retry import Patience


def arbitrate(
    store: str, path: str, data: bytes, send: Callable[[], bool], read: Callable[[], bytes], patience: Patience
) -> Won | Lost:
    """Settle one race for `path`.

    `send` puts `data` if absent: True = accepted, False = "exists". It raises a retryable error if the write may or may
    not have happened, and any other error if it certainly did not.

    1. Send. Accepted: won. A crash here leaves the object or nothing.
    2. Otherwise read the object back, whatever the response was: "exists" may refer to our own write, made by a request
       whose response was lost, and stores report a conflict (409) although nothing exists yet. Ours: won. Another
       writer's: lost. Missing: wait, then repeat step 1. Unreadable: unknown, stop.

    The store may apply a write of unknown outcome at any later time. Once a write is in doubt, the only ways out are
    reading a body back, or `OutcomeUnknown`.
    """
    failures = 0
    in_doubt = False
    while True:
        cause: StorageError | str = "the store says it exists and that it does not"
        try:
            if send():
                reach("storage.create.1-applied", path=path)
                return Won()
        except OutcomeUnknown:
            raise
        except StorageError as error:
            if not error.retryable:
                # This request was refused, but an earlier one may still be applied.
                if in_doubt:
                    raise OutcomeUnknown.of(store, path, error) from error
                raise
            in_doubt = True
            cause = error
        try:
            # Also after "exists": it may be this writer's own body, put there by a request whose response was lost.
            existing = patience.persist(read)
            return Won() if existing == data else Lost(existing)
        except ObjectMissing:
            failures += 1
            if not patience.wait(failures):
                raise OutcomeUnknown.of(store, path, cause) from (cause if isinstance(cause, StorageError) else None)
        except StorageError as error:
            raise OutcomeUnknown.of(store, path, error) from error
