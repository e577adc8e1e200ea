"""Arguments that keep the names and the forms they have in Spark's `GroupedData`."""

from __future__ import annotations

from tidegate.api.streams import KeyedStream
from tidegate.core.errors import GraphError
from tidegate.schema.schema import Schema


def check_keyed(what: str, call: str, keyed: object) -> None:
    if not isinstance(keyed, KeyedStream):
        raise GraphError(
            f"{what} needs a keyed stream in place of Spark's grouped data: "
            f"{call}(stream.key_by('column'), …). Got {keyed!r:.200}."
        )


def check_output_mode(what: str, mode: str) -> None:
    if str(mode).lower() == "complete":
        raise GraphError(
            f"{what}: outputMode 'Complete' is not possible: the operator does not know all the rows it ever emitted. Spark "
            "refuses it as well. Use 'Update' or 'Append'."
        )
    if str(mode).lower() not in ("update", "append"):
        raise GraphError(f"{what}: outputMode is 'Update' or 'Append'; got {mode!r}.")


def check_has_event_time(what: str, why: str, keyed: KeyedStream) -> None:
    if keyed.input.event_time is None:
        raise GraphError(
            f"{what}: {why}, but the rows have no event time. Declare it at the source: "
            "job.source(uid, df, event_time='column', out_of_orderness='10 s')."
        )


def struct_type(given: object, what: str) -> Schema:
    """Return the schema of a StructType or of its DDL. Raises GraphError."""
    if isinstance(given, Schema):
        return given
    if isinstance(given, str):
        return Schema.parse(given)
    to_json = getattr(given, "jsonValue", None)
    if to_json is None or to_json().__class__ is not dict:
        raise GraphError(f"{what} is a StructType or DDL, such as 'user string, total double'; got {given!r:.200}.")
    return Schema.from_spark_json(to_json())
