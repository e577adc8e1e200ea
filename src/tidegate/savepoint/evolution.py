"""Decides whether state written as one type can be read as another. A pure comparison of two stored schemas.

As is: a renamed class or enum member, fields of a dataclass in another order or with defaults added, `T` that became `T
| None`, an enum with more members, a set that became a list, a tuple whose elements got names (a NamedTuple).

Migrated: fields removed, renamed (declared) or with another default, changed fields of a NamedTuple, bool → int, int → float,
int → Decimal, anywhere inside.

Incompatible: a field added without a default, None no longer allowed, an enum member gone, and every other change of type.

"As is" means that the stored bytes are also valid bytes of the new type, with the same meaning. Renames are declared,
never guessed: if a field disappears while another one appears that could hold its values, the user says whether it is the same
field or is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tidegate.core.errors import StateError
from tidegate.savepoint.schema_codec import SCALARS, Schema, schema_codec, show_schema

Renames = Mapping[str, str]
"""Old name of a field → new name. `Rule.limit` means a field of the struct (now) called Rule, `limit` one of any. A field whose
new name is `DROPPED` is dropped."""

DROPPED = ""

_Convert = Callable[[Any], Any]


class MigrationFailed(StateError):
    """A stored value has no equivalent in the new type."""

    code = "MIGRATION_FAILED"


@dataclass(frozen=True, slots=True)
class AsIs:
    """The stored bytes need no conversion."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Migrate:
    """Stored bytes must be converted with `convert` first. It raises MigrationFailed rather than losing anything silently."""

    convert: Callable[[bytes], bytes] = field(compare=False)
    notes: tuple[str, ...] = ()
    convert_plain: Callable[[Any], Any] = field(default=lambda value: value, compare=False)
    """The same for plain values (see `schema_codec`)."""


@dataclass(frozen=True, slots=True)
class Incompatible:
    reason: str
    advice: str
    perhaps_renamed: tuple[str, str] | None = None
    """A field that disappeared, and the new one that it may be called now. Only the user knows."""


Answer = AsIs | Migrate | Incompatible


def compare(old: Schema, new: Schema, renames: Renames | None = None) -> Answer:
    """Decide whether values stored as `old` can be read as `new`, and with which conversion of bytes."""
    notes: list[str] = []
    try:
        convert = _Comparison(renames or {}, notes).of(old, new, "")
    except _Refused as refused:
        return Incompatible(refused.reason, refused.advice, refused.perhaps_renamed)
    if convert is None:
        return AsIs(tuple(notes))
    decode, encode = schema_codec(old).decode, schema_codec(new).encode
    return Migrate(lambda data: encode(convert(decode(data))), tuple(notes), convert)


def compare_keys(old: Schema | None, new: Schema | None) -> AsIs | Incompatible:
    """Compare map keys. They are part of the bytes that identify entries, so only changes that keep those bytes are allowed."""
    if old is None or new is None:
        return (
            AsIs() if old is new else Incompatible(_KEYS_CHANGED.format(show_schema(old), show_schema(new)), _NEW_STATE)
        )
    before, after = _key_shape(old), _key_shape(new)
    if before == after or {"type": "optional", "of": before} == after:
        return AsIs()
    return Incompatible(_KEYS_CHANGED.format(show_schema(old), show_schema(new)), _NEW_STATE)


_KEYS_CHANGED = "its map keys were {} and are {}"
_NEW_STATE = (
    "Keys never change: entries are found by their bytes. Declare the old type, or a new state under another name, and "
    "fill it from the old one."
)


class _Refused(Exception):
    def __init__(self, reason: str, advice: str, perhaps_renamed: tuple[str, str] | None = None) -> None:
        self.reason = reason
        self.advice = advice
        self.perhaps_renamed = perhaps_renamed
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class _Comparison:
    renames: Renames
    notes: list[str]

    def of(self, old: Schema, new: Schema, at: str) -> _Convert | None:
        """Return the conversion of plain values, or None if the bytes need none. `at` is the path to this part."""
        match old, new:
            case {"type": "optional", "of": before}, {"type": "optional", "of": after}:
                return _unless_none(self.of(before, after, at))
            case {"type": "optional"}, _:
                raise _Refused(
                    f"{at or 'it'} could be None and now cannot", f"Keep {show_schema(new)} | None, or clear the state."
                )
            # A value that is never None has the same bytes in both types.
            case _, {"type": "optional", "of": after}:
                return self.of(old, after, at)
            case {"type": "struct"}, {"type": "struct"}:
                return self.struct(old, new, at)
            case {"type": "tuple", "elements": elements}, {"type": "struct", "layout": "array", "fields": fields}:
                return self.naming(elements, fields, at)
            case {"type": "enum"}, {"type": "enum"}:
                self.enum(old, new, at)
                return None
            case {"type": "dict"}, {"type": "dict"}:
                if _key_shape(old["key"]) != _key_shape(new["key"]):
                    self.refuse(old["key"], new["key"], f"the keys of {at or 'the dict'}")
                return _over_values(self.of(old["value"], new["value"], f"{at}[…]"))
        if (elements := _sequences(old, new)) is not None:
            return _over_elements(self.of(*elements, f"{at}[…]"))
        if old["type"] == new["type"] == "tuple" and "elements" in old and "elements" in new:
            return self.tuple(old["elements"], new["elements"], at)
        return self.scalar(old, new, at)

    def scalar(self, old: Schema, new: Schema, at: str) -> _Convert | None:
        before, after = _value_type(old), _value_type(new)
        if before == after and before in SCALARS and new["type"] != "enum":
            return None
        widen = _WIDENED.get((before, after)) if new["type"] != "enum" else None
        if widen is None:
            self.refuse(old, new, at or "it")
        self.notes.append(f"{at or 'values'}: {before} becomes {after}")
        return widen

    def enum(self, old: Schema, new: Schema, at: str) -> None:
        kept = {member["value"] for member in new["members"]}
        gone = [member["name"] for member in old["members"] if member["value"] not in kept]
        if gone:
            raise _Refused(
                f"{at or 'the enum'} {new['name']} has lost the members {', '.join(gone)}",
                "Put them back: stored values may be one of them.",
            )

    def tuple(self, old: list[Schema], new: list[Schema], at: str) -> _Convert | None:
        # Stored by position: nothing says which element would be missing.
        if len(old) != len(new):
            raise _Refused(
                f"{at or 'the tuple'} had {len(old)} elements and has {len(new)}",
                "Keep the number of elements, or use a dataclass, whose fields may come and go.",
            )
        each = [self.of(a, b, f"{at}[{n}]") for n, (a, b) in enumerate(zip(old, new))]
        if not any(each):
            return None
        return lambda value: tuple(v if one is None else one(v) for one, v in zip(each, value))

    def naming(self, old: list[Schema], new: list[Schema], at: str) -> _Convert | None:
        """The elements of a tuple got names: the bytes of a struct by position are the same."""
        convert = self.tuple(old, [field["type"] for field in new], at)
        if convert is None:
            return None
        names = [field["name"] for field in new]
        return lambda value: dict(zip(names, convert(value)))

    def struct(self, old: Schema, new: Schema, at: str) -> _Convert | None:
        before = {f["name"]: f for f in old["fields"]}
        after = {f["name"]: f for f in new["fields"]}
        # New name → old name of every old field. One that is gone stays under its old name, which `after` does not
        # have.
        origin = {self.new_name(name, new["name"], before, after): name for name in before}
        where = f"{at}." if at else ""
        parts: list[tuple[str, str, _Convert | None]] = []
        added: dict[str, Callable[[], Any]] = {}
        kept = {was for name, was in origin.items() if name in after}
        gone = [name for name in before if name not in kept]
        # First: a new field without a default may be an old one under another name, and a default would lose its values.
        appeared = [wanted for name, wanted in after.items() if name not in origin]
        self.refuse_silent_rename(new["name"], {name: before[name] for name in gone}, appeared, where)
        same = old["layout"] == new["layout"]
        for name, wanted in after.items():
            was = origin.get(name)
            if was is None:
                added[name] = self.default_of(wanted, where + name)
                same = same and new["layout"] == "map"
                continue
            convert = self.of(before[was]["type"], wanted["type"], where + name)
            parts.append((was, name, convert))
            if was != name:
                self.notes.append(f"{where}{was} renamed to {name}")
            if ("default" in before[was]) and before[was]["default"] != wanted.get("default", _NONE):
                # A writer may have omitted the field because it had its default.
                self.notes.append(f"{where}{name} has another default; stored values keep what they had")
                same = False
            same = same and convert is None and was == name
        self.notes.extend(f"{where}{name} removed" for name in gone)
        # By name, the order does not matter. By position it is the type.
        order_kept = new["layout"] == "map" or [was for was, _, _ in parts] == list(before)
        if same and not gone and order_kept:
            return None
        return _rebuilt(parts, added)

    def refuse_silent_rename(
        self, struct: str, gone: Mapping[str, Schema], added: Sequence[Schema], where: str
    ) -> None:
        """Refuse that a field disappears while one appears that could hold its values, unless the user drops it."""
        for name, was in gone.items():
            if self.answer(struct, name) == DROPPED:
                continue
            for appeared in added:
                answer = compare(was["type"], appeared["type"], self.renames)
                # A struct whose own fields have other names could hold the values, too.
                if isinstance(answer, Incompatible) and answer.perhaps_renamed is None:
                    continue
                new = str(appeared["name"])
                lost = ", and would start with its default" if "default" in appeared else ""
                raise _Refused(
                    f"the field {where}{name} is gone and {where}{new} is new: it may be the same field under another name{lost}",
                    f"Declare that {name} is now called {new}, or that it is dropped.",
                    (f"{struct}.{name}" if where else name, new),
                )

    def answer(self, struct: str, name: str) -> str | None:
        """What the user says about a field: its new name, `DROPPED`, or nothing."""
        return self.renames.get(f"{struct}.{name}", self.renames.get(name))

    def new_name(self, name: str, struct: str, before: Schema, after: Schema) -> str:
        renamed = self.answer(struct, name)
        # A rename that was made at an earlier start: the flag may stay in a script.
        if renamed is None or renamed not in after:
            return name
        if renamed in before:
            raise _Refused(
                f"{name} cannot have become {renamed} of {struct}, which it had already",
                "Correct the declared renames.",
            )
        return renamed

    def default_of(self, wanted: Schema, at: str) -> Callable[[], Any]:
        if "default" not in wanted:
            raise _Refused(
                f"the field {at} is new and has no default", f"Give {at} a default for values stored before."
            )
        self.notes.append(f"{at} added")
        # Decoded from an empty map, which is what a value looks like that was stored before the field existed. So the
        # default takes the same way as in a job.
        one_field = {"type": "struct", "name": "", "layout": "map", "fields": [wanted]}
        decode = schema_codec(one_field).decode
        return lambda: decode(b"\x80")[wanted["name"]]

    def refuse(self, old: Schema, new: Schema, what: str) -> None:
        raise _Refused(
            f"{what} was {show_schema(old)} and is {show_schema(new)}",
            f"Keep {show_schema(old)}, or declare a new state under another name and fill it from the old one.",
        )


_NONE = object()


def _rebuilt(parts: list[tuple[str, str, _Convert | None]], added: Mapping[str, Callable[[], Any]]) -> _Convert:
    def convert(value: Mapping[str, Any]) -> dict[str, Any]:
        made = {new: value[old] if one is None else one(value[old]) for old, new, one in parts}
        for name, default in added.items():
            made[name] = default()
        return made

    return convert


def _unless_none(convert: _Convert | None) -> _Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _over_elements(convert: _Convert | None) -> _Convert | None:
    if convert is None:
        return None
    return lambda value: [convert(item) for item in value]


def _over_values(convert: _Convert | None) -> _Convert | None:
    if convert is None:
        return None
    return lambda value: {key: convert(item) for key, item in value.items()}


def _sequences(old: Schema, new: Schema) -> tuple[Schema, Schema] | None:
    """Return the element types if both are arrays of one element type and the new one keeps order and duplicates of the old."""
    before, after = _element(old), _element(new)
    if before is None or after is None:
        return None
    # A list that becomes a set would lose its order and its duplicates.
    to_set = new["type"] in ("set", "frozenset") and old["type"] not in ("set", "frozenset")
    return None if to_set else (before, after)


def _element(schema: Schema) -> Schema | None:
    found: Schema | None = schema.get("element", schema.get("variadic"))
    return found


def _value_type(schema: Schema) -> str:
    if schema["type"] == "enum":
        return "str" if all(isinstance(member["value"], str) for member in schema["members"]) else "int"
    return str(schema["type"])


def _key_shape(schema: Schema) -> Schema:
    """Return the parts of a key's type that its bytes depend on."""
    match schema:
        case {"type": "enum"}:
            return {"type": _value_type(schema)}
        case {"type": "optional", "of": inner}:
            return {"type": "optional", "of": _key_shape(inner)}
        case {"type": "tuple", "elements": elements}:
            return {"type": "tuple", "elements": [_key_shape(element) for element in elements]}
        case {"type": "tuple", "variadic": element}:
            return {"type": "tuple", "variadic": _key_shape(element)}
    return {"type": schema["type"]}


def _exact_float(value: int) -> float:
    try:
        wide = float(value)
    except OverflowError:
        wide = float("inf")
    # Ints above 2^53 may fall between two floats.
    if wide != value:
        raise MigrationFailed(f"{value} has no equivalent float. Declare Decimal, which holds every int.")
    return wide


_WIDENED: dict[tuple[str, str], _Convert] = {
    ("bool", "int"): int,
    ("int", "float"): _exact_float,
    ("int", "decimal"): Decimal,
    ("bool", "float"): float,
}
