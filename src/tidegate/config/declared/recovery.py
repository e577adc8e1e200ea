"""What a job starts from."""

from __future__ import annotations

from tidegate.config.choices import ClaimMode
from tidegate.config.option import BOOL, FIELDS, INT, PAIRS, TEXT, Effect, Option, enum

TITLE = "Recovery"
_P = "execution.state-recovery."

PATH: Option[str | None] = Option(
    _P + "path",
    TEXT,
    None,
    "Savepoint or retained checkpoint to start from, as `run -s`. Unset: the job's own last checkpoint, if it has one.",
    old_keys=("execution.savepoint.path",),
)
IGNORE_UNCLAIMED: Option[bool] = Option(
    _P + "ignore-unclaimed-state",
    BOOL,
    False,
    "Drop state of operators that the job does not have any more, as `-n`. Otherwise such a snapshot is refused.",
    old_keys=("execution.savepoint.ignore-unclaimed-state",),
)
CLAIM_MODE: Option[ClaimMode] = Option(
    _P + "claim-mode",
    enum(
        ClaimMode,
        hints={
            "legacy": "LEGACY leaves open who may delete the files; NO_CLAIM keeps them yours, CLAIM gives them away"
        },
    ),
    ClaimMode.NO_CLAIM,
    "NO_CLAIM: the snapshot stays the user's, and the first checkpoint copies what it needs. CLAIM: the job owns it "
    "and deletes it when it is not needed any more.",
    old_keys=("execution.savepoint-restore-mode",),
)
MAP_UIDS: Option[dict[str, str] | None] = Option(
    _P + "map-uids",
    PAIRS,
    None,
    "Operators and sources that have another uid than in the snapshot: `old=new, old=new`. Harmless where the snapshot has the "
    "new ones already. Not in Flink.",
)
RENAMED_FIELDS: Option[dict[tuple[str, str], dict[str, str]] | None] = Option(
    _P + "renamed-fields",
    FIELDS,
    None,
    "Fields that got another name inside the type of a state: `uid/state:old=new, …`. Without it, a field that is gone and "
    "one that is new are one removed and one added. Not in Flink.",
)
FROM_LOCAL: Option[bool] = Option(
    _P + "from-local",
    BOOL,
    False,
    "Use versions that are still on local disk instead of a download. Keyed state only.",
    old_keys=("state.backend.local-recovery",),
    effect=Effect.NONE,
    reason="A version that is on local disk is always used if it has the checksums of the checkpoint, and fetched if not: "
    "there is nothing to keep in addition, and nothing to gain by fetching.",
)
WITHOUT_CHANNEL_STATE: Option[int] = Option(
    _P + "without-channel-state.checkpoint-id",
    INT,
    -1,
    "Drop the in-flight rows of this checkpoint at restore. Loses data; a last resort. -1: none.",
    old_keys=("execution.state-recovery.without-channel-state.checkpointId",),
    effect=Effect.LATER,
    reason="Only unaligned checkpoints have in-flight rows, and none is taken yet.",
)
