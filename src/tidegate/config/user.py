"""`tg.Checkpointing`: a job's checkpoint settings in code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from tidegate.config.declared import checkpointing as c
from tidegate.config.declared import recovery, state, unaligned
from tidegate.config.errors import OptionError
from tidegate.config.option import Option, as_text
from tidegate.config.reading import read_options
from tidegate.core.durations import Duration, duration_ms
from tidegate.core.nearest import nearest
from tidegate.core.redaction import redacted


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """How a job is checkpointed; what is left out has its default.

    Each field stands for the option of that name below `execution.checkpointing.`, the last three for those below
    `execution.state-recovery.`. Durations are texts such as `"10 s"`, timedeltas, or milliseconds.

    Examples:
        >>> tg.Checkpointing(dir="s3://bucket/checkpoints", interval="10 s", mode="EXACTLY_ONCE")
        Checkpointing(dir='s3://bucket/checkpoints', interval='10 s', mode='EXACTLY_ONCE')
    """

    dir: str | None = None
    """The directory of checkpoints: one that the driver and all executors reach, or a URL such as `s3://bucket/path`."""
    interval: Duration | None = None
    """The time from the start of one checkpoint to the next."""
    mode: str | None = None
    """`EXACTLY_ONCE` commits output with its checkpoint, `AT_LEAST_ONCE` at the end of each epoch. State is exact in both."""
    timeout: Duration | None = None
    """A checkpoint that takes longer is aborted."""
    min_pause: Duration | None = None
    """The least time from the end of one checkpoint to the start of the next."""
    max_concurrent: int | None = None
    """How many checkpoints may be under way at a time."""
    tolerable_failures: int | None = None
    """How many checkpoints in a row may fail before the job does."""
    retention: str | None = None
    """What happens to checkpoints when the job is cancelled: `RETAIN_ON_CANCELLATION` or `DELETE_ON_CANCELLATION`."""
    num_retained: int | None = None
    """How many completed checkpoints are kept."""
    savepoint_dir: str | None = None
    """The directory of savepoints for which no target is given."""
    incremental: bool | None = None
    """Whether a checkpoint uploads only files that the last completed one does not have."""
    compression: bool | None = None
    """Whether full snapshots of the heap backend are compressed."""
    inline_threshold: str | int | None = None
    """Smaller files of state are stored in the metadata of the checkpoint."""
    unaligned: bool | None = None
    """End an epoch when a checkpoint is due, and keep unread rows as channel state."""
    aligned_timeout: Duration | None = None
    """With `unaligned`: how long a checkpoint may stay aligned after it is due."""
    backend: str | None = None
    """The state backend: `hashmap`, `rocksdb`, or a class of your own as `module.Class`."""
    map_uids: Mapping[str, str] | None = None
    """Operators and sources with another uid than in the snapshot that the job starts from: old to new."""
    renamed_fields: Mapping[tuple[str, str], Mapping[str, str]] | None = None
    """For (uid, state): fields inside the type of the state with another name than in that snapshot, old to new."""
    drop_state: Sequence[tuple[str, str]] | None = None
    """(uid, state) of states in that snapshot that the job does without; (uid, `state:field`) for one field of a state."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Any other option by its key, also those of recovery, restarts and state. A field wins over its key."""

    def __new__(cls, **given: Any) -> Self:
        known = [each.name for each in fields(cls)]
        problems = tuple(_no_such_field(name, known) for name in given if name not in known)
        if problems:
            raise OptionError(problems)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        problems = []
        for name, option in FIELDS.items():
            value = getattr(self, name)
            if value is not None and not (option is state.BACKEND and is_own_backend(value)):
                try:
                    option.parse(_text(name, option, value))
                except ValueError as error:
                    problems.append(f"Checkpointing({name}={redacted(repr(value))}): {redacted(str(error))}.")
        if problems:
            raise OptionError(tuple(problems))

        # Read once for its errors, here rather than when the job starts: the traceback then shows the line that is wrong.
        keys = (state.BACKEND.key, *state.BACKEND.old_keys)
        read_options(
            {
                key: value
                for key, value in self.options.items()
                # Those of the store are read when it is opened.
                if not key.startswith(("s3.", "hdfs.")) and not (key in keys and is_own_backend(value))
            }
        )

    def __repr__(self) -> str:
        """What is set. Of `options` only the keys: their values may be secrets."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "options"}
        shown = [f"{name}={redacted(repr(value))}" for name, value in given.items() if value is not None]
        shown += [f"options={{{', '.join(f'{key!r}: …' for key in self.options)}}}"] if self.options else []
        return f"Checkpointing({', '.join(shown)})"

    def to_options(self) -> dict[str, str]:
        """The same as text under keys. A field wins over its key in `options`."""
        given = {key: as_text(value) for key, value in self.options.items() if value is not None}
        for name, option in FIELDS.items():
            value = getattr(self, name)
            if value is not None:
                for old in option.old_keys:
                    given.pop(old, None)
                given[option.key] = _text(name, option, value)
        return given


def is_own_backend(value: object) -> bool:
    """Whether it names a module and a class: a state backend of the user's own, which is looked for when the job starts."""
    return "." in str(value)


def _no_such_field(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    meant = f"Did you mean {near}?" if near else f"It takes {', '.join(known)}."
    return f"Checkpointing has no argument {name!r}. {meant}"


def _text(name: str, option: Option[Any], value: object) -> str:
    if name in _DURATIONS:
        return f"{duration_ms(value, _least_ms(option))} ms"  # type: ignore[arg-type]
    # As their own text: a list or a map in code has no spelling that all options share.
    return option.kind.show(value) if isinstance(value, Mapping | list | tuple) else as_text(value)


def _least_ms(option: Option[Any]) -> int:
    """Return the shortest duration that the option takes, to the next power of ten: what an error may suggest."""
    return next(ms for ms in _POWERS if option.check is None or option.check(ms) is None)


_POWERS = (1, 10, 100, 1000)

FIELDS: dict[str, Option[Any]] = {
    "dir": c.DIR,
    "interval": c.INTERVAL,
    "mode": c.MODE,
    "timeout": c.TIMEOUT,
    "min_pause": c.MIN_PAUSE,
    "max_concurrent": c.MAX_CONCURRENT,
    "tolerable_failures": c.TOLERABLE_FAILURES,
    "retention": c.RETENTION,
    "num_retained": c.NUM_RETAINED,
    "savepoint_dir": c.SAVEPOINT_DIR,
    "incremental": c.INCREMENTAL,
    "compression": c.COMPRESSION,
    "inline_threshold": c.INLINE_THRESHOLD,
    "unaligned": unaligned.UNALIGNED,
    "aligned_timeout": unaligned.ALIGNED_TIMEOUT,
    "backend": state.BACKEND,
    "map_uids": recovery.MAP_UIDS,
    "renamed_fields": recovery.RENAMED_FIELDS,
    "drop_state": recovery.DROP_STATE,
}
"""The option behind each field."""

_DURATIONS = {"interval", "timeout", "min_pause", "aligned_timeout"}
