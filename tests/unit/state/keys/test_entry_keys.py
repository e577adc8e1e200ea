"""Key bytes: they keep the order of keys, none begins another, and they read back as the normalized key."""

from __future__ import annotations

import math
import pickle
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from enum import Enum, IntEnum, StrEnum
from typing import Any, NewType, Optional
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.core.errors import CorruptState, UnsupportedType
from tidegate.core.ids import EpochId, Term
from tidegate.schema.schema import DataType
from tidegate.state.keys import entry_keys as keys
from tidegate.state.keys.entry_keys import NAN, InvalidKey, KeyCodec, TimeWindow, normalized


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = -1
    HIGH = 10


class Odd(Enum):
    A = 1.5


UserId = NewType("UserId", int)

zones = st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-9, minutes=-30))])
inner = {"min_value": datetime(2, 1, 1), "max_value": datetime(9998, 1, 1)}
aware = st.builds(lambda moment, zone: moment.replace(tzinfo=zone), st.datetimes(**inner), zones)
doubles = st.one_of(st.floats(), st.binary(min_size=8, max_size=8).map(lambda bits: struct.unpack("<d", bits)[0]))
scaled = st.integers(-(10**20) + 1, 10**20 - 1).map(lambda digits: Decimal(f"{digits}E-5"))
huge = (
    st.decimals()
    | st.integers().map(Decimal)
    | st.builds(lambda n, e: Decimal(f"{n}E{e}"), st.integers(), st.integers(-99, 99))
)

COLUMNS: dict[str, tuple[DataType, st.SearchStrategy[Any]]] = {
    "boolean": (DataType("boolean"), st.booleans()),
    "tinyint": (DataType("tinyint"), st.integers(-(1 << 7), (1 << 7) - 1)),
    "int": (DataType("int"), st.integers(-(1 << 31), (1 << 31) - 1)),
    "bigint": (DataType("bigint"), st.integers(-(1 << 63), (1 << 63) - 1)),
    "float": (DataType("float"), st.floats(width=32)),
    "double": (DataType("double"), doubles),
    "string": (DataType("string"), st.text() | st.text("\x00\x01ab")),
    "binary": (DataType("binary"), st.binary() | st.lists(st.sampled_from([0, 1, 254, 255])).map(bytes)),
    "date": (DataType("date"), st.dates()),
    "timestamp": (DataType("timestamp"), aware),
    "timestamp_ntz": (DataType("timestamp_ntz"), st.datetimes()),
    "decimal": (DataType("decimal", precision=20, scale=5), scaled),
}
PYTHON: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (int, st.integers() | st.integers(-(1 << 90), 1 << 90)),
    "float": (float, doubles),
    "str": (str, st.text()),
    "bytes": (bytes, st.binary()),
    "bool": (bool, st.booleans()),
    "date": (date, st.dates()),
    "aware datetime": (datetime, aware),
    "naive datetime": (datetime, st.datetimes()),
    "Decimal": (Decimal, huge),
    "UUID": (UUID, st.uuids()),
    "str enum": (Colour, st.sampled_from(Colour)),
    "int enum": (Level, st.sampled_from(Level)),
    "optional": (Optional[int], st.none() | st.integers()),  # noqa: UP045 - both spellings are in use
    "tuple": (tuple[str, int | None], st.tuples(st.text("\x00a"), st.none() | st.integers())),
    "tuples of any length": (tuple[int, ...], st.lists(st.integers(-2, 2)).map(tuple)),
    "new type": (UserId, st.integers()),
}


def _rank(key: Any) -> Any:
    """Normalized keys in their order: None first, NaN last, tuples part by part."""
    if isinstance(key, tuple):
        return tuple(map(_rank, key))
    if key is None:
        return (0,)
    if isinstance(key, float | Decimal) and math.isnan(key):
        return (2,)
    return (1, key)


def _assert_order_and_reading(codec: KeyCodec, a: Any, b: Any) -> None:
    left, right = codec.encode(a), codec.encode(b)
    canonical_a, canonical_b = codec.normalized(a), codec.normalized(b)
    assert (left < right) == (_rank(canonical_a) < _rank(canonical_b))
    assert (left == right) == (_rank(canonical_a) == _rank(canonical_b))
    assert left == right or not (left.startswith(right) or right.startswith(left))
    for key, data in ((canonical_a, left), (canonical_b, right)):
        assert codec.encode(key) == data
        assert _rank(codec.decode(b"??" + data + b"\x00rest", 2)) == _rank((key, 2 + len(data)))


@pytest.mark.feature("F11")
@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_bytes_of_a_column_keep_its_order_and_read_back(name: str, data: st.DataObject) -> None:
    type, values = COLUMNS[name]
    a, b = data.draw(st.none() | values), data.draw(st.none() | values)
    _assert_order_and_reading(KeyCodec([type]), a, b)


@pytest.mark.feature("F11", "F17")
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_bytes_of_a_composite_key_keep_its_order_and_read_back(data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=2, max_size=4))
    keys_ = st.tuples(*(st.none() | COLUMNS[name][1] for name in columns))
    _assert_order_and_reading(KeyCodec([COLUMNS[name][0] for name in columns]), data.draw(keys_), data.draw(keys_))


@pytest.mark.feature("A22")
@pytest.mark.parametrize("name", PYTHON)
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_bytes_of_a_python_type_keep_its_order_and_read_back(name: str, data: st.DataObject) -> None:
    tp, values = PYTHON[name]
    _assert_order_and_reading(KeyCodec.of_python(tp), data.draw(values), data.draw(values))


GOLDEN = [
    (["bigint"], None, "00"),
    (["bigint"], 1, "02 80 00 00 00 00 00 00 01"),
    (["tinyint"], -1, "02 7f ff ff ff ff ff ff ff"),
    (["double"], -0.0, "02 80 00 00 00 00 00 00 00"),
    (["double"], math.nan, "02 ff f8 00 00 00 00 00 00"),
    (["float"], -1.5, "02 40 07 ff ff ff ff ff ff"),
    (["string"], "a\x00é", "02 61 00 ff c3 a9 00 00"),
    (["boolean"], True, "02 01"),
    (["date"], date(1970, 1, 2), "02 80 00 00 01"),
    (["timestamp"], datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "02 80 00 00 00 00 00 00 00"),
    (["timestamp_ntz"], datetime(1969, 12, 31, 23, 59, 59, 999_999), "02 7f ff ff ff ff ff ff ff"),
    (["string", "bigint"], ("a", None), "02 61 00 00 00"),
]


@pytest.mark.feature("F17")
@pytest.mark.parametrize(("kinds", "key", "expected"), GOLDEN)
def test_the_bytes_are_the_documented_ones(kinds: list[str], key: Any, expected: str) -> None:
    assert KeyCodec([DataType(kind) for kind in kinds]).encode(key).hex(" ") == expected


PYTHON_GOLDEN = [
    (int, 1 << 64, "03 00 00 00 09 01 00 00 00 00 00 00 00 00"),
    (int, -(1 << 63) - 1, "01 ff ff ff f7 7f ff ff ff ff ff ff fe"),
    (Decimal, Decimal("12.50"), "02 04 80 00 00 00 00 00 00 01 31 32 35 00"),
    (Decimal, Decimal("-1"), "02 02 7f ff ff ff ff ff ff ff ce ff"),
    (Decimal, Decimal("-0.00"), "02 03"),
    (datetime, datetime(1970, 1, 1), "02 00 80 00 00 00 00 00 00 00"),
    (datetime, datetime(1970, 1, 1, tzinfo=UTC), "02 01 80 00 00 00 00 00 00 00"),
    (Colour, Colour.RED, "02 72 65 64 00 00"),
    (tuple[int, ...], (), "02 00"),
    (tuple[str, ...], ("a",), "02 01 02 61 00 00 00"),
    (tuple[str, bool], ("a", False), "02 02 61 00 00 02 00"),
]


@pytest.mark.parametrize(("tp", "key", "expected"), PYTHON_GOLDEN)
def test_the_bytes_of_map_keys_are_the_documented_ones(tp: Any, key: Any, expected: str) -> None:
    assert KeyCodec.of_python(tp).encode(key).hex(" ") == expected


def test_a_decimal_column_is_written_at_its_scale_whatever_the_context() -> None:
    codec = KeyCodec([DataType("decimal", precision=38, scale=2)])
    with localcontext(prec=3):
        assert codec.encode(Decimal("1.5")) == codec.encode(Decimal("1.500")) == b"\x02\x80" + bytes(14) + b"\x96"
        key = Decimal("-123456789012345678901234567890123456.78")
        assert codec.decode(codec.encode(key)) == (key, 17)


def test_a_dict_finds_a_canonical_nan() -> None:
    double, single = DataType("double"), DataType("float")
    other_nan = struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf8\xff")[0]
    counts = {normalized(other_nan, double): 1, KeyCodec([double, single]).normalized((other_nan, 1.0)): 2}
    assert counts[NAN] == 1
    assert counts[(NAN, 1.0)] == 2
    assert normalized(other_nan, single) is KeyCodec([double]).decode(KeyCodec([double]).encode(other_nan))[0] is NAN


def test_normalized_keys_are_what_the_column_would_hold() -> None:
    assert math.copysign(1, normalized(-0.0, DataType("double"))) == 1
    assert normalized(0.1, DataType("float")) == struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert str(normalized(Decimal("1.5"), DataType("decimal", precision=10, scale=3))) == "1.500"
    in_berlin = datetime(2024, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert normalized(in_berlin, DataType("timestamp")).isoformat() == "2024-07-01T10:00:00+00:00"


REFUSED = [
    (DataType("bigint"), 1 << 63),
    (DataType("tinyint"), 128),
    (DataType("int"), 1.0),
    (DataType("bigint"), "1"),
    (DataType("boolean"), 1),
    (DataType("double"), "1"),
    (DataType("float"), 1e300),
    (DataType("string"), b"a"),
    (DataType("string"), "\ud800"),
    (DataType("binary"), "a"),
    (DataType("date"), datetime(2024, 1, 1)),
    (DataType("timestamp"), datetime(2024, 1, 1)),
    (DataType("timestamp"), datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))),
    (DataType("timestamp_ntz"), datetime(2024, 1, 1, tzinfo=UTC)),
    (DataType("decimal", precision=5, scale=2), Decimal("1.005")),
    (DataType("decimal", precision=5, scale=2), Decimal("1000")),
    (DataType("decimal", precision=5, scale=2), Decimal("NaN")),
    (DataType("decimal", precision=5, scale=2), 1.5),
]


@pytest.mark.parametrize(("type", "value"), REFUSED, ids=str)
def test_what_the_column_cannot_hold_is_refused(type: DataType, value: Any) -> None:
    one, pair = KeyCodec([type]), KeyCodec([type, type])
    for refuses, key in ((one.encode, value), (one.normalized, value), (pair.encode, (None, value))):
        with pytest.raises(InvalidKey, match="cannot be a key"):
            refuses(key)


@pytest.mark.parametrize(
    ("tp", "value"), [(int, None), (int, 1.5), (str, None), (bool, None), (Colour, "green"), (UUID, "x")]
)
def test_a_map_key_of_another_type_is_refused(tp: Any, value: Any) -> None:
    with pytest.raises(InvalidKey, match="cannot be a key"):
        KeyCodec.of_python(tp).encode(value)


@pytest.mark.parametrize("key", ["ab", ("a",), ("a", 1, 2), ["a", 1], None])
def test_a_composite_key_is_a_tuple_of_its_columns(key: Any) -> None:
    with pytest.raises(InvalidKey, match="one value for each key column"):
        KeyCodec([DataType("string"), DataType("bigint")]).encode(key)


@pytest.mark.parametrize("tp", [list[int], dict, int | str, Odd, object, set[int]], ids=str)
def test_a_type_without_ordered_bytes_is_refused(tp: Any) -> None:
    with pytest.raises(UnsupportedType, match="cannot be"):
        KeyCodec.of_python(tp)


@pytest.mark.parametrize("name", COLUMNS)
def test_bytes_cut_short_are_refused(name: str) -> None:
    codec = KeyCodec([COLUMNS[name][0]])
    samples = {"boolean": True, "string": "abc", "binary": b"abc", "date": date(2024, 1, 1), "decimal": Decimal("1.5")}
    moment = {"timestamp": datetime(2024, 1, 1, tzinfo=UTC), "timestamp_ntz": datetime(2024, 1, 1)}
    data = codec.encode(samples.get(name) or moment.get(name) or 1)
    for end in range(len(data)):
        with pytest.raises(CorruptState, match="cannot be read"):
            codec.decode(data[:end])


def test_a_codec_can_be_sent_to_a_task() -> None:
    for codec, key in (
        (KeyCodec([DataType("string"), DataType("int")]), ("a", 1)),
        (KeyCodec.of_python(Level), Level.LOW),
    ):
        assert pickle.loads(pickle.dumps(codec)).encode(key) == codec.encode(key)


# Entry keys

namespaces = st.one_of(st.none(), st.text(), st.builds(TimeWindow, *[st.integers(-(1 << 63), (1 << 63) - 1)] * 2))


@pytest.mark.feature("F17")
@given(st.integers(0, 0x7FFF), st.integers(0, 0xFFFF), st.none() | st.text("\x00\x02a"), namespaces, st.binary())
def test_an_entry_key_can_be_cut_into_its_parts(group: int, state: int, key: Any, namespace: Any, rest: bytes) -> None:
    codec = KeyCodec([DataType("string")])
    data = keys.entry_key(keys.state_prefix(group, state), codec.encode(key), keys.namespace_bytes(namespace), rest)
    assert keys.split_entry_key(data, codec) == (group, state, key, namespace, rest)


@pytest.mark.feature("A15", "B11", "F17")
@given(namespaces, namespaces)
def test_no_namespace_begins_another_and_windows_are_in_order(a: Any, b: Any) -> None:
    left, right = keys.namespace_bytes(a), keys.namespace_bytes(b)
    assert left == right if a == b else not left.startswith(right)
    if isinstance(a, TimeWindow) and isinstance(b, TimeWindow):
        assert (left < right) == (a < b)


@given(st.binary(min_size=1), st.binary())
@example(b"a\xff", b"\xff\xff")
def test_the_range_of_a_prefix_holds_what_begins_with_it_and_nothing_else(prefix: bytes, other: bytes) -> None:
    if prefix.strip(b"\xff"):
        end = keys.prefix_end(prefix)
        assert prefix <= prefix + other < end
        assert (prefix <= other < end) == other.startswith(prefix)
    else:
        with pytest.raises(ValueError, match="scan to the end"):
            keys.prefix_end(prefix)


@pytest.mark.feature("F17")
def test_the_layout_of_an_entry_key_is_the_documented_one() -> None:
    key = KeyCodec([DataType("string")]).encode("a")
    prefix = keys.state_prefix(258, 3)
    assert keys.entry_key(prefix, key).hex(" ") == "01 02 00 03 02 61 00 00 00"
    window = keys.namespace_bytes(TimeWindow(0, 1))
    assert window.hex(" ") == "01 80 00 00 00 00 00 00 00 80 00 00 00 00 00 00 01"
    assert keys.namespace_bytes("x").hex(" ") == "02 78 00 00"
    at = EpochId(Term(2), 9)
    assert keys.list_segment(at, 7).hex(" ", 4) == "00000002 00000000 00000009 00000007"
    assert keys.read_segment(keys.list_segment(at, 7)) == (at, 7)
    assert keys.list_segment(at, 7) < keys.list_segment(at, 8) < keys.list_segment(EpochId(Term(3), 1), 0)
    assert keys.key_group_range(0, 0x7FFF) == (b"\x00\x00", b"\x80\x00")
