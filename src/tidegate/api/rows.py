"""Rows and keys in signatures.

A row is a named tuple of the columns of its stream. Type checkers do not read schemas, so a `Row` has any attribute to them. To
have rows checked, name a type of your own for them:

    class Order(NamedTuple):
        user: str
        amount: float

    class Totals(tg.KeyedProcessFunction[Order, str]):
        def process_element(self, order: Order, ctx: ProcessContext[str]) -> Iterator[tuple[str, float]]: ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.operators.row import Row as Row

Key: TypeAlias = Any
"""The value of a key column, or a tuple of them where there are several."""
Stored: TypeAlias = Any
"""A value of a state whose type only the running job knows, because the state is looked up by name."""

StateArray: TypeAlias = Any
"""The values of many keys: a numpy or Arrow array, depending on the declared type."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from tidegate.state.keys.entry_keys import TimeWindow

    In = TypeVar("In", default=Row)
    In2 = TypeVar("In2", default=Row)
    K = TypeVar("K", default=Key)
    K_co = TypeVar("K_co", default=Key, covariant=True)
    Element = TypeVar("Element", default=Stored)
    Acc = TypeVar("Acc", default=Stored)
    Out = TypeVar("Out", default=Row)
    W = TypeVar("W", default=TimeWindow)
    W_co = TypeVar("W_co", default=TimeWindow, covariant=True)
else:
    # Defaults are new in Python 3.13. Type checkers use them; see `Typed` for what Python needs.
    from typing import TypeVar

    In, In2, K, Element, Acc, Out, W = map(TypeVar, ("In", "In2", "K", "Element", "Acc", "Out", "W"))
    K_co, W_co = TypeVar("K_co", covariant=True), TypeVar("W_co", covariant=True)


class Typed:
    """Lets a class of users name only the first types of its base: `KeyedProcessFunction[Order]`. Type checkers know the defaults
    of the others; Python knows none, and would refuse the class.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types):
            given = types if isinstance(types, tuple) else (types,)
            missing = len(cls.__parameters__) - len(given)
            return super().__class_getitem__((*given, *[Any] * missing))
