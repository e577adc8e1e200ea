"""What the autoscaler decided, with what it knew."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidegate.autoscaler.evaluation import Evaluation


class DecisionKind(StrEnum):
    STABILIZING = "STABILIZING"
    """The job has just started."""
    COLLECTING = "COLLECTING"
    """The window is not full yet."""
    UNMEASURED = "UNMEASURED"
    """No task measured its time."""
    BALANCED = "BALANCED"
    """The parallelism is right, or close enough."""
    SCALE_UP = "SCALE_UP"
    SCALE_DOWN = "SCALE_DOWN"
    DELAYED = "DELAYED"
    """It would scale down if that stays right for some time."""
    INEFFECTIVE = "INEFFECTIVE"
    """It would scale up, but the last time did not help."""
    NOT_SCALABLE = "NOT_SCALABLE"
    """The job is too slow because of what more tasks do not shorten: the source stage, or what each epoch takes anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """One decision. `kind` says what follows from it."""

    kind: DecisionKind
    at_ms: int
    """When the last sample ended, on its clock."""
    parallelism: int
    """That of the job."""
    recommended: int
    """The parallelism to change to. The same as `parallelism` unless `kind` is SCALE_UP or SCALE_DOWN."""
    evaluation: Evaluation | None = None
    """None while there is nothing to evaluate."""
    computed: int | None = None
    """What the capacity needs, before limits and alignment."""
    aligned: int | None = None
    """The same after limits and alignment."""
    until_ms: int | None = None
    """When a wait ends: of STABILIZING, COLLECTING and DELAYED."""
    gain: tuple[float, float] | None = None
    """What the last scaling up was expected to add to the processing rate and what it added, if that was too little."""

    @property
    def changes(self) -> bool:
        return self.recommended != self.parallelism
