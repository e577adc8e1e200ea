"""What is sent to the tasks: the program of a level, pickled once per run, and the orders of one epoch."""

from __future__ import annotations

import dataclasses
import inspect
import io
import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, get_type_hints

from tidegate.checkpoint.version_restore import RestoreOrder
from tidegate.checkpoint.version_upload import UploadOrder
from tidegate.connectors.sink import CommitRequest
from tidegate.core.errors import GraphError
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid
from tidegate.core.times import NO_TIME, EpochTime
from tidegate.graph.combine import TIME
from tidegate.graph.levels import Edge, Level, Plan
from tidegate.graph.model import Graph, Node, NodeId, Source, StreamRef
from tidegate.runtime.own_modules import leave_own_modules
from tidegate.runtime.user_code import FunctionFailed
from tidegate.state.version import VersionId

log = logging.getLogger("tidegate")


@dataclass(frozen=True, slots=True)
class LevelProgram:
    """One level's operators with the user's functions, and the edges that reach and leave it.

    `consumers` are the nodes of this level that read a stream made in this level (chained: same process, no shuffle).
    `incoming` and `outgoing` include the edges whose rows only pass through.
    """

    level: int
    nodes: tuple[Node, ...]
    consumers: Mapping[StreamRef, tuple[NodeId, ...]]
    incoming: tuple[Edge, ...]
    outgoing: tuple[Edge, ...]
    state_ids: Mapping[tuple[Uid, str], int]
    event_times: Mapping[int, tuple[Uid, str, str | None]] = field(default_factory=dict)
    """Edges whose rows come from a source as they are: the source, its column of event times, and its column of splits. One edge
    for each source."""
    counted: frozenset[int] = frozenset()
    """Edges whose rows are counted as read: one for each source, or a row that two operators read would count twice."""


def programs(graph: Graph, plan: Plan, state_ids: Mapping[tuple[Uid, str], int]) -> tuple[LevelProgram, ...]:
    """The program of every level, the source stage (level 0) included."""
    return tuple(_program(graph, plan, level, state_ids) for level in plan.levels)


def pickled(program: LevelProgram) -> bytes:
    """A program with the user's functions, those of the main script and lambdas included. GraphError for one that cannot
    travel."""
    try:
        return _pickled(program)
    except Exception as error:
        left = leave_own_modules()
        if left and _travels(program):
            log.warning(
                "modules beside the program cannot travel with its functions, so workers must be able to import them: %s (%s)",
                ", ".join(left), _reason(error),
            )  # fmt: skip
            return _pickled(program)
        for node in program.nodes:
            _check_travels(node, error)
        raise GraphError(f"The functions of the job cannot be sent to the workers: {_reason(error)}.") from error


def _check_travels(node: Node, error: Exception) -> None:
    """Raise GraphError if this is the node whose function cannot be pickled, and name what it holds."""
    carried = getattr(node, "function", None) or getattr(node, "target", None)
    try:
        _pickled(carried)
        return
    except Exception as found:
        reason = _reason(found)
    held = next((name for name, value in _attributes(carried) if not _travels(value)), None)
    what = f"its attribute {held!r} cannot be pickled ({reason})" if held else f"it cannot be pickled ({reason})"
    raise GraphError(
        f"{node} cannot be sent to the workers: {what}. Make connections, locks, clients and open files in open(), which is "
        "called in the task, and not in __init__ or at the top of the script."
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
    from pyspark import cloudpickle

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            # What msgspec has noted on a class of the main script cannot be pickled; it is noted again when needed.
            if isinstance(obj, type) and "__msgspec_cache__" in vars(obj):
                del obj.__msgspec_cache__  # type: ignore[attr-defined]
            if isinstance(obj, type):
                _resolve_annotations(obj)
            if obj is dataclasses.MISSING:
                # One object in every process: a copy of it would look like a default of a dataclass's field.
                return _missing, ()
            return super().reducer_override(obj)  # type: ignore[no-untyped-call]

    with io.BytesIO() as body:
        Pickler(body).dump(carried)  # type: ignore[no-untyped-call]
        return body.getvalue()


def _resolve_annotations(cls: type) -> None:
    """Types of fields as objects in place of texts, as `from __future__ import annotations` leaves them: a worker that has the
    class by value has not the module in which the names mean something."""
    own = vars(cls).get("__annotations__")
    fielded = dataclasses.is_dataclass(cls) or hasattr(cls, "__struct_config__") or hasattr(cls, "_fields")
    if not own or not fielded or not any(isinstance(type_, str) for type_ in own.values()):
        return
    try:
        hints = get_type_hints(cls, include_extras=True)
    except Exception:
        return  # The worker says what it cannot resolve, if it needs it.
    own.update({name: hints[name] for name, type_ in own.items() if isinstance(type_, str)})


def _missing() -> Any:
    return dataclasses.MISSING


def ship_by_value(module: ModuleType) -> None:
    """Send what a module defines with the functions that use it, since executors cannot import it."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def exchange(plan: Plan, level: int) -> tuple[Edge, ...]:
    """Edges whose rows arrive at a level, to stay or to pass: the columns of the exchange above it."""
    return tuple(edge for edge in plan.edges if edge.from_level < level <= edge.to_level)


def _program(graph: Graph, plan: Plan, level: Level, state_ids: Mapping[tuple[Uid, str], int]) -> LevelProgram:
    consumers: dict[StreamRef, tuple[NodeId, ...]] = {}
    for chain in level.chains:
        consumers[chain.source] = (*consumers.get(chain.source, ()), chain.target)
    return LevelProgram(
        level.index,
        # A DataFrame stays in the driver, and so does what makes watermarks.
        tuple(
            replace(n, frame=None, generator=None) if isinstance(n, Source) else n for n in map(graph.node, level.nodes)
        ),
        consumers,
        exchange(plan, level.index),
        exchange(plan, level.index + 1),
        dict(state_ids),
        _event_times(graph, plan) if level.index == 1 else {},
        _counted(graph, plan) if level.index == 1 else frozenset(),
    )


def _event_times(graph: Graph, plan: Plan) -> dict[int, tuple[Uid, str, str | None]]:
    """Where level 1 sees the rows of sources. Where the source stage runs Python, it has seen them before."""
    if len(plan.levels[0].nodes) > len(graph.sources):
        return {}
    found: dict[NodeId, tuple[int, tuple[Uid, str, str | None]]] = {}
    for edge in exchange(plan, 1):
        node = graph.node(edge.source.node)
        if isinstance(node, Source) and node.watermark_column is not None and node.id not in found:
            column = node.watermark_column if edge.combine is None else TIME
            found[node.id] = edge.id, (node.uid, column, node.split)
    return dict(found.values())


def _counted(graph: Graph, plan: Plan) -> frozenset[int]:
    """Empty where the source stage runs Python, and has counted them itself."""
    if len(plan.levels[0].nodes) > len(graph.sources):
        return frozenset()
    first: dict[NodeId, int] = {}
    # An edge that goes to one task for each row is counted as it is; of a broadcast, one task counts.
    for edge in sorted(exchange(plan, 1), key=lambda edge: edge.broadcast):
        if isinstance(graph.node(edge.source.node), Source):
            first.setdefault(edge.source.node, edge.id)
    return frozenset(first.values())


def _not_importable(error: Exception) -> Exception:
    return GraphError(
        f"the functions of the job cannot be loaded on an executor: {error}. Modules that do not travel with them must be "
        "importable there: install them, or add them with spark.submit.pyFiles or spark.addArtifact(…, pyfile=True)."
    )


@dataclass(frozen=True, slots=True)
class Archive:
    """Where the job's checkpoints are, for whoever opens it."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of the object store's client. They may hold secrets; nothing prints them."""


@dataclass(frozen=True, slots=True)
class PublishOrder:
    """Output of a sink that one task is to publish, in this order."""

    sink: Uid
    lane: int
    """The slot whose output it is, perhaps one of an older parallelism; `ALL_SLOTS` for a sink whose slots are not stable."""
    requests: tuple[CommitRequest, ...] = field(repr=False)

    @property
    def end(self) -> tuple[EpochId, Slot]:
        """Two orders of one lane that end alike ask for the same."""
        return self.requests[-1].epoch, self.requests[-1].slot


ALL_SLOTS = -1


@dataclass(frozen=True, slots=True)
class CheckpointWork:
    """What the tasks of one level do for checkpoints in one epoch, besides its rows. Sequences have an item for each slot."""

    uploads: tuple[tuple[UploadOrder, ...], ...] = ()
    keep: tuple[tuple[VersionId, ...], ...] = ()
    """Versions that local tidying must leave alone, besides the one to start from."""
    records: tuple[tuple[Term, int], ...] = ()
    """Checkpoints (term, id) whose records of uploads are still needed."""
    restores: tuple[RestoreOrder | None, ...] = ()
    """In the epoch that brings state back: where each slot's comes from."""
    wait_ms: int = 0
    """How long a task may wait at its end for an upload or a publication to come along."""
    publishes: tuple[tuple[PublishOrder, ...], ...] = ()
    """Output that the tasks publish."""

    def of(self, slot: Slot) -> tuple[tuple[UploadOrder, ...], tuple[VersionId, ...], RestoreOrder | None]:
        return (
            self.uploads[slot] if self.uploads else (),
            self.keep[slot] if self.keep else (),
            self.restores[slot] if self.restores else None,
        )


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """What the tasks of one level are to do in one epoch. One object for all of them: each finds its own by its partition."""

    job: str
    lineage: Lineage
    epoch: EpochId
    parallelism: int
    max_parallelism: int
    program: bytes
    """A pickled LevelProgram. Unpickled afresh for every attempt, so that a failed one leaves nothing in a function."""
    slots: tuple[Slot, ...]
    """The slot of each partition of this level."""
    salts: tuple[int, ...]
    """For each slot of the next level, the integer that Spark's hash brings to its partition. Empty for the last level."""
    versions: tuple[VersionId | None, ...]
    """The state version of each slot to start from."""
    backend: str
    backend_options: Mapping[str, Any]
    local_dir: str | None
    senders: int | None
    """How many tasks of the level above send barriers; None where only Spark knows (the source stage), 0 where it sends none."""

    archive: Archive | None = None
    work: CheckpointWork = CheckpointWork()
    time: EpochTime = NO_TIME
    wake: tuple[bool, ...] = ()
    """Slots whose timers are due, or not known: their tasks open their state even if no row comes."""

    def unpickle(self) -> LevelProgram:
        try:
            program = pickle.loads(self.program)
        except (ImportError, AttributeError) as error:
            raise FunctionFailed("(all)", _not_importable(error)) from error
        assert isinstance(program, LevelProgram)
        return program
