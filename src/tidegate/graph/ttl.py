"""Time to live of state, with Flink's names: when entries die, who may still see them, and which clock says so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tidegate.core.durations import Duration, duration_ms, show_ms
from tidegate.core.errors import GraphError


class UpdateType(StrEnum):
    """What gives an entry a new life."""

    Disabled = "Disabled"
    OnCreateAndWrite = "OnCreateAndWrite"
    OnReadAndWrite = "OnReadAndWrite"


class StateVisibility(StrEnum):
    """Whether an entry that has died, but is still there, can be read. If so, once: reading removes it."""

    NeverReturnExpired = "NeverReturnExpired"
    ReturnExpiredIfNotCleanedUp = "ReturnExpiredIfNotCleanedUp"


class TtlTimeCharacteristic(StrEnum):
    """The clock: that of the epoch, or the watermark (which Flink does not offer)."""

    ProcessingTime = "ProcessingTime"
    EventTime = "EventTime"


# Inside the class these names are attributes, as in Flink, and no longer types.
_Update = UpdateType
_Visibility = StateVisibility
_Time = TtlTimeCharacteristic


@dataclass(frozen=True, slots=True, init=False)
class StateTtlConfig:
    """How long entries of a state live: `MapState(str, int, ttl=StateTtlConfig("1 h"))`, or just `ttl="1 h"`.

    A value, an entry of a map and an element of a list each have a life of their own. Not part of a snapshot: it may be
    given, taken away or changed at any restart. Entries written before it was given begin their life when they are
    first met.

    Dead entries are removed when read, left out of full snapshots, and looked for at the end of every epoch: at least
    `cleanup_entries` entries of the state are looked at in each task, and twice as many as were written; 0 looks for
    none.
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
        try:
            ttl_ms = duration_ms(ttl)
            chosen = (
                UpdateType(update_type),
                StateVisibility(state_visibility),
                TtlTimeCharacteristic(time_characteristic),
            )
        except ValueError as error:
            raise GraphError(f"The time to live of a state cannot be read: {error}.") from None
        if ttl_ms <= 0 or cleanup_entries < 0:
            raise GraphError(
                f"A time to live of {ttl!r} with cleanup_entries={cleanup_entries} cannot be. The time is more than 0, "
                "for example '1 h'; cleanup_entries is 0 or more. Leave ttl out for state that lives for ever."
            )
        for name, value in zip(self.__slots__, (ttl_ms, *chosen, cleanup_entries)):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, ttl: StateTtlConfig | Duration | None) -> StateTtlConfig | None:
        """What a declaration was given, as a config. None where entries live for ever, `UpdateType.Disabled` included."""
        if ttl is None:
            return None
        if isinstance(ttl, int) and ttl > 0:
            raise GraphError(f"ttl={ttl!r} has no unit. Write '{ttl} s', '{ttl} ms', a timedelta, or a StateTtlConfig.")
        config = ttl if isinstance(ttl, StateTtlConfig) else cls(ttl)
        return None if config.update_type is UpdateType.Disabled else config

    def __str__(self) -> str:
        event = " of event time" if self.time_characteristic is TtlTimeCharacteristic.EventTime else ""
        reads = ", renewed by reads" if self.update_type is UpdateType.OnReadAndWrite else ""
        return f"{show_ms(self.ttl_ms)}{event}{reads}"
