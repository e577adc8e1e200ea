"""Pickles the program of a level with the user's functions, once per run, with Spark's own cloudpickle."""

from __future__ import annotations

import dataclasses
import inspect
import io
import logging
from types import ModuleType
from typing import Any, get_type_hints

from pyspark import cloudpickle

from tidegate.core.errors import GraphError
from tidegate.graph.model import Node
from tidegate.runtime.epochs.own_modules import leave_own_modules
from tidegate.runtime.exchange.program import LevelProgram

log = logging.getLogger("tidegate")


def pickled(program: LevelProgram) -> bytes:
    """Pickle a program with the user's functions, including lambdas and those of the main script. Raises
    GraphError if it cannot be pickled.
    """
    try:
        return _pickled(program)
    except Exception as error:
        # Something in a module beside the program cannot be pickled, perhaps a lock. Workers may be able to import it by name.
        left = leave_own_modules()
        if left and _travels(program):
            log.warning(
                "modules next to the program cannot be sent with its functions, so workers must be able to import them: "
                "%s (%s)",
                ", ".join(left),
                _reason(error),
            )
            return _pickled(program)
        for node in program.nodes:
            _check_travels(node, error)
        raise GraphError(f"The functions of the job cannot be sent to the workers: {_reason(error)}.") from error


def _check_travels(node: Node, error: Exception) -> None:
    """Raise GraphError if this is the node whose function cannot be pickled, naming the attribute at fault."""
    carried = getattr(node, "function", None) or getattr(node, "target", None)
    carried = getattr(carried, "user_function", carried)
    try:
        _pickled(carried)
        return
    except Exception as found:
        reason = _reason(found)
    held = next((name for name, value in _attributes(carried) if not _travels(value)), None)
    what = f"its attribute {held!r} cannot be pickled ({reason})" if held else f"it cannot be pickled ({reason})"
    raise GraphError(
        f"{node} cannot be sent to the workers: {what}. Create connections, locks, clients and open files in "
        "open(), which is called in the task, and not in __init__ or at the top of the script."
    ) from error


def _attributes(carried: Any) -> list[tuple[str, Any]]:
    closure = inspect.getclosurevars(carried) if inspect.isfunction(carried) else None
    if closure is not None:
        return [*closure.nonlocals.items(), *closure.globals.items()]
    return list(vars(carried).items()) if hasattr(carried, "__dict__") else []


def _travels(value: Any) -> bool:
    try:
        _pickled(value)
    except Exception:
        return False
    return True


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _pickled(carried: Any) -> bytes:
    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            # What msgspec caches on a class of the main script cannot be pickled; it is rebuilt when needed.
            if isinstance(obj, type) and "__msgspec_cache__" in vars(obj):
                del obj.__msgspec_cache__  # type: ignore[attr-defined]
            if isinstance(obj, type):
                _resolve_annotations(obj)
            if obj is dataclasses.MISSING:
                # One object in every process: a copy of it would look like the default of a dataclass field.
                return _missing, ()
            return super().reducer_override(obj)  # type: ignore[no-untyped-call]

    with io.BytesIO() as body:
        Pickler(body).dump(carried)  # type: ignore[no-untyped-call]
        return body.getvalue()


def _resolve_annotations(cls: type) -> None:
    """Replace field types given as text, as `from __future__ import annotations` leaves them, by objects: a worker that has
    the class by value does not have the module in which the names are defined.
    """
    own = vars(cls).get("__annotations__")
    fielded = dataclasses.is_dataclass(cls) or hasattr(cls, "__struct_config__") or hasattr(cls, "_fields")
    if not own or not fielded or not any(isinstance(type_, str) for type_ in own.values()):
        return
    try:
        hints = get_type_hints(cls, include_extras=True)
    except Exception:
        return  # The worker reports what it cannot resolve, if it needs it.
    own.update({name: hints[name] for name, type_ in own.items() if isinstance(type_, str)})


def _missing() -> Any:
    return dataclasses.MISSING


def ship_by_value(module: ModuleType) -> None:
    """Send what a module defines with the functions that use it, since executors cannot import it."""
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
