"""The methods that a user's object may have, besides those that it must have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def hook(owner: object, name: str) -> Callable[..., Any] | None:
    """Return the method of a user's object, bound to it, or None if it has none.

    Looked up as a call does, so an object that passes calls on to another one has the other one's methods. The name may stand for
    something else, such as a state called `close`: that is no method.
    """
    method = getattr(owner, name, None)
    return method if callable(method) else None
