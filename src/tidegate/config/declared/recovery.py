"""What a job starts from."""

from __future__ import annotations

from tidegate.config.choices import ClaimMode
from tidegate.config.option import BOOL, FIELDS, PAIRS, TEXT, Option, enum

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
