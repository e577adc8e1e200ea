"""Flink's unaligned checkpoints. Not acted on: a checkpoint takes a finished epoch, and between epochs no row is on its way."""

from __future__ import annotations

from tidegate.config.option import BOOL, DURATION, INT, Effect, Option, at_least

TITLE = "Unaligned checkpoints"
_P = "execution.checkpointing."
_LATER = (
    "A checkpoint takes the last finished epoch, so it waits for that one's slowest task; bound epochs at the source."
)
_TIMERS = (
    "Timers fire inside an epoch, and a checkpoint takes a finished epoch, so it never meets timers that are firing."
)

UNALIGNED: Option[bool] = Option(
    _P + "unaligned.enabled",
    BOOL,
    False,
    "End an epoch when a checkpoint is due and keep unread rows as channel state. Needs EXACTLY_ONCE and one "
    "concurrent checkpoint.",
    old_keys=(_P + "unaligned",),
    effect=Effect.LATER,
    reason=_LATER,
)
ALIGNED_TIMEOUT: Option[int] = Option(
    _P + "aligned-checkpoint-timeout",
    DURATION,
    0,
    "With unaligned checkpoints: how long after it is due a checkpoint may stay aligned. 0: not at all.",
    old_keys=(_P + "alignment-timeout",),
    effect=Effect.LATER,
    reason=_LATER,
)
FORCED: Option[bool] = Option(
    _P + "unaligned.forced",
    BOOL,
    False,
    "Allow unaligned checkpoints in iterative jobs.",
    old_keys=(_P + "force-unaligned",),
    effect=Effect.NONE,
    reason="Graphs have no cycles here, so there is no job that needs to be forced.",
)
MAX_SUBTASKS_PER_FILE: Option[int] = Option(
    _P + "unaligned.max-subtasks-per-channel-state-file",
    INT,
    5,
    "Tasks that share one file of channel state; 1: none.",
    old_keys=(_P + "unaligned.max-subTasks-per-channel-state-file",),
    check=at_least(1),
    effect=Effect.NONE,
    reason="Between epochs no row is on its way, so a checkpoint holds no channel state.",
)
INTERRUPTIBLE_TIMERS: Option[bool] = Option(
    _P + "unaligned.interruptible-timers.enabled",
    BOOL,
    False,
    "Let a checkpoint interrupt the firing of timers.",
    effect=Effect.NONE,
    reason=_TIMERS,
)
INTERMEDIATE_WATERMARKS: Option[bool] = Option(
    _P + "unaligned.interruptible-timers.emit-intermediate-watermarks",
    BOOL,
    True,
    "Send watermarks between interrupted timers.",
    effect=Effect.NONE,
    reason=_TIMERS,
)
RECOVER_ON_DOWNSTREAM: Option[bool] = Option(
    _P + "unaligned.recover-output-on-downstream.enabled",
    BOOL,
    False,
    "Restore output buffers at the reading task.",
    effect=Effect.NONE,
    reason="Between epochs no row is on its way, so there are no output buffers to restore.",
)
DURING_RECOVERY: Option[bool] = Option(
    _P + "during-recovery.enabled",
    BOOL,
    False,
    "Take checkpoints while in-flight data is still being restored.",
    effect=Effect.NONE,
    reason="Between epochs no row is on its way, so there is no in-flight data to restore.",
)
