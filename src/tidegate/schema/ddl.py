"""Parses Spark DDL, such as `user string, total double NOT NULL`, without a JVM."""

from __future__ import annotations

import re
from typing import NoReturn

from tidegate.core.errors import SchemaError, UnsupportedType
from tidegate.core.nearest import nearest
from tidegate.schema.datatype import EXAMPLE, KINDS, DataType, Field

_ALIASES = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_REFUSED = {
    "char": "use string",
    "character": "use string",
    "varchar": "use string",
    "interval": "use bigint for a number of microseconds, or a start and an end timestamp",
    "variant": "parse it before it gets here, or carry its text as string",
    "time": "use bigint for microseconds of the day, or timestamp",
    "void": "give the column a type, for instance cast(null as string)",
    "null": "give the column a type, for instance cast(null as string)",
    "object": "use a struct of its parts, or binary",
    "geometry": "use binary with its well-known form",
    "geography": "use binary with its well-known form",
}
_TOKEN = re.compile(r"\s*(?:(?P<word>\w+)|`(?P<quoted>(?:[^`]|``)*)`|(?P<text>'(?:[^'\\]|\\.)*')|(?P<mark>[<>(),:]))")


class Parser:
    """A single-pass parser for one schema. Every error shows the text, the position, and a correct example."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def schema(self) -> tuple[Field, ...]:
        """Parse columns `name type [NOT NULL] [COMMENT '…']`, or one whole `struct<…>` as Spark prints schemas."""
        if re.match(r"\s*struct\s*<", self._text, re.IGNORECASE):
            fields = self.type().fields or ()
        else:
            fields = self._fields(closing=None)
        self._end()
        return fields

    def whole_type(self) -> DataType:
        found = self.type()
        self._end()
        return found

    def type(self) -> DataType:
        place = self._next_place()
        word = self._take("word")
        if word is None:
            self._refuse(place, "A type is expected here.")
        kind = _ALIASES.get(word.lower(), word.lower())
        if kind in _REFUSED:
            raise UnsupportedType(self._shown(place, f"tidegate carries no {kind} columns; {_REFUSED[kind]}."))
        if kind not in KINDS:
            near = nearest(kind, [*KINDS, *_ALIASES])
            self._refuse(place, f"Unknown type {word!r}." + (f" Did you mean {near!r}?" if near else ""))
        match kind:
            case "decimal":
                return self._decimal(place)
            case "array":
                self._expect("<")
                element = self.type()
                self._expect(">")
                return DataType("array", element=element)
            case "map":
                self._expect("<")
                key = self.type()
                self._expect(",")
                value = self.type()
                self._expect(">")
                return DataType("map", key=key, value=value)
            case "struct":
                self._expect("<")
                fields = self._fields(closing=">")
                self._expect(">")
                return DataType("struct", fields=fields)
        # Spark 4 writes a collation after the type: `string collate UNICODE`.
        collated = self._next_place()
        if kind == "string" and self._keyword("collate"):
            raise UnsupportedType(
                self._shown(collated, "tidegate compares strings by their bytes and carries no collations; use string.")
            )
        return DataType(kind)

    def _decimal(self, place: int) -> DataType:
        precision, scale = 10, 0  # Spark's defaults
        if self._mark("("):
            precision = self._number()
            scale = self._number() if self._mark(",") else 0
            self._expect(")")
        try:
            return DataType("decimal", precision=precision, scale=scale)
        except SchemaError as error:
            self._refuse(place, str(error))

    def _fields(self, closing: str | None) -> tuple[Field, ...]:
        fields: list[Field] = []
        if self._peek(closing):
            return ()
        while True:
            fields.append(self._field())
            if not self._mark(","):
                return tuple(fields)

    def _field(self) -> Field:
        place = self._next_place()
        name = self._take("word")
        if name is None:
            name = self._take("quoted")
        if not name:
            self._refuse(place, "A column name is expected here; put backquotes around unusual ones.")
        self._mark(":")  # Spark prints struct<a:int> and accepts both forms.
        type = self.type()
        nullable = True
        if self._keyword("not"):
            if not self._keyword("null"):
                self._refuse(self._next_place(), "NOT is followed by NULL.")
            nullable = False
        if self._keyword("comment") and self._take("text") is None:
            self._refuse(self._next_place(), "COMMENT is followed by a text in single quotes.")
        return Field(name.replace("``", "`"), type, nullable)

    def _number(self) -> int:
        place = self._next_place()
        word = self._take("word")
        if word is None or not word.isascii() or not word.isdigit():
            self._refuse(place, "A number is expected here, as in decimal(10,2).")
        return int(word)

    def _token(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self._at)

    def _take(self, group: str) -> str | None:
        token = self._token()
        if token is None or token[group] is None:
            return None
        self._at = token.end()
        return token[group]

    def _mark(self, mark: str) -> bool:
        token = self._token()
        if token is None or token["mark"] != mark:
            return False
        self._at = token.end()
        return True

    def _keyword(self, word: str) -> bool:
        token = self._token()
        if token is None or token["word"] is None or token["word"].lower() != word:
            return False
        self._at = token.end()
        return True

    def _peek(self, mark: str | None) -> bool:
        token = self._token()
        return (
            (token is None and self._next_place() == len(self._text))
            if mark is None
            else (token is not None and token["mark"] == mark)
        )

    def _expect(self, mark: str) -> None:
        if not self._mark(mark):
            self._refuse(self._next_place(), f"{mark!r} is expected here.")

    def _end(self) -> None:
        if self._text[self._at :].strip():
            self._refuse(self._next_place(), "',' or the end is expected here.")

    def _next_place(self) -> int:
        rest = self._text[self._at :]
        return len(self._text) - len(rest.lstrip())

    def _refuse(self, place: int, why: str) -> NoReturn:
        raise SchemaError(self._shown(place, why))

    def _shown(self, place: int, why: str) -> str:
        line = " ".join(self._text.split("\n"))
        return (
            f"Cannot read the schema at position {place}. {why}\n    {line}\n    {' ' * place}^\n"
            f"A right form is: {EXAMPLE}"
        )
