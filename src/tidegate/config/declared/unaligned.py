"""Flink's unaligned checkpoints. None of these has an effect; they are read to refuse what Flink refuses."""

from __future__ import annotations

from tidegate.config.option import BOOL, DURATION, Option

TITLE = "Unaligned checkpoints"
_P = "execution.checkpointing."

UNALIGNED: Option[bool] = Option(
    _P + "unaligned.enabled",
    BOOL,
    False,
    "End an epoch when a checkpoint is due and keep unread rows as channel state. Needs EXACTLY_ONCE and one "
    "concurrent checkpoint.",
    old_keys=(_P + "unaligned",),
)
ALIGNED_TIMEOUT: Option[int] = Option(
    _P + "aligned-checkpoint-timeout",
    DURATION,
    0,
    "With unaligned checkpoints: how long after it is due a checkpoint may stay aligned. 0: not at all.",
    old_keys=(_P + "alignment-timeout",),
)
RECOVER_ON_DOWNSTREAM: Option[bool] = Option(
    _P + "unaligned.recover-output-on-downstream.enabled",
    BOOL,
    False,
    "Restore output buffers at the reading task.",
)
DURING_RECOVERY: Option[bool] = Option(
    _P + "during-recovery.enabled",
    BOOL,
    False,
    "Take checkpoints while in-flight data is still being restored.",
)
