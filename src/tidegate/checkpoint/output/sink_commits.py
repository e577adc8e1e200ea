"""How the commits of each sink went, for people and metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.core.ids import EpochId, Uid


@dataclass(frozen=True, slots=True)
class SinkCommit:
    """The last commit of a sink that its target accepted."""

    duration_ms: int
    parts: int
    """What it committed: one part for each task and epoch."""
    ended_ms: int
    """Wall time."""


class SinkCommits:
    """One thread writes, any thread reads."""

    def __init__(self) -> None:
        self.last: dict[Uid, SinkCommit] = {}
        self.up_to: dict[Uid, EpochId] = {}
        """The epoch up to which all output of this run is committed."""

    def committed(self, sink: Uid, duration_ms: int, parts: int, now_ms: int) -> None:
        self.last[sink] = SinkCommit(duration_ms, parts, now_ms)

    def committed_up_to(self, sinks: Iterable[Uid], epoch: EpochId) -> None:
        self.up_to |= dict.fromkeys(sinks, epoch)
