"""What a job starts from."""

from __future__ import annotations

from tidegate.config.choices import ClaimMode
from tidegate.config.option import BOOL, FIELDS, PAIRS, STATES, TEXT, Option, enum

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
ACCEPT_FOREIGN_OUTPUT: Option[bool] = Option(
    _P + "accept-foreign-output",
    BOOL,
    False,
    "Start although a target has output that the checkpoint directory does not know, because the directory was restored from "
    "an older backup, as `run --accept-foreign-output`. Rows since the backup are written again. Set it for one start only.",
)
ACCEPT_MOVED_DIRECTORY: Option[bool] = Option(
    _P + "accept-moved-directory",
    BOOL,
    False,
    "Start although the checkpoint directory is not where the last run of the job used it, as `run --accept-moved-directory`: it "
    "was moved, and nobody starts the job at its old place. Set it for one start only. Not in Flink.",
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
    "one that is new are refused if that could hold its values, unless the old one is dropped. Not in Flink.",
)
DROP_STATE: Option[tuple[tuple[str, str], ...] | None] = Option(
    _P + "drop-state",
    STATES,
    None,
    "States that their operator does not declare any more and that the job starts without: `uid/state, …`, as `--drop-state`. "
    "Otherwise a start is refused if the operator also declares a new state, since that may be the old one under another name. "
    "`uid/state:field` drops a field of the state's class, where a new field may be the old one. "
    "Harmless for a state that the job declares. Not in Flink.",
)
