"""What an option is: key, type, default, rule and words, declared once. Parser, checks and documents read only this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from tidegate.core.durations import duration_ms, option_ms, show_ms, size_bytes

T = TypeVar("T")
Check = Callable[[Any], str | None]
"""Says what is wrong with a value, as the end of the sentence "key must …"; None when nothing is."""


@dataclass(frozen=True, slots=True)
class OptionType(Generic[T]):
    """A type of values: how it is called, read from text, and shown."""

    name: str
    read: Callable[[str], T]
    """Raises ValueError that says what was expected."""
    show: Callable[[T], str] = str


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One option. `T` is the type of its values; durations are milliseconds and sizes are bytes.

    Options that are unset by default are `Option[T | None]`: their default is None, and no text reads as None.
    """

    key: str
    kind: OptionType[Any]
    default: T
    text: str
    _: KW_ONLY
    old_keys: tuple[str, ...] = ()
    check: Check | None = None
    flink_default: str = ""
    """Flink's default, where ours is another; `text` says why."""

    def parse(self, text: str) -> T:
        """Raises ValueError: what is wrong with the text, without the key."""
        value: T = self.kind.read(text.strip())
        problem = self.check(value) if self.check else None
        if problem:
            raise ValueError(f"must {problem}, not {text.strip()!r}")
        return value

    def shown_default(self) -> str:
        return "none" if self.default is None else self.kind.show(self.default)


def as_text(value: object) -> str:
    """A value given in code as the text a file would have."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return f"{duration_ms(value)} ms"
    if isinstance(value, StrEnum):
        return value.value
    return str(value)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"must be true or false, not {text!r}")
    return text.lower() == "true"


def _number(of: Callable[[str], T], what: str) -> Callable[[str], T]:
    def read(text: str) -> T:
        try:
            return of(text)
        except ValueError as error:
            raise ValueError(f"must be {what}, not {text!r}") from error

    return read


def _finite(text: str) -> float:
    # `float` reads "nan" and "inf", with which no comparison of a rule would mean anything.
    value = float(text)
    if value in (float("inf"), float("-inf")) or value != value:
        raise ValueError(text)
    return value


def _show_size(size: int) -> str:
    for unit, name in ((1 << 20, "mb"), (1 << 10, "kb")):
        if size and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def enum(
    of: type[StrEnum], aliases: dict[str, StrEnum] | None = None, hints: dict[str, str] | None = None
) -> OptionType[Any]:
    """Names in any case, with `-` and `_` alike. `hints` answers values that other systems know."""
    names = {_plain(member.value): member for member in of} | {_plain(k): v for k, v in (aliases or {}).items()}

    def read(text: str) -> StrEnum:
        if _plain(text) in names:
            return names[_plain(text)]
        hint = (hints or {}).get(text.lower(), "")
        raise ValueError(
            f"must be one of {', '.join(m.value for m in of)}, not {text!r}" + (f": {hint}" if hint else "")
        )

    return OptionType("enum", read, lambda member: str(member.value))


def _plain(text: str) -> str:
    return text.lower().replace("-", "").replace("_", "")


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = (part.strip() for part in text.partition("="))
    if not (old and equals and new):
        raise ValueError(f"must be pairs such as 'old=new, old=new', not {text!r}")
    return old, new


def _pairs(text: str) -> dict[str, str]:
    return dict(_pair(each) for each in text.split(",") if each.strip())


def _named(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in text.split(","):
        name, colon, value = (part.strip() for part in each.partition(":"))
        if each.strip():
            if not (name and colon and value):
                raise ValueError(f"must be pairs such as 'name:value,name:value', not {text!r}")
            found[name] = value
    return found


def _fields(text: str) -> dict[tuple[str, str], dict[str, str]]:
    found: dict[tuple[str, str], dict[str, str]] = {}
    for each in text.split(","):
        where, colon, names = each.rpartition(":")
        uid, slash, state = where.strip().rpartition("/")
        if each.strip():
            if not (colon and slash and uid and state):
                raise ValueError(f"must be renames such as 'uid/state:old=new', not {each.strip()!r}")
            old, new = _pair(names)
            found.setdefault((uid, state), {})[old] = new
    return found


def _states(text: str) -> tuple[tuple[str, str], ...]:
    states: list[tuple[str, str]] = []
    for each in text.split(","):
        uid, slash, state = each.strip().rpartition("/")
        if each.strip():
            if not (uid and slash and state):
                raise ValueError(
                    f"must be states such as 'uid/state', or fields of one such as 'uid/state:field', not {each.strip()!r}"
                )
            states.append((uid, state))
    return tuple(states)


def _show_pairs(pairs: dict[str, str]) -> str:
    return ", ".join(f"{old}={new}" for old, new in pairs.items())


def _show_fields(fields: dict[tuple[str, str], dict[str, str]]) -> str:
    shown = [f"{uid}/{state}:{old}={new}" for (uid, state), names in fields.items() for old, new in names.items()]
    return ", ".join(shown)


DURATION: OptionType[int] = OptionType(
    "duration", _number(option_ms, "a duration such as '500 ms', '10 s' or '5 min'"), show_ms
)
SIZE: OptionType[int] = OptionType("memory size", _number(size_bytes, "a size such as '20 kb' or '8 mb'"), _show_size)
INT: OptionType[int] = OptionType("int", _number(int, "a whole number"))
FLOAT: OptionType[float] = OptionType("float", _number(_finite, "a number"))
BOOL: OptionType[bool] = OptionType("bool", _boolean, lambda value: "true" if value else "false")
TEXT: OptionType[str] = OptionType("string", str)
PAIRS: OptionType[dict[str, str]] = OptionType("map", _pairs, _show_pairs)
LIST: OptionType[tuple[str, ...]] = OptionType(
    "list", lambda text: tuple(each.strip() for each in text.split(",") if each.strip()), ", ".join
)
NAMED: OptionType[dict[str, str]] = OptionType(
    "map", _named, lambda named: ",".join(f"{name}:{value}" for name, value in named.items())
)
STATES: OptionType[tuple[tuple[str, str], ...]] = OptionType(
    "list", _states, lambda states: ", ".join(f"{uid}/{state}" for uid, state in states)
)
FIELDS: OptionType[dict[tuple[str, str], dict[str, str]]] = OptionType("map", _fields, _show_fields)


def at_least(limit: int, shown: str = "") -> Check:
    return lambda value: None if value >= limit else f"be at least {shown or limit}"


def at_most(limit: int, shown: str = "") -> Check:
    return lambda value: None if value <= limit else f"be at most {shown or limit}"


def above(limit: float) -> Check:
    return lambda value: None if value > limit else f"be greater than {limit:g}"


def within(low: float, high: float) -> Check:
    return lambda value: None if low <= value <= high else f"be between {low:g} and {high:g}"
