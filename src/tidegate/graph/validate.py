"""Validates graphs. Pure checks, called by the API as the graph is built, so that an error points at the user's line."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from tidegate.core.errors import GraphError
from tidegate.core.ids import Uid
from tidegate.core.nearest import no_column
from tidegate.core.types import schema_of
from tidegate.graph.model import Graph, Input, Node, Process, SinkNode, Source, Transform
from tidegate.graph.renamed import check_earlier_names
from tidegate.graph.states import Distribution
from tidegate.schema.schema import KEY_KINDS, Schema

MAX_NAME_CHARS = 200
EVENT_TIME_KINDS = ("timestamp", "timestamp_ntz")
SPLIT_KINDS = ("string", "tinyint", "smallint", "int", "bigint")
TRANSFORM_KINDS = ("map", "filter", "flat_map")
ASYNC = "async_map"
COMBINE = "combine"
"""The kind of a transform that belongs to the keyed operator behind it."""


class DuplicateUid(GraphError):
    """Two nodes of a job have the same uid."""

    code = "DUPLICATE_UID"

    def __init__(self, uid: str, first: str, second: str) -> None:
        self.uid = uid
        super().__init__(
            f"The uid {uid!r} is given twice: to {first} and to {second}. "
            "A uid is the identity of state and positions, so each must be used once; rename one of them."
        )


def check_name(name: object, what: str) -> str:
    """Check a uid or job name: both become parts of storage paths and REST API addresses.

    1 to 200 characters, no '/', no control characters, not '.' or '..', no space at either end. Spaces inside are fine.
    """
    if not isinstance(name, str) or not name:
        raise GraphError(f"The {what} must be a text that is not empty, such as 'orders'; got {name!r}.")
    if len(name) > MAX_NAME_CHARS:
        raise GraphError(
            f"The {what} {name[:40]!r}… has {len(name)} characters; at most {MAX_NAME_CHARS} are allowed. Shorten it."
        )
    wrong = [c for c in name if c == "/" or unicodedata.category(c) in ("Cc", "Cs")]
    if wrong:
        raise GraphError(
            f"The {what} {name!r} contains {wrong[0]!r}. It becomes part of paths: no '/' and no control characters."
        )
    if name != name.strip() or name in (".", ".."):
        raise GraphError(f"The {what} {name!r} is '.' or '..', or has a space at an end. Use a name such as 'orders'.")
    return name


def check_new_uid(uid: object, shown: str, nodes: Iterable[Node]) -> Uid:
    """Check the uid of a node to be added to `nodes`; `shown` describes the node in the message."""
    checked = Uid(str(check_name(uid, "uid")))  # not of a class of its own: it is stored
    for node in nodes:
        if node.uid == checked:
            raise DuplicateUid(checked, str(node), shown)
    return checked


def check_key(columns: tuple[str, ...], schema: Schema) -> None:
    """Require that key columns exist, are named once, and have types with one byte string for equal values."""
    if not columns:
        raise GraphError(f"key_by needs at least one column. The columns are {', '.join(schema.names)}.")
    for position, name in enumerate(columns):
        if name not in schema:
            raise GraphError(no_column(name, schema.names, "to key by"))
        if name in columns[:position]:
            raise GraphError(f"The key names the column {name!r} twice. Name it once.")
        type = schema.fields[schema.index(name)].type
        if type.kind not in KEY_KINDS:
            raise GraphError(
                f"The column {name!r} is a {type} and cannot be a key; keys are {', '.join(sorted(KEY_KINDS))}. "
                "Select its parts as columns of their own, or a text form of it, and key by those."
            )


def check_event_time(column: str, schema: Schema) -> None:
    if column not in schema:
        raise GraphError(no_column(column, schema.names, "of event times"))
    type = schema.fields[schema.index(column)].type
    if type.kind not in EVENT_TIME_KINDS:
        times = [field.name for field in schema if field.type.kind in EVENT_TIME_KINDS]
        others = f"Timestamps are in {', '.join(times)}." if times else "No other column is a timestamp."
        how = {
            "string": f"to_timestamp('{column}')",
            "bigint": f"timestamp_millis('{column}') (or timestamp_seconds)",
        }.get(type.kind, f"timestamp_seconds('{column}')")
        raise GraphError(
            f"The event time column {column!r} is a {type}, not a timestamp. {others} If {column!r} is a time, convert it before "
            f"source(): df.withColumn('{column}', F.{how})."
        )


def check_split(column: str, schema: Schema) -> None:
    if column not in schema:
        raise GraphError(no_column(column, schema.names, "of splits"))
    type = schema.fields[schema.index(column)].type
    if type.kind not in SPLIT_KINDS:
        raise GraphError(
            f"The column {column!r} of the splits is a {type}. It must be a string or an integer, such as the number of a "
            "partition or the name of a file."
        )


def check_union(schemas: Iterable[tuple[str, Schema]]) -> None:
    """Require that united streams have the same columns in the same order. Each stream comes with a name for the message."""
    (first_name, first), *others = schemas
    for name, schema in others:
        if not first.same_rows(schema):
            raise GraphError(
                f"Streams of different columns cannot be united: {first_name} has ({first}) and {name} has ({schema}). "
                "Bring them to one form with map(…, schema=…) first."
            )


def check_same_keys(inputs: Iterable[Input]) -> None:
    """Require that streams that share state have keys of the same types, so that equal keys meet."""
    # The hash of a key, and so its task, depends on the types of its columns: as in Spark, 1 as int and as bigint differ.
    types = [[input.schema.fields[input.schema.index(name)].type for name in input.key] for input in inputs]
    for other in types[1:]:
        if [type.without_nullability() for type in other] != [type.without_nullability() for type in types[0]]:
            raise GraphError(
                f"The two streams are keyed by ({', '.join(map(str, types[0]))}) and ({', '.join(map(str, other))}). Streams "
                "that meet in one operator have keys of the same types: cast one of them first."
            )


def check_runnable(graph: Graph) -> Graph:
    """Check what a valid graph needs before it can run, and return it."""
    if not graph.sources:
        raise GraphError(f"The job {graph.job!r} has no source. Add one with job.source(uid, df).")
    if not graph.sinks:
        raise GraphError(
            f"The job {graph.job!r} has no sink, so nothing of its work would be seen. End a stream with "
            "stream.sink(uid, target); tidegate.PrintSink() will do for a first try."
        )
    # Epochs over streaming sources are batches of one query, and all bounded sources are one epoch: no epoch is both.
    bounded = [source.uid for source in graph.sources if source.bounded]
    streaming = [source.uid for source in graph.sources if not source.bounded]
    if bounded and streaming:
        raise GraphError(
            f"The job {graph.job!r} mixes bounded sources ({', '.join(bounded)}) with streaming ones "
            f"({', '.join(streaming)}). Read them all with spark.readStream, or all with spark.read; a table to look "
            "things up in is joined to a streaming DataFrame before it becomes a source."
        )
    return graph


def check(graph: Graph) -> Graph:
    """Check a whole graph and return it. Raises GraphError, DuplicateUid or UnsupportedType at the first error."""
    check_name(graph.job, "job name")
    for position, node in enumerate(graph.nodes):
        if node.id != position:
            raise GraphError(f"{node} has the id {node.id} and stands at {position}. Ids count the nodes from 0.")
        if node.uid is not None:
            check_new_uid(node.uid, str(node), graph.nodes[:position])
        for input in graph.inputs(node):
            _check_input(graph, node, input)
        match node:
            case Source(event_time=str(column)):
                check_event_time(column, node.schema)
            case Transform():
                _check_transform(node)
            case Process():
                _check_process(node)
            case SinkNode() if node.input.key:
                raise GraphError(f"{node} reads a keyed stream; sinks take their rows as they come. Leave out key_by.")
    _check_renamed_uids(graph)
    return graph


def _check_renamed_uids(graph: Graph) -> None:
    check_earlier_names("uid", {str(uid): names for uid, names in graph.renamed_uids.items()})
    declared = {node.uid for node in graph.nodes}
    for uid, earlier in graph.renamed_uids.items():
        for old in earlier:
            if old in declared:
                # A snapshot of this job would have both, and could not tell which of them holds what the old one held.
                raise GraphError(
                    f"{uid!r} is declared with renamed_from={old!r}, and the job has an operator {old!r}. If {uid!r} was renamed "
                    "before the job's last checkpoint, remove renamed_from. Otherwise give the other operator another uid."
                )


def _check_input(graph: Graph, node: Node, input: Input) -> None:
    if not input.streams:
        raise GraphError(f"{node} reads nothing. Give it a stream.")
    for stream in input.streams:
        if not 0 <= stream.node < node.id:
            raise GraphError(
                f"{node} reads node {stream.node}, which is not declared before it. Cycles are not possible."
            )
    found = [(str(graph.node(stream.node)), graph.schema(stream)) for stream in input.streams]
    check_union([("what it declares", input.schema), *found])


def _check_transform(node: Transform) -> None:
    if node.kind not in (*TRANSFORM_KINDS, ASYNC, COMBINE):
        kinds = ", ".join((*TRANSFORM_KINDS, ASYNC))
        raise GraphError(f"{node} is of unknown kind {node.kind!r}. The kinds are {kinds}.")
    if (node.kind == ASYNC) != (node.calls is not None):
        raise GraphError(f"{node} must say how its calls are made if it is an {ASYNC}, and only then.")
    if node.calls is not None and node.states:
        raise GraphError(f"{node} declares state, and an async function has none. Use key_by(…).process(uid, …).")
    _check_tags(node)
    if node.input.key:
        raise GraphError(f"{node} reads a keyed stream but has no state. Put it before key_by, or use process.")
    if node.kind == "filter" and not node.schema.same_rows(node.input.schema):
        raise GraphError(f"{node} changes the columns of its rows. A filter cannot; use map or flat_map.")
    _check_states(node)
    if any(state.keyed for state in node.states):
        raise GraphError(f"{node} declares keyed state, but has no key. Use key_by(…).process(uid, …).")
    if node.states and node.uid is None:
        raise GraphError(f"{node} declares operator state, which needs a uid to belong to. Add uid='…'.")


def _check_states(node: Process | Transform) -> None:
    names = [state.name for state in node.states]
    for name in names:
        if names.count(name) > 1:
            raise GraphError(f"{node} declares the state {name!r} twice. Rename one of them.")
    for state in node.states:
        schema_of(state.value)
        if state.map_key is not None:
            schema_of(state.map_key)
        if state.distribution is Distribution.BROADCAST and getattr(node, "broadcast", None) is None:
            raise GraphError(
                f"{node} declares the broadcast state {state.name!r} and has no broadcast input. Connect one: "
                "keyed.connect(other.broadcast()).process(uid, …)."
            )


def _check_process(node: Process) -> None:
    for input in node.keyed_inputs:
        check_key(input.key, input.schema)
    check_same_keys(node.keyed_inputs)
    _check_states(node)
    _check_tags(node)


def _check_tags(node: Process | Transform) -> None:
    tags = [tag for tag, _ in node.side_outputs]
    for tag in tags:
        check_name(tag, "side output tag")
        if tags.count(tag) > 1:
            raise GraphError(f"{node} declares the side output {tag!r} twice. Leave one out.")
