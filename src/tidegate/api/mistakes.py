"""Mistakes that can be seen when a job is declared, long before a row shows them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

from tidegate.api.states import Declaration
from tidegate.core.errors import GraphError

P = ParamSpec("P")
R = TypeVar("R")
_CALLED_WITH = {
    "process_element": ("row", "ctx"),
    "process_element1": ("row", "ctx"),
    "process_element2": ("row", "ctx"),
    "process_broadcast_element": ("row", "ctx"),
    "on_timer": ("timestamp", "ctx"),
    "open": ("ctx",),
    "map": ("row",),
    "filter": ("row",),
    "flat_map": ("row",),
}


def called_like(example: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A method that tells who leaves something out what the call looks like."""

    def around(method: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(method)
        takes_uid = list(signature.parameters)[1] == "uid"

        @wraps(method)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            name = f"{method.__name__}()"
            if takes_uid and len(args) > 1 and not isinstance(args[1], str):
                raise GraphError(f"{name} needs a uid first: {example}. The uid names its state and output for ever.")
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise GraphError(f"{name}: {error}. It is called like this: {example}.") from None
            return method(*args, **kwargs)

        return checked

    return around


def check_function(function: Any, states: Iterable[str]) -> None:
    """Raise GraphError for a function object whose state or methods cannot work."""
    kind = type(function)
    for name, value in vars(function).items() if hasattr(function, "__dict__") else ():
        if isinstance(value, Declaration):
            raise GraphError(
                f"{kind.__name__} makes its state {name!r} in __init__, where it is not seen. Declare it in the body of the "
                f"class: {name} = {type(value).__name__}(…)."
            )
    for name, wanted in _CALLED_WITH.items():
        method = getattr(function, name, None)
        if callable(method) and not _takes(method, len(wanted)):
            raise GraphError(
                f"{kind.__name__}.{name} is called with {' and '.join(wanted)}, which it does not take. Write "
                f"def {name}(self, {', '.join(wanted)})."
            )
    declared = set(states)
    for place, name, line in _assignments(kind, declared):
        raise GraphError(
            f"{kind.__name__} assigns to its state {name!r} in {place}: {line}. That would replace the state. Write "
            f"self.{name}.update(…) to change what it holds, or call the variable something else."
        )


def _takes(method: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(method).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a function written in C, whose signature nobody knows
        return True
    return True


def _assignments(kind: type, names: set[str]) -> Iterator[tuple[str, str, str]]:
    """Where the methods of a class assign to one of these attributes: place, name, line. Nothing where there is no source."""
    if not names:
        return
    own = [cls for cls in kind.__mro__ if cls.__module__.partition(".")[0] not in ("tidegate", "builtins", "abc")]
    for method in (value for cls in own for value in vars(cls).values() if isinstance(value, FunctionType)):
        try:
            lines, first = inspect.getsourcelines(method)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError):
            continue
        for target in (target for node in ast.walk(tree) for target in _targets(node)):
            if (
                isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
                and target.attr in names
            ):
                place = f"{Path(method.__code__.co_filename).name}:{first + target.lineno - 1}"
                yield place, target.attr, lines[target.lineno - 1].strip()


def _targets(node: ast.AST) -> Sequence[ast.expr]:
    match node:
        case ast.Assign(targets=targets):
            return [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
    return ()
