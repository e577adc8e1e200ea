"""The capacity model: what a job of given rates, keys and state needs, computed from the constants. Pure arithmetic.

It is a model for choosing an order of magnitude. Its constants were measured on two cores; `warnings` names every figure that
lies beyond what was measured, and `impossible` what cannot work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from tidegate.checkpoint.coordination.timing import STORED_ACKS_MS
from tidegate.control.capacity.constants import GB, MB, Constants
from tidegate.core.storage_cost import NAMES_PER_REQUEST, StorageCalls, calls_cost, storage_cost_per_day

MOST_KEY_GROUPS = 32_768
FEWEST_KEY_GROUPS = 128
_MONTH_S = 30 * 86_400
_FILES_IN_METADATA = 60
"""A longer list of files is an object of its own."""
# The default of Flink's `execution.checkpointing.data-inline-threshold`: a smaller file is in the metadata.
_INLINE_BYTES = 20 * 1024
_STAGED_CHUNK_BYTES = 16 << 20
"""A task stores the rows for one sink and epoch in objects of this size."""
_HOT_KEYS = 0.2
_HOT_ROWS = 0.8

# The largest sizes of the benchmarks that `constants` names. Beyond them, figures are extrapolated.
MEASURED_TASKS = 10_000
MEASURED_SLOTS = 200
MEASURED_ROWS_PER_S = 520_000
MEASURED_KEYS_PER_SLOT = 10_000_000
MEASURED_STATE_PER_SLOT = 1.2e9
MEASURED_OBJECTS = 10_000_000


class FunctionKind(StrEnum):
    ROW = "row"
    BATCH = "batch"
    AGGREGATE = "aggregate"


class KeyDistribution(StrEnum):
    UNIFORM = "uniform"
    SKEWED = "80-20"
    """80 % of the rows have 20 % of the keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a job is to do, and where. Sizes are bytes, times are seconds."""

    rows_per_s: float
    keys: float
    state_bytes_per_key: float
    row_bytes: float = 200
    distribution: KeyDistribution = KeyDistribution.UNIFORM
    changed_keys_per_s: float | None = None
    """Instead of the distribution: so many different keys change every second, up to all of them."""
    function: FunctionKind = FunctionKind.ROW
    levels: int = 1
    epoch_s: float = 10
    interval_s: float = 60
    changelog: bool = False
    materialize_s: float = 600
    retained: int = 1
    cores_per_executor: int = 8
    uplink_bytes_per_s: float = 125e6
    """Of one executor, in each direction."""
    timeout_s: float = 600
    parallelism: int | None = None
    priced: bool = True
    """Whether storage is an object store."""
    staged_sinks: int = 1
    """Sinks whose rows wait in the job's storage: Kafka, PostgreSQL, write-ahead functions."""
    output_rows_per_s: float | None = None
    """Rows for each of these sinks; None: as many as are read."""

    @property
    def staged_bytes_per_s(self) -> float:
        """Of all these sinks together."""
        rows = self.rows_per_s if self.output_rows_per_s is None else self.output_rows_per_s
        return rows * self.row_bytes * self.staged_sinks

    def touched(self, seconds: float) -> float:
        """Return how many different keys have rows in an interval."""
        if self.changed_keys_per_s is not None:
            return min(self.keys, self.changed_keys_per_s * seconds)
        rows = self.rows_per_s * seconds
        if self.distribution is KeyDistribution.UNIFORM:
            return _distinct(self.keys, rows)
        hot = self.keys * _HOT_KEYS
        cold = self.keys * (1 - _HOT_KEYS)
        return _distinct(hot, rows * _HOT_ROWS) + _distinct(cold, rows * (1 - _HOT_ROWS))

    @property
    def state_bytes(self) -> float:
        return self.keys * self.state_bytes_per_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the job needs. Sizes are bytes, times are seconds; fields of one executor say so."""

    cores: float
    executors: int
    parallelism: int
    tasks: int
    max_parallelism: int
    state_bytes: float
    state_bytes_per_slot: float
    keys_per_slot: float
    input_bytes_per_s: float
    memory_per_executor: float
    disk_per_executor: float
    driver_memory: float
    driver_cpu_s: float
    metadata_bytes: float
    changed_bytes: float
    """In one interval."""
    upload_bytes: float
    """Of one checkpoint."""
    background_bytes_per_s: float
    """Of whole versions next to a changelog."""
    upload_bytes_per_s: float
    """Of all executors, on average."""
    upload_bytes_per_s_per_executor: float
    checkpoint_s: float
    first_checkpoint_s: float
    requests: StorageCalls
    """From one checkpoint to the next, with those of staged output."""
    staged_bytes_per_s: float
    """Output that waits for its checkpoint."""
    staged_objects: float
    """Objects of it, from one checkpoint to the next."""
    inline_share: float
    """The part of staged output that travels with acknowledgements and in metadata instead of storage."""
    requests_per_month: float
    request_cost_per_month: float
    storage_cost_per_month: float
    stored_bytes: float
    restore_host_s: float
    restore_all_s: float
    catch_up_s: float
    """After losing all: until the backlog is worked off."""
    latency_s: float
    """Of exactly-once output, in the middle."""
    longest_latency_s: float
    warnings: tuple[str, ...]
    """Figures beyond what was measured."""
    impossible: tuple[str, ...]
    """What cannot work."""


@dataclass(frozen=True, slots=True)
class _Size:
    """How the job is divided."""

    cores: float
    parallelism: int
    executors: int
    impossible: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Staged:
    """Output that waits for its checkpoint."""

    objects: float
    inline_share: float
    inline_bytes: float
    """In the metadata of a checkpoint."""


@dataclass(frozen=True, slots=True)
class _Uploads:
    """What checkpoints store."""

    changed_bytes: float
    checkpoint_bytes: float
    background_bytes_per_s: float
    applied_bytes: float
    """Changes that a restore applies."""

    def per_second(self, interval_s: float) -> float:
        return self.checkpoint_bytes / interval_s + self.background_bytes_per_s


def capacity(work: Workload, constants: Constants | None = None) -> Capacity:
    """Compute what a job needs."""
    c = constants or Constants()
    size = _size(work, c)
    uploads = _uploads(work, c)
    slots = size.parallelism
    executors = size.executors
    tasks = slots * work.levels
    per_slot = work.state_bytes / slots
    per_executor = work.state_bytes / executors
    staged = _staged(work, c, slots)
    requests = _requests(work, c, slots, uploads, staged)

    # A checkpoint: executors upload side by side, as fast as the slower of line and processors allows; a slot stores its
    # objects one after the other; then the driver checks all acknowledgements and writes one log entry.
    line = min(work.uplink_bytes_per_s, c.upload_speed * MB * work.cores_per_executor)
    writes_per_slot = _objects_per_slot(c, uploads.checkpoint_bytes / slots)
    driver_cpu_s = c.driver_cpu / 1e6 * tasks
    checkpoint_s = (
        uploads.checkpoint_bytes / executors / line
        + writes_per_slot * c.request_latency
        + driver_cpu_s
        + c.request_latency
    )
    objects = work.state_bytes / (c.part_size * MB)

    # A restore: executors load their share side by side, then each slot applies the changes since the last whole version.
    loading = min(work.uplink_bytes_per_s, c.restore_speed * MB * work.cores_per_executor)
    restore_s = per_executor / loading + uploads.applied_bytes / slots / (c.change_speed * MB)
    restore_all_s = c.restart + restore_s

    # Output: an epoch that collects rows for `epoch_s` is then processed with the part of the cores that is used.
    processing_s = max(c.shortest_epoch, work.epoch_s * c.utilization)
    after_s = processing_s + checkpoint_s + c.publication

    memory = c.executor_heap * GB + work.cores_per_executor * (
        (c.worker_memory + c.rocksdb_memory) * MB
        + work.touched(work.epoch_s) / slots * (c.changed_key_memory + work.state_bytes_per_key)
    )
    cost = calls_cost(requests, c.prices) if work.priced else 0.0
    stored = c.stored_factor * work.state_bytes + (work.retained - 1) * uploads.checkpoint_bytes
    result = Capacity(
        cores=size.cores,
        executors=executors,
        parallelism=slots,
        tasks=tasks,
        max_parallelism=_key_groups(slots, c),
        state_bytes=work.state_bytes,
        state_bytes_per_slot=per_slot,
        keys_per_slot=work.keys / slots,
        input_bytes_per_s=work.rows_per_s * work.row_bytes,
        memory_per_executor=memory,
        disk_per_executor=c.disk_factor * per_executor + uploads.applied_bytes / executors,
        driver_memory=c.driver_heap * GB
        + c.driver_memory * MB * max(1.0, tasks / MEASURED_TASKS)
        + c.first_checkpoint_memory * objects,
        driver_cpu_s=driver_cpu_s,
        metadata_bytes=c.metadata_size * tasks + staged.inline_bytes,
        changed_bytes=uploads.changed_bytes,
        upload_bytes=uploads.checkpoint_bytes,
        background_bytes_per_s=uploads.background_bytes_per_s,
        upload_bytes_per_s=uploads.per_second(work.interval_s),
        upload_bytes_per_s_per_executor=uploads.per_second(work.interval_s) / executors,
        checkpoint_s=checkpoint_s,
        first_checkpoint_s=per_executor / line + per_slot / (c.part_size * MB) * c.request_latency + driver_cpu_s,
        requests=requests,
        staged_bytes_per_s=work.staged_bytes_per_s,
        staged_objects=staged.objects,
        inline_share=staged.inline_share,
        requests_per_month=requests.total * _MONTH_S / work.interval_s,
        request_cost_per_month=cost * _MONTH_S / work.interval_s,
        storage_cost_per_month=30 * storage_cost_per_day(stored, c.prices) if work.priced else 0.0,
        stored_bytes=stored,
        restore_host_s=c.loss_detection + restore_s,
        restore_all_s=restore_all_s,
        # What arrived meanwhile, and what is repeated since the last checkpoint, is worked off by the cores that are free.
        catch_up_s=(restore_all_s + work.interval_s) * c.utilization / (1 - c.utilization),
        # A row arrives in the middle of an epoch and of an interval on average, and at worst at the beginning of both.
        latency_s=work.epoch_s / 2 + work.interval_s / 2 + after_s,
        longest_latency_s=work.epoch_s + work.interval_s + after_s,
        warnings=(),
        impossible=(),
    )
    return _judged(work, result, size.impossible)


def _distinct(keys: float, rows: float) -> float:
    """Return how many of `keys` equally likely keys occur in so many rows."""
    # No row has a given key with a probability of about exp(-rows / keys). `expm1` keeps the digits if rows are few.
    return 0.0 if keys <= 0 else -keys * math.expm1(-rows / keys)


def _size(work: Workload, c: Constants) -> _Size:
    """Divide the job: one slot for each core. A task costs time in every epoch, so that the cores needed depend on their own
    number."""
    rows_cpu = {
        FunctionKind.ROW: c.row_function_cpu,
        FunctionKind.BATCH: c.batch_function_cpu,
        FunctionKind.AGGREGATE: c.aggregate_cpu,
    }[work.function]
    per_row_s = (rows_cpu + (work.levels - 1) * c.further_level_cpu) / 1e6
    keys_per_s = work.touched(work.epoch_s) / work.epoch_s * work.levels

    # The rows may need fewer slots than the state does, which should not grow too large in one of them.
    by_state = math.ceil(work.state_bytes / (c.state_per_slot * GB))

    # What tasks cost whatever they process: a share of each core that is gone before the first row.
    overhead = work.levels * c.task_cpu / work.epoch_s
    usable = c.utilization - overhead
    impossible = tuple[str, ...]()
    slots = work.parallelism or max(1, by_state)
    for _ in range(8):  # The cost of a key depends on how many keys a task has; this converges quickly.
        busy = work.rows_per_s * per_row_s + keys_per_s * c.key_cpu / 1e6 * _growth(work.keys / slots, c)
        cores = busy / usable if usable > 0 else math.inf
        if work.parallelism is not None or not math.isfinite(cores):
            break
        slots = max(1, by_state, math.ceil(cores))
    if usable <= 0:
        cores = float(slots)
        impossible = (
            f"Epochs of {work.epoch_s:g} s are too short: {work.levels} tasks of {c.task_cpu:g} s in each slot take more than "
            f"{c.utilization:.0%} of a core. Make epochs longer than {work.levels * c.task_cpu / c.utilization:.2g} s.",
        )
    elif work.parallelism is not None and cores > work.parallelism:
        impossible = (f"{work.parallelism} slots are too few for the rows: about {math.ceil(cores)} are needed.",)
    executors = math.ceil(slots / work.cores_per_executor)
    if work.parallelism is None:
        # All cores of the last executor get a slot, also those that the rows do not need.
        slots = executors * work.cores_per_executor
    return _Size(cores, slots, executors, impossible)


def _growth(keys_per_slot: float, c: Constants) -> float:
    """Return how much more a key costs in large state: nothing up to 0.1 M keys in a task, and what was measured at 10 M."""
    # Two decades lie between the two measurements: in between, the cost is taken to grow with the logarithm.
    decades = math.log10(max(1.0, keys_per_slot / 1e5)) / 2
    return 1 + (c.large_state_factor - 1) * decades


def _uploads(work: Workload, c: Constants) -> _Uploads:
    changed = work.touched(work.interval_s) * work.state_bytes_per_key
    if not work.changelog:
        return _Uploads(changed, min(work.state_bytes, changed * c.incremental_upload), 0.0, 0.0)
    # With a changelog, every epoch stores its own changes: a key that changes in each is stored each time.
    per_epoch = work.touched(work.epoch_s) * work.state_bytes_per_key
    changes_per_s = per_epoch / work.epoch_s * c.changelog_upload
    since = work.touched(work.materialize_s) * work.state_bytes_per_key
    whole = min(c.whole_version_upload * work.state_bytes, c.incremental_upload * since)
    # At most the changes since the last whole version, right before the next one.
    applied = changes_per_s * work.materialize_s
    return _Uploads(changed, changes_per_s * work.interval_s, whole / work.materialize_s, applied)


def _staged(work: Workload, c: Constants, slots: int) -> _Staged:
    """Return how the rows of one interval wait: each task has some for each sink in every epoch."""
    epochs = work.interval_s / work.epoch_s
    parts = slots * work.staged_sinks * epochs
    bytes_per_task = work.staged_bytes_per_s * work.epoch_s / slots
    if not parts or not bytes_per_task:
        return _Staged(0.0, 1.0, 0.0)
    token = bytes_per_task * c.inline_growth + work.staged_sinks * c.staged_overhead
    fits = token <= c.inline_output * 1024
    # The rows of an interval wait, and those of the epochs until they are committed.
    waiting = token * slots * (epochs + 1)
    share = min(1.0, c.inline_output_total * (1 << 20) / waiting) if fits else 0.0
    chunks = max(1.0, bytes_per_task / work.staged_sinks / _STAGED_CHUNK_BYTES)
    return _Staged((1 - share) * parts * chunks, share, share * waiting * 4 / 3)


def _requests(work: Workload, c: Constants, slots: int, uploads: _Uploads, staged: _Staged) -> StorageCalls:
    """Of one checkpoint, with its share of what is stored in the background and of staged output, which is written once, read
    once and deleted."""
    part = c.part_size * MB
    stored = slots * _objects_per_slot(c, uploads.checkpoint_bytes / slots)
    stored += uploads.background_bytes_per_s * work.interval_s / part

    # A long list of files is an object of its task, and only written with new files.
    lists = slots if work.state_bytes / slots / (c.file_size * MB) > _FILES_IN_METADATA and stored else 0

    # Tasks of longer epochs store their acknowledgements instead of waiting for the next barrier.
    acks = slots * work.levels if 1000 * work.epoch_s > STORED_ACKS_MS else 0
    driver = c.driver_requests
    return StorageCalls(
        writes=math.ceil(stored + lists + acks + staged.objects + min(driver, 2)),
        lists=math.ceil(max(0.0, driver - 2) + 2 * math.ceil(acks / NAMES_PER_REQUEST)),
        reads=math.ceil(acks + staged.objects),
        deletes=math.ceil((stored + lists + acks + staged.objects) / NAMES_PER_REQUEST) + 1,
        written_bytes=math.ceil(
            (uploads.per_second(work.interval_s) + (1 - staged.inline_share) * work.staged_bytes_per_s)
            * work.interval_s
        ),
    )


def _objects_per_slot(c: Constants, size_bytes: float) -> float:
    """Return how many objects a task stores for a checkpoint. A small one is inside the metadata. With a changelog, the changes
    of several epochs are one object."""
    return 0.0 if size_bytes <= _INLINE_BYTES else max(1.0, size_bytes / (c.part_size * MB))


def _key_groups(slots: int, c: Constants) -> int:
    # A power of two, so that every doubling of the parallelism divides key groups evenly.
    groups = 1 << math.ceil(math.log2(max(1.0, slots * c.key_group_headroom)))
    return max(FEWEST_KEY_GROUPS, min(MOST_KEY_GROUPS, groups))


def _judged(work: Workload, result: Capacity, before: tuple[str, ...]) -> Capacity:
    return replace(result, warnings=_warnings(work, result), impossible=before + _impossible(work, result))


def _warnings(work: Workload, result: Capacity) -> tuple[str, ...]:
    objects = result.state_bytes / 8e6  # parts of about 8 MB

    # Costs need not grow in proportion beyond the sizes at which they were measured.
    checks = (
        (
            result.executors > 1,
            f"{result.executors} executors: all constants were measured on one machine with two cores",
        ),
        (
            work.rows_per_s > MEASURED_ROWS_PER_S,
            f"{work.rows_per_s:,.0f} rows/s: up to {MEASURED_ROWS_PER_S:,} were measured",
        ),
        (
            result.parallelism > MEASURED_SLOTS,
            f"{result.parallelism:,} slots: exchanges were measured with up to {MEASURED_SLOTS}",
        ),
        (
            result.tasks > MEASURED_TASKS,
            f"{result.tasks:,} tasks: the driver was measured with up to {MEASURED_TASKS:,}",
        ),
        (
            objects > MEASURED_OBJECTS,
            f"{objects:,.0f} objects: the driver was measured with up to {MEASURED_OBJECTS:,}",
        ),
        (
            result.keys_per_slot > MEASURED_KEYS_PER_SLOT,
            f"{result.keys_per_slot:,.0f} keys in a slot: up to {MEASURED_KEYS_PER_SLOT:,} were measured",
        ),
        (
            result.state_bytes_per_slot > MEASURED_STATE_PER_SLOT,
            f"{result.state_bytes_per_slot / GB:,.1f} GB of state in a slot: up to "
            f"{MEASURED_STATE_PER_SLOT / GB:g} were measured",
        ),
    )
    return tuple(text for applies, text in checks if applies)


def _impossible(work: Workload, result: Capacity) -> tuple[str, ...]:
    per_executor = result.upload_bytes_per_s_per_executor
    line = work.uplink_bytes_per_s
    checks = (
        (
            per_executor > line,
            f"Each executor would upload {per_executor / MB:,.0f} MB/s, and its line carries {line / MB:,.0f}. Use a longer "
            "interval, a changelog, more executors or a faster line.",
        ),
        (
            result.checkpoint_s > work.interval_s,
            f"A checkpoint takes {result.checkpoint_s:,.0f} s, longer than the interval of {work.interval_s:g} s. Use a longer "
            "interval, a changelog, more executors or a faster line.",
        ),
        (
            result.first_checkpoint_s > work.timeout_s,
            f"The first checkpoint of a full state takes {result.first_checkpoint_s:,.0f} s and would expire after "
            f"{work.timeout_s:g}. Raise execution.checkpointing.timeout, or use more executors.",
        ),
        (
            result.parallelism > MOST_KEY_GROUPS,
            f"{result.parallelism:,} slots exceed the {MOST_KEY_GROUPS:,} key groups that a job can have. Split the job.",
        ),
    )
    return tuple(text for applies, text in checks if applies)
