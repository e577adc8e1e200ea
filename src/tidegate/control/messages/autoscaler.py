"""What the autoscaler of a job recommends. Flink has no such answer."""

from __future__ import annotations

from msgspec import Struct

from tidegate.autoscaler.decision import ScalingDecision
from tidegate.runtime.driver.autoscaling import Autoscaler


class AutoscalerInfo(Struct, frozen=True, kw_only=True):
    """`decision` is None before the first sample; `reasons` are sentences for people."""

    enabled: bool
    scaling_enabled: bool
    decision: ScalingDecision | None
    reasons: tuple[str, ...]


def autoscaler_info(scaler: Autoscaler) -> AutoscalerInfo:
    decision, reasons = scaler.last or (None, ("No decision yet: no epoch has been recorded.",))
    config = scaler.config
    return AutoscalerInfo(
        enabled=config.enabled, scaling_enabled=config.scaling_enabled, decision=decision, reasons=reasons
    )
