"""A recorded run of the autoscaler: what it saw, and with which options. Replaying it gives the same decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from tidegate.autoscaler.decider import ScalingDecider
from tidegate.autoscaler.decision import ScalingDecision
from tidegate.autoscaler.epoch_sample import EpochSample
from tidegate.autoscaler.explanation import explain
from tidegate.config.autoscaler import AutoscalerConfig

FORMAT = 1
"""Grows when an older reader would misunderstand a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingTrace:
    job: str
    max_parallelism: int
    config: AutoscalerConfig
    samples: tuple[EpochSample, ...]
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> ScalingTrace:
        """Raises ValueError for anything that `to_bytes` of this version, or of an older one, did not write."""
        trace = msgspec.json.decode(data, type=ScalingTrace)
        if trace.format > FORMAT:
            raise ValueError(f"format {trace.format} is newer than {FORMAT}")
        return trace

    def with_config(self, config: AutoscalerConfig) -> ScalingTrace:
        """Return the same run with other options of the autoscaler."""
        return replace(self, config=config)

    def replay(self) -> list[tuple[ScalingDecision, tuple[str, ...]]]:
        """Return all decisions with their reasons, in their order."""
        decider = ScalingDecider(self.config, self.max_parallelism)
        decisions = []
        for sample in self.samples:
            decision = decider.observe(sample)
            decisions.append((decision, explain(decision, self.config, self.max_parallelism, decider.restart_ms)))
        return decisions
