"""Time to live of state, with Flink's names: when entries expire, whether expired ones are visible, and by which clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from tidegate.core.durations import Duration, argument_ms, show_ms
from tidegate.core.errors import GraphError


class UpdateType(StrEnum):
    """Which accesses renew an entry."""

    Disabled = "Disabled"
    OnCreateAndWrite = "OnCreateAndWrite"
    OnReadAndWrite = "OnReadAndWrite"


class StateVisibility(StrEnum):
    """Whether an expired entry that has not been removed can be read. If so, only once: reading removes it."""

    NeverReturnExpired = "NeverReturnExpired"
    ReturnExpiredIfNotCleanedUp = "ReturnExpiredIfNotCleanedUp"


class TtlTimeCharacteristic(StrEnum):
    """The clock: the processing time of the epoch, or the watermark (which Flink does not offer)."""

    ProcessingTime = "ProcessingTime"
    EventTime = "EventTime"


# Inside the class these names are attributes, as in Flink, rather than types.
_Update = UpdateType
_Visibility = StateVisibility
_Time = TtlTimeCharacteristic


@dataclass(frozen=True, slots=True, init=False)
class StateTtlConfig:
    """How long entries of a state live: `MapState(str, int, ttl=StateTtlConfig("1 h"))`, or just `ttl="1 h"`.

    A value, an entry of a map and an element of a list expire individually. The config is not part of a snapshot: it
    can be added, removed or changed at any restart. The lifetime of entries written before it was added starts when
    they are first accessed. Expired entries are removed when read, left out of full snapshots, and searched for at the end
    of every epoch.

    Args:
        ttl: How long an entry lives: `"1 h"`, a timedelta, or milliseconds.
        update_type: Which accesses renew an entry: `OnCreateAndWrite`, `OnReadAndWrite`, or `Disabled` for state that never
            expires.
        state_visibility: Whether an expired entry that has not been removed can be read: `NeverReturnExpired` or
            `ReturnExpiredIfNotCleanedUp`.
        time_characteristic: The clock: `ProcessingTime`, or `EventTime` for the watermark.
        cleanup_entries: The least number of entries that each task searches at the end of an epoch; it searches twice as
            many as were written, if that is more. 0 disables the search.

    Examples:
        >>> str(tg.StateTtlConfig("1 h", update_type="OnReadAndWrite"))
        '1 h, renewed by reads'
    """

    UpdateType: ClassVar[type[_Update]] = UpdateType
    StateVisibility: ClassVar[type[_Visibility]] = StateVisibility
    TtlTimeCharacteristic: ClassVar[type[_Time]] = TtlTimeCharacteristic

    ttl_ms: int
    update_type: _Update
    state_visibility: _Visibility
    time_characteristic: _Time
    cleanup_entries: int

    def __init__(
        self,
        ttl: Duration,
        update_type: _Update | str = UpdateType.OnCreateAndWrite,
        state_visibility: _Visibility | str = StateVisibility.NeverReturnExpired,
        time_characteristic: _Time | str = TtlTimeCharacteristic.ProcessingTime,
        cleanup_entries: int = 1000,
    ) -> None:
        ttl_ms = argument_ms("ttl", ttl)
        try:
            chosen = (
                UpdateType(update_type),
                StateVisibility(state_visibility),
                TtlTimeCharacteristic(time_characteristic),
            )
        except ValueError as error:
            raise GraphError(f"The time to live of a state cannot be read: {error}.") from None
        if ttl_ms <= 0 or cleanup_entries < 0:
            raise GraphError(
                f"A time to live of {ttl!r} with cleanup_entries={cleanup_entries} is invalid. The time must be more than 0, "
                "for example '1 h'; cleanup_entries must be 0 or more. Leave ttl out for state that never expires."
            )
        # A frozen dataclass with its own `__init__`, which takes more forms than it keeps, has no other way to set its fields.
        for name, value in zip(self.__slots__, (ttl_ms, *chosen, cleanup_entries)):
            object.__setattr__(self, name, value)

    @classmethod
    def new_builder(cls, ttl: Duration) -> StateTtlConfigBuilder:
        """Start a config as in Flink: `StateTtlConfig.new_builder(timedelta(hours=1)).update_ttl_on_read_and_write().build()`.

        Args:
            ttl: How long an entry lives.
        """
        return StateTtlConfigBuilder(ttl)

    @classmethod
    def of(cls, ttl: StateTtlConfig | Duration | None) -> StateTtlConfig | None:
        """Convert the `ttl` of a declaration to a config. None if entries never expire, including `UpdateType.Disabled`."""
        if ttl is None:
            return None
        config = ttl if isinstance(ttl, StateTtlConfig) else cls(ttl)
        return None if config.update_type is UpdateType.Disabled else config

    def __str__(self) -> str:
        event = " of event time" if self.time_characteristic is TtlTimeCharacteristic.EventTime else ""
        reads = ", renewed by reads" if self.update_type is UpdateType.OnReadAndWrite else ""
        return f"{show_ms(self.ttl_ms)}{event}{reads}"


class StateTtlConfigBuilder:
    """Flink's way to make a `StateTtlConfig`."""

    def __init__(self, ttl: Duration) -> None:
        self._ttl = ttl
        self._update_type = UpdateType.OnCreateAndWrite
        self._visibility = StateVisibility.NeverReturnExpired
        self._time = TtlTimeCharacteristic.ProcessingTime
        self._others: dict[str, int] = {}

    def set_update_type(self, update_type: UpdateType) -> Self:
        self._update_type = update_type
        return self

    def update_ttl_on_create_and_write(self) -> Self:
        return self.set_update_type(UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> Self:
        return self.set_update_type(UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateVisibility) -> Self:
        self._visibility = state_visibility
        return self

    def never_return_expired(self) -> Self:
        return self.set_state_visibility(StateVisibility.NeverReturnExpired)

    def return_expired_if_not_cleaned_up(self) -> Self:
        return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

    def set_ttl_time_characteristic(self, ttl_time_characteristic: TtlTimeCharacteristic) -> Self:
        self._time = ttl_time_characteristic
        return self

    def use_processing_time(self) -> Self:
        return self.set_ttl_time_characteristic(TtlTimeCharacteristic.ProcessingTime)

    def disable_cleanup_in_background(self) -> Self:
        self._others["cleanup_entries"] = 0
        return self

    def cleanup_full_snapshot(self) -> Self:
        """Full snapshots never contain expired entries."""
        return self

    def cleanup_incrementally(self, cleanup_size: int, run_cleanup_for_every_record: bool = False) -> Self:
        """Expired entries are searched for at the end of every epoch, whatever is given here."""
        return self

    def cleanup_in_rocksdb_compact_filter(self, query_time_after_num_entries: int, *periodic: object) -> Self:
        """Expired entries are searched for at the end of every epoch, whatever is given here."""
        return self

    def build(self) -> StateTtlConfig:
        return StateTtlConfig(self._ttl, self._update_type, self._visibility, self._time, **self._others)
