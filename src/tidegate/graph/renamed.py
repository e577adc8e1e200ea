"""Earlier names: of states, and of the uids of operators and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from tidegate.core.errors import GraphError


class Uid(str):
    """The uid of an operator or a source that had another one before: `tg.Uid("sums", renamed_from="totals")`.

    Pass it where a uid is expected. State and positions that a snapshot holds under the old uid then belong to the new one. The
    declaration may stay; after several renames it takes a tuple, the latest uid first.
    """

    renamed_from: tuple[str, ...]

    def __new__(cls, uid: str, *, renamed_from: str | Sequence[str]) -> Self:
        self = super().__new__(cls, uid)
        self.renamed_from = earlier_names(renamed_from)
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        return (str(self),), {"renamed_from": self.renamed_from}


def earlier_names(given: object) -> tuple[str, ...]:
    """Return the value of `renamed_from` as a tuple. Raises GraphError if it is not a name or names."""
    if given is None:
        return ()
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise GraphError(f"renamed_from takes the old name, such as 'total', or a tuple of them; got {given!r}.")
    return tuple(str(name) for name in names)


def check_earlier_names(what: str, earlier: Mapping[str, Sequence[str]]) -> None:
    """Require that no name was its own, and that no two names claim the same earlier one. `earlier` has every declared name."""
    claims: dict[str, str] = {}
    for name, olds in earlier.items():
        for old in olds:
            if old == name:
                raise GraphError(
                    f"The {what} {name!r} is declared with renamed_from={old!r}, its own name. Remove that."
                )
            if old in claims:
                raise GraphError(
                    f"The {what}s {claims[old]!r} and {name!r} are both declared with renamed_from={old!r}. What it holds can "
                    "only go to one of them."
                )
            claims[old] = name
