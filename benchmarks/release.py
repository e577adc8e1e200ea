"""How fast output is published that has waited for its target: for 60 epochs, in 8 and 64 slots.

Two parts. The first has no Spark: rows are staged by each sink's writers, and then its committers publish them,

- `call per slot and epoch`: one call for each, slot by slot, in one process, which is how it was done before output release was
  redesigned;
- `call per epoch`, for a table, which is given whole epochs: one call for each;
- `one call`: all requests in order of epochs and slots;
- `two workers`: each of two processes publishes its slots, all of them in one call, as tasks do.

A sample is rows by seconds, from the first call until all calls have returned; committers are made and rows staged before.
That every row is in the target is checked afterwards.

The second part is a real job of 8 slots on a cluster of two workers, whose target is out of reach for 60 epochs. Rows by seconds
are counted from the first connection that reaches the target again until all rows are seen; how long the job took to try again
is a figure of its own. Completed checkpoints per minute while the target is away are compared with those before.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks import harness
from benchmarks.harness import Figure
from benchmarks.release_setup import FULL, QUICK, Servers, Size, ask, count_messages
from tidegate.connectors.sink import Committable, Committer, CommitterContext, Sink, WriterContext
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, Term, Uid
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

UID = Uid("out")
OLD, ONE, TWO = "call per slot and epoch", "one call", "two workers"
PER_EPOCH = "call per epoch"
"""In place of `OLD` for a table, which is given whole epochs and refuses a part of one."""
WANTED = 4.0
"""Of Kafka and PostgreSQL with 8 slots."""
CHECKPOINTS_WANTED = 0.9


def run(
    json_path: Path, quick: bool, *, only: Sequence[str] | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    """`only`: of `kafka`, `postgres`, `files`, `delta`, and of `job-kafka` and `job-postgres` for the second part."""
    size = QUICK if quick else FULL
    # A short run has no job unless it is asked for: a cluster and a minute of epochs are not short.
    parts = only or [*_TARGETS, *([] if quick else _JOB_TARGETS)]
    if unknown := sorted(set(parts) - {*_TARGETS, *_JOB_TARGETS}):
        raise SystemExit(
            f"benchmarks release has no part {unknown[0]!r}; there are {', '.join([*_TARGETS, *_JOB_TARGETS])}."
        )
    figures: dict[str, Figure] = {}
    ratios: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as scratch,
        ExitStack() as open,
    ):
        servers = Servers(Path(scratch), open)
        for part in parts:
            if part in _TARGETS:
                target = _TARGETS[part](servers)
                for slots, rounds in size.slots.items():
                    found = _publish(target, slots, size, Path(scratch), repetitions or rounds)
                    figures |= found
                    wanted = WANTED if slots == 8 and part in ("kafka", "postgres") else None
                    old = OLD if target.in_tasks else PER_EPOCH
                    for how, bound in ((ONE, None), (TWO, wanted)):
                        name = f"{part}, {slots} slots: "
                        if (taken := harness.ratio(found, name + how, name + old, at_least=bound)) is not None:
                            ratios[f"{name}{how} / {old}"] = taken
        for part in parts:
            if part in _JOB_TARGETS:
                _measure_job(part, servers, size, figures, ratios)
    return {
        "size": {"epochs": size.epochs, "rows_per_epoch": size.rows_per_epoch, "job_slots": size.job_slots},
        "figures": {name: figure.as_json() for name, figure in figures.items()},
        "ratios": ratios,
    }


# -- committers alone -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shelf:
    """A folder in which rows wait, for writers and for committers of any process."""

    folder: Path

    def put(self, data: bytes) -> str:
        name = uuid.uuid4().hex
        (self.folder / name).write_bytes(data)
        return name

    def read(self, token: str) -> bytes:
        return (self.folder / token).read_bytes()


class Target(Protocol):
    name: str
    schema: Schema
    in_tasks: bool
    """Whether tasks may publish. A table has one log, to which one process adds."""

    def sink(self) -> Sink:
        """Of a place where nothing is yet."""
        ...

    def count(self) -> int:
        """The rows that readers see at the place of the latest sink."""
        ...


def _publish(target: Target, slots: int, size: Size, scratch: Path, repetitions: int) -> dict[str, Figure]:
    with ExitStack() as open:
        workers = [
            open.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
            for _ in range(2 if target.in_tasks else 0)
        ]
        # A client that is imported within a sample would be most of it, and a worker of Spark's has done that long ago.
        for measure in _contestants(_Committing(target, 2, replace(size, epochs=1), scratch, workers)).values():
            measure()
        contestants = _contestants(_Committing(target, slots, size, scratch, workers))
        named = {f"{target.name}, {slots} slots: {how}": measure for how, measure in contestants.items()}
        return harness.interleave(named, repetitions, what="publish", unit="rows/s")


def _contestants(bench: _Committing) -> dict[str, Callable[[], float]]:
    if bench.workers:
        return {OLD: bench.one_by_one, ONE: bench.together, TWO: bench.in_workers}
    return {PER_EPOCH: bench.by_epoch, ONE: bench.together}


class _Committing:
    """Stages output at a new place for each sample, and publishes it in one way or another."""

    def __init__(
        self, target: Target, slots: int, size: Size, scratch: Path, workers: Sequence[ProcessPoolExecutor]
    ) -> None:
        self._target, self._slots, self._size, self.workers = target, slots, size, workers
        self._scratch = scratch

    def one_by_one(self) -> float:
        with self._staged() as (sink, shelf, requests):
            committer = _committer(sink, self._target.schema, shelf)
            by_slot = sorted(requests, key=lambda request: (request.slot, request.epoch))
            return self._rate(lambda: [committer.commit([request]) for request in by_slot], committer)

    def by_epoch(self) -> float:
        with self._staged() as (sink, shelf, requests):
            committer = _committer(sink, self._target.schema, shelf)
            epochs = [list(group) for _, group in groupby(requests, key=lambda request: request.epoch)]
            return self._rate(lambda: [committer.commit(epoch) for epoch in epochs], committer)

    def together(self) -> float:
        with self._staged() as (sink, shelf, requests):
            committer = _committer(sink, self._target.schema, shelf)
            return self._rate(lambda: committer.commit(requests), committer)

    def in_workers(self) -> float:
        with self._staged() as (sink, shelf, requests):
            for worker in self.workers:
                worker.submit(_open_in_worker, sink, self._target.schema, shelf).result()
            shares = [
                [request for request in requests if request.slot % len(self.workers) == index]
                for index in range(len(self.workers))
            ]

            def publish() -> None:
                for done in [worker.submit(_commit_in_worker, share) for worker, share in zip(self.workers, shares)]:
                    done.result()

            rate = self._rate(publish, None)
            for worker in self.workers:
                worker.submit(_close_in_worker).result()
            return rate

    def _rate(self, publish: Callable[[], Any], committer: Committer | None) -> float:
        begin = time.monotonic()
        publish()
        took = time.monotonic() - begin
        if (close := getattr(committer, "close", None)) is not None:
            close()
        rows = self._rows_per_request * self._slots * self._size.epochs
        if (seen := self._target.count()) != rows:
            raise AssertionError(f"{rows} rows were published to {self._target.name}, and readers see {seen}")
        return rows / took

    @property
    def _rows_per_request(self) -> int:
        return max(1, self._size.rows_per_epoch // self._slots)

    @contextmanager
    def _staged(self) -> Iterator[tuple[Sink, Shelf, list[Committable]]]:
        """Output of every slot and epoch, in the order in which it may be published."""
        sink, lineage = self._target.sink(), Lineage(uuid.uuid4().hex)
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            shelf, requests = Shelf(Path(folder)), []
            for number in range(1, self._size.epochs + 1):
                for slot in range(self._slots):
                    epoch = EpochId(Term(1), number)
                    context = WriterContext(
                        lineage=lineage,
                        sink=UID,
                        epoch=epoch,
                        slot=Slot(slot),
                        attempt=AttemptId(number),
                        schema=self._target.schema,
                        staging=shelf,
                    )
                    writer = sink.create_writer(context)
                    writer.write(_rows(self._target.schema, self._rows_per_request, number * self._slots + slot))
                    payload = writer.prepare_commit()
                    assert payload is not None
                    requests.append(
                        Committable(lineage=lineage, sink=UID, epoch=epoch, slot=Slot(slot), payload=payload)
                    )
            yield sink, shelf, requests


def _rows(schema: Schema, count: int, seed: int) -> pa.RecordBatch:
    import pyarrow as pa

    first = seed * count
    numbers = range(first, first + count)
    columns = {
        "bigint": lambda: pa.array(numbers, pa.int64()),
        "string": lambda: pa.array([f"value-{n:09d} of a row with some text" for n in numbers], pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[column.type.ddl()]() for column in schema], schema=schema.to_arrow())


def _committer(sink: Sink, schema: Schema, shelf: Shelf) -> Committer:
    return sink.create_committer(CommitterContext(schema, shelf.read))


# In a worker: one committer, from `_open_in_worker` to `_close_in_worker`.
_open: list[Committer] = []


def _open_in_worker(sink: Sink, schema: Schema, shelf: Shelf) -> None:
    _open.append(_committer(sink, schema, shelf))


def _commit_in_worker(requests: Sequence[Committable]) -> None:
    _open[-1].commit(requests)


def _close_in_worker() -> None:
    if (close := getattr(_open.pop(), "close", None)) is not None:
        close()


# -- targets ------------------------------------------------------------------------------------------------------------


class _KafkaTarget:
    name, schema, in_tasks = "kafka", Schema.parse("key string, value string"), True

    def __init__(self, servers: Servers) -> None:
        self._broker = servers.broker
        self.topic = ""

    def sink(self) -> Sink:
        from tidegate.connectors.kafka import KafkaSink

        self.topic = self._broker.topic(4)
        return KafkaSink(self._broker.bootstrap_servers, self.topic)

    def count(self) -> int:
        return count_messages(self._broker.bootstrap_servers, self.topic)


class _PostgresTarget:
    name, schema, in_tasks = "postgres", Schema.parse("k bigint, v string"), True

    def __init__(self, servers: Servers) -> None:
        self._database = servers.database
        self.table = ""

    def sink(self) -> Sink:
        from tidegate.connectors.postgres import PostgresSink

        self.table = f"t{uuid.uuid4().hex[:12]}"
        ask(self._database.conninfo, f"CREATE TABLE {self.table} (k bigint, v text)")
        return PostgresSink(self._database.conninfo, self.table)

    def count(self) -> int:
        return int(ask(self._database.conninfo, f"SELECT count(*) FROM {self.table}")[0][0])


class _FilesTarget:
    name, schema, in_tasks = "files", Schema.parse("k bigint, v string"), True

    def __init__(self, servers: Servers) -> None:
        self._address = servers.s3
        self.prefix = ""

    def sink(self) -> Sink:
        from tidegate.connectors.files import FileSink

        self.prefix = f"files-{uuid.uuid4().hex[:12]}"
        return FileSink(f"s3://{self._address.bucket}/{self.prefix}", options=self._address.options())

    def count(self) -> int:
        from obstore.store import S3Store

        store = S3Store(
            self._address.bucket,
            config=self._address.options(),  # type: ignore[arg-type]
            client_options={"allow_http": True},
        )
        names = [found["path"] for page in store.list(self.prefix) for found in page]
        return sum(bytes(store.get(name).bytes()).count(b"\n") for name in names if "/." not in name)


class _DeltaTarget:
    name, schema, in_tasks = "delta", Schema.parse("k bigint, v string"), False

    def __init__(self, servers: Servers) -> None:
        address = servers.s3
        self._bucket, self.uri = address.bucket, ""
        options = {f"AWS_{name.upper()}": value for name, value in address.options().items()}
        self._options = options | {"AWS_ENDPOINT_URL": options.pop("AWS_ENDPOINT"), "AWS_ALLOW_HTTP": "true"}

    def sink(self) -> Sink:
        from tidegate.connectors.lakehouse.delta import DeltaSink

        self.uri = f"s3://{self._bucket}/delta-{uuid.uuid4().hex[:12]}"
        return DeltaSink(self.uri, create=True, storage_options=self._options)

    def count(self) -> int:
        import pyarrow as pa
        from deltalake import DeltaTable

        actions = DeltaTable(self.uri, storage_options=self._options).get_add_actions(flatten=True)
        return int(sum(pa.table(actions)["num_records"].to_pylist()))


_TARGETS: dict[str, Callable[[Servers], Target]] = {
    "kafka": _KafkaTarget,
    "postgres": _PostgresTarget,
    "files": _FilesTarget,
    "delta": _DeltaTarget,
}
_JOB_TARGETS = {"job-kafka": "kafka", "job-postgres": "postgres"}


# -- a job ----------------------------------------------------------------------------------------------------------------


def _measure_job(part: str, servers: Servers, size: Size, figures: dict[str, Figure], ratios: dict[str, Any]) -> None:
    """One run of a job whose target goes away and comes back. Only what users have is used."""
    # Late, for a quick start: only a job needs a cluster.
    from benchmarks.release_job import Away, released

    found: Away = released(_JOB_TARGETS[part], servers, size)
    figures |= {
        f"{part}: published": Figure("rows/s", (found.rows / found.published_s,)),
        f"{part}: until the target is tried again": Figure("s", (found.retry_s,)),
        f"{part}: checkpoints, normal": Figure("per minute", (found.normal_per_minute,)),
        f"{part}: checkpoints, target away": Figure("per minute", (found.away_per_minute,)),
    }
    old = f"{_JOB_TARGETS[part]}, 8 slots: {OLD}"
    if old in figures and size.job_slots == 8:
        value = found.rows / found.published_s / figures[old].median
        ratios[f"{part}: published / {OLD}"] = harness.bounded(value, at_least=WANTED)
    value = found.away_per_minute / found.normal_per_minute
    ratios[f"{part}: checkpoints, target away / normal"] = harness.bounded(value, at_least=CHECKPOINTS_WANTED)
    harness.say(f"{part}: {json.dumps(found.as_json())}")
