"""Classes of rows as schemas."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pytest

from tidegate.core.errors import SchemaError
from tidegate.schema.row_classes import schema_of_rows


class Item(NamedTuple):
    name: str
    price: Decimal | None


@dataclass
class Order:
    id: int
    at: datetime
    items: list[Item]
    tags: dict[str, str | None]
    day: date | None
    paid: bool = False


class Reading(msgspec.Struct):
    sensor: bytes
    value: float


def test_columns_have_the_types_of_the_fields() -> None:
    assert schema_of_rows(Order).ddl() == (
        "id bigint NOT NULL, at timestamp NOT NULL, "
        "items array<struct<name:string NOT NULL,price:decimal(38,18)>> NOT NULL, "
        "tags map<string,string> NOT NULL, day date, paid boolean"
    )
    assert schema_of_rows(Reading).ddl() == "sensor binary NOT NULL, value double NOT NULL"


@dataclass
class Waits:
    since: timedelta


@pytest.mark.parametrize(
    ("rows", "message"),
    [(int, "int is no class of rows"), (Waits, r"Waits\.since is a timedelta, and a column has no such type")],
)
def test_what_has_no_columns_is_refused(rows: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        schema_of_rows(rows)
