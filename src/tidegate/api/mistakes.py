"""Mistakes that can be detected when a job is declared, long before a row reveals them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import ParamSpec, TypeVar

from tidegate.api.states import Declaration
from tidegate.core.errors import GraphError
from tidegate.graph.listening import ABORTED, COMPLETE

P = ParamSpec("P")
R = TypeVar("R")
_UID = {
    "source": "by it the job knows after a restart how far this source has been read",
    "sink": "by it the job knows after a restart what this sink has already written",
    "async_map": "metrics and dead letters name the operator by it",
}
_UID_OF_STATE = "by it the job finds its state after a restart"
_GIVES_ROWS = {
    "process_element",
    "process_element1",
    "process_element2",
    "process_broadcast_element",
    "on_timer",
    "flat_map",
}
ROW_CALLS: Mapping[str, tuple[str, ...]] = {
    "process_element": ("row", "ctx"),
    "process_element1": ("row", "ctx"),
    "process_element2": ("row", "ctx"),
    "process_broadcast_element": ("row", "ctx"),
    "on_timer": ("timestamp", "ctx"),
    "open": ("ctx",),
    "map": ("row",),
    "filter": ("row",),
    "flat_map": ("row",),
    COMPLETE: ("checkpoint_id",),
    ABORTED: ("checkpoint_id",),
}
"""What the methods of a function are called with."""
BATCH_CALLS: Mapping[str, tuple[str, ...]] = {
    "process_batch": ("batch", "keys", "ctx"),
    "on_timers": ("keys", "timestamps", "ctx"),
    "combine": ("batch", "keys"),
    "open": ("ctx",),
    COMPLETE: ("checkpoint_id",),
    ABORTED: ("checkpoint_id",),
}
ASYNC_CALLS: Mapping[str, tuple[str, ...]] = {
    "async_invoke": ("row",),
    "timeout": ("row",),
    "open": ("ctx",),
    "close": (),
}


def check_listeners(listeners: Sequence[object]) -> None:
    """Raise GraphError for anything that is not an instance of a listener."""
    # Late, for start-up time: only a job with listeners needs it.
    from tidegate.events.listener import JobListener

    for each in listeners:
        if isinstance(each, type):
            raise GraphError(f"listeners takes instances, not the class {each.__name__}. Write {each.__name__}().")
        if not isinstance(each, JobListener):
            raise GraphError(f"{each!r} is not a listener. Let its class inherit from tidegate.JobListener.")


def called_like(example: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a method so that a call with missing arguments shows what the call looks like."""

    def around(method: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(method)
        takes_uid = list(signature.parameters)[1] == "uid"

        @wraps(method)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            # Most APIs take the function first, so this mistake is common.
            name = f"{method.__name__}()"
            if takes_uid and len(args) > 1 and not isinstance(args[1], str):
                why = _UID.get(method.__name__, _UID_OF_STATE)
                raise GraphError(
                    f"{name} needs a uid first: {example}. The uid is a name you choose; {why}, so do not change it later."
                )
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                if "'schema'" in str(error):
                    raise GraphError(
                        f"{name} needs schema=, the columns of the rows that the function gives out: {example}."
                    ) from None
                raise GraphError(f"{name}: {error}. It is called like this: {example}.") from None
            return method(*args, **kwargs)

        return checked

    return around


def check_instance(what: str, given: object) -> None:
    """Raise GraphError for a class where an object is wanted; `what` is who wants it: "process 'totals'"."""
    if isinstance(given, type):
        raise GraphError(f"{what} takes an instance, not the class {given.__name__}. Write {given.__name__}().")


def check_function(
    function: object, states: Iterable[str], called_with: Mapping[str, tuple[str, ...]] = ROW_CALLS
) -> None:
    """Raise GraphError for a function object whose state or methods cannot work."""
    kind = type(function)
    for name, value in vars(function).items() if hasattr(function, "__dict__") else ():
        if isinstance(value, Declaration):
            raise GraphError(
                f"{kind.__name__} makes its state {name!r} in __init__, but states must be known before the job runs. "
                f"Declare it in the body of the class: {name} = {type(value).__name__}(…)."
            )
    for name, wanted in called_with.items():
        method = getattr(function, name, None)
        if callable(method) and not _takes(method, len(wanted)):
            raise GraphError(
                f"{kind.__name__}.{name} is called with {' and '.join(wanted) or 'nothing'}, and does not take them. Write "
                f"def {name}({', '.join(('self', *wanted))})."
            )
    for method, place, line in _single_rows(kind):
        raise GraphError(
            f"{kind.__name__}.{method} returns one row in {place}: {line}. What it returns must be a list of rows. Write yield "
            "instead of return, or put the row into a list."
        )
    declared = set(states)
    for place, name, line in _assignments(kind, declared):
        raise GraphError(
            f"{kind.__name__} assigns to its state {name!r} in {place}: {line}. That would replace the state itself. "
            f"Write self.{name}.update(…) to change what it holds, and self.{name}.value() to read it; or rename the variable."
        )


def _takes(method: Callable[..., object], count: int) -> bool:
    try:
        inspect.signature(method).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a function written in C, whose signature nobody knows
        return True
    return True


def _assignments(kind: type, names: set[str]) -> Iterator[tuple[str, str, str]]:
    """Yield where the methods of a class assign to one of these attributes: place, name, line.
    Nothing if there is no source code.
    """
    for method, tree, lines in _sources(kind) if names else ():
        for target in (target for node in ast.walk(tree) for target in _targets(node)):
            if (
                isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
                and target.attr in names
            ):
                yield _place(method, target), target.attr, lines[target.lineno - 1].strip()


def _single_rows(kind: type) -> Iterator[tuple[str, str, str]]:
    """Yield where a method that emits rows returns what must be a single row: its name, place, line."""
    for method, tree, lines in _sources(kind):
        # A method with `yield` is a generator, and what it returns goes nowhere.
        if method.__name__ not in _GIVES_ROWS or any(
            isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(tree)
        ):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Return) and _is_one_row(node.value):
                yield method.__name__, _place(method, node), lines[node.lineno - 1].strip()


def _is_one_row(value: ast.expr | None) -> bool:
    """Whether it is a dict, or a tuple containing something that cannot be a row."""
    if isinstance(value, ast.Tuple):
        return any(isinstance(part, ast.Constant | ast.Attribute | ast.BinOp | ast.JoinedStr) for part in value.elts)
    return isinstance(value, ast.Dict)


def _sources(kind: type) -> Iterator[tuple[FunctionType, ast.AST, list[str]]]:
    """Yield the methods of a class and of its user-defined base classes, as far as their source code is available."""
    own = [cls for cls in kind.__mro__ if cls.__module__.partition(".")[0] not in ("tidegate", "builtins", "abc")]
    for method in (value for cls in own for value in vars(cls).values() if isinstance(value, FunctionType)):
        try:
            lines, _ = inspect.getsourcelines(method)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except Exception:
            # Whatever it is: this only looks for mistakes. The file may have changed since it was imported, and Python's parser
            # also raises SystemError, MemoryError and RecursionError for code that the interpreter runs.
            continue
        yield method, tree, lines


def _place(method: FunctionType, node: ast.expr | ast.stmt) -> str:
    return f"{Path(method.__code__.co_filename).name}:{method.__code__.co_firstlineno + node.lineno - 1}"


def _targets(node: ast.AST) -> Sequence[ast.expr]:
    match node:
        case ast.Assign(targets=targets):
            return [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
    return ()
