"""Where state is kept; the keys of Flink's changelog, which is not written yet."""

from __future__ import annotations

from tidegate.config.choices import BackendType, ChangelogStorage
from tidegate.config.option import BOOL, DURATION, INT, SIZE, TEXT, Effect, Option, at_least, enum

TITLE = "State"
_C = "state.changelog."
_OLD = "state.backend.changelog."
_D = _C + "dstl.dfs."
_LATER = "The changelog is not written yet: a lost host rewinds to the last checkpoint."
_TRACK = (
    "State accesses are not timed or measured yet; `tidegate checkpoints show` and REST tell the bytes of each task."
)

BACKEND: Option[BackendType] = Option(
    "state.backend.type",
    enum(
        BackendType,
        aliases={"jobmanager": BackendType.HASHMAP},
        hints={
            "forst": "ForSt keeps state remote; rocksdb is the backend for state beyond memory",
            "filesystem": "that named a checkpoint storage too; say hashmap, and set execution.checkpointing.dir",
        },
    ),
    BackendType.HASHMAP,
    "`hashmap` keeps state in the memory of Python workers, `rocksdb` on local disk.",
    old_keys=("state.backend",),
)
CHANGELOG: Option[bool] = Option(
    _C + "enabled",
    BOOL,
    False,
    "Make each epoch's changes durable at its end. Needs one concurrent checkpoint, and CLAIM for a restore.",
    old_keys=(_OLD + "enabled",),
    effect=Effect.LATER,
    reason=_LATER,
)
CHANGELOG_STORAGE: Option[ChangelogStorage] = Option(
    _C + "storage",
    enum(ChangelogStorage),
    ChangelogStorage.MEMORY,
    "`filesystem`, or `memory` for tests.",
    old_keys=(_OLD + "storage",),
    effect=Effect.LATER,
    reason=_LATER,
)
MATERIALIZE: Option[bool] = Option(
    _C + "periodic-materialize.enabled",
    BOOL,
    True,
    "Upload whole versions now and then, so that the log stays short.",
    effect=Effect.LATER,
    reason=_LATER,
)
MATERIALIZE_INTERVAL: Option[int] = Option(
    _C + "periodic-materialize.interval",
    DURATION,
    600_000,
    "How often.",
    old_keys=(_OLD + "periodic-materialize.interval",),
    check=at_least(1, "1 ms"),
    effect=Effect.LATER,
    reason=_LATER,
)
CHANGELOG_MAX_FAILURES: Option[int] = Option(
    _C + "max-failures-allowed",
    INT,
    3,
    "Materializations that may fail in a row.",
    old_keys=(_OLD + "max-failures-allowed",),
    check=at_least(0),
    effect=Effect.LATER,
    reason=_LATER,
)
DSTL_BASE: Option[str | None] = Option(
    _D + "base-path",
    TEXT,
    None,
    "Root of log files.",
    old_keys=("dstl.dfs.base-path",),
    effect=Effect.NONE,
    reason="No changelog is written.",
)


def _dstl(name: str, kind: object, default: object, text: str) -> Option[object]:
    return Option(
        _D + name,
        kind,  # type: ignore[arg-type]
        default,
        text,
        old_keys=("dstl.dfs." + name,),
        check=at_least(0) if isinstance(default, int) and not isinstance(default, bool) else None,
        effect=Effect.LATER,
        reason=_LATER,
    )


DSTL_DELAY = _dstl("batch.persist-delay", DURATION, 10, "Wait for more changes before an upload.")
DSTL_BATCH = _dstl("batch.persist-size-threshold", SIZE, 10 << 20, "Upload at once from this size on.")
DSTL_PREEMPTIVE = _dstl(
    "preemptive-persist-threshold", SIZE, 5 << 20, "Upload before a checkpoint asks, from this size."
)
DSTL_THREADS = _dstl("upload.num-threads", INT, 5, "Threads that upload.")
DSTL_ATTEMPTS = _dstl("upload.max-attempts", INT, 3, "Attempts of an upload.")
DSTL_TIMEOUT = _dstl("upload.timeout", DURATION, 1_000, "Time for one attempt.")
DSTL_POLICY = _dstl("upload.retry-policy", TEXT, "fixed", "`fixed` or `none`.")
DSTL_RETRY_DELAY = _dstl("upload.next-attempt-delay", DURATION, 500, "Wait before the next attempt.")
DSTL_IN_FLIGHT = _dstl("upload.max-in-flight", SIZE, 100 << 20, "Bytes under way at once.")
DSTL_BUFFER = _dstl("upload.buffer-size", SIZE, 1 << 20, "Buffer of an upload.")
DSTL_COMPRESSION = _dstl("compression.enabled", BOOL, False, "Compress the log.")
DSTL_DISCARD = _dstl("discard.num-threads", INT, 1, "Threads that delete.")
DSTL_CACHE = _dstl("download.local-cache.idle-timeout-ms", DURATION, 600_000, "Keep downloaded segments this long.")


def _track(what: str, name: str, kind: object, default: object, text: str) -> Option[object]:
    check = at_least(1) if kind is INT else None
    return Option(f"state.{what}-track.{name}", kind, default, text, check=check, effect=Effect.LATER, reason=_TRACK)  # type: ignore[arg-type]


LATENCY = _track("latency", "keyed-state-enabled", BOOL, False, "Measure how long accesses of keyed state take.")
LATENCY_SAMPLE = _track("latency", "sample-interval", INT, 100, "Measure every so many accesses.")
LATENCY_HISTORY = _track("latency", "history-size", INT, 128, "Measurements to keep.")
LATENCY_NAMES = _track("latency", "state-name-as-variable", BOOL, True, "The name of the state as a label.")
SIZE_TRACK = _track("size", "keyed-state-enabled", BOOL, False, "Measure the sizes of keys and values.")
SIZE_SAMPLE = _track("size", "sample-interval", INT, 100, "Measure every so many accesses.")
SIZE_HISTORY = _track("size", "history-size", INT, 128, "Measurements to keep.")
SIZE_NAMES = _track("size", "state-name-as-variable", BOOL, True, "The name of the state as a label.")
