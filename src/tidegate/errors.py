"""All errors that tidegate raises, in ten families below `TidegateError`. `docs/reference/errors.md` says what to do about each.

    try:
        job.run(checkpoint=tg.Checkpointing(dir="s3://bucket/checkpoints", interval="10 s"))
    except tg.errors.RestoreError as error:
        print(error.code, error.retryable, error)

The families and the errors that several layers raise are imported at once; any other is imported when it is first used, since
the module that defines it may be slow to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import (
    CheckpointError,
    ConfigurationError,
    ConnectorError,
    ControlError,
    CorruptState,
    EpochFailed,
    GraphError,
    PreconditionFailed,
    ProtocolViolation,
    RestoreError,
    SchemaError,
    StateError,
    StateUnbound,
    StorageError,
    TidegateError,
    UnsupportedType,
    UserCodeError,
    WrongValue,
)

if TYPE_CHECKING:
    from tidegate.checkpoint.assignment import KeyGroupsBroken, MaxParallelismChanged, UnclaimedState
    from tidegate.checkpoint.cleaner import CleaningSkipped
    from tidegate.checkpoint.completed_store import CheckpointUnreadable, RunEnded
    from tidegate.checkpoint.entry import LogCorrupt
    from tidegate.checkpoint.log import ClaimLost
    from tidegate.checkpoint.metadata.errors import (
        MetadataDamaged,
        MetadataError,
        MetadataIncomplete,
        MetadataTooNew,
        UntrustedSnapshot,
    )
    from tidegate.checkpoint.pins import PinTooLate, PinUnreadable
    from tidegate.checkpoint.retained import SnapshotNotFound
    from tidegate.checkpoint.savepoint_target import BadSavepointTarget
    from tidegate.checkpoint.start import StartRefused
    from tidegate.checkpoint.takeover import CannotClaim
    from tidegate.config.errors import OptionError
    from tidegate.connectors.kafka.errors import (
        ClientMissing,
        KafkaError,
        KafkaFenced,
        KafkaRefused,
        KafkaUnavailable,
        MarkerExpired,
        MarkerUnsettled,
        RowsGone,
    )
    from tidegate.connectors.lakehouse.errors import CommitConflict, StagedFilesGone, TableChanged, TableUnsuitable
    from tidegate.connectors.outcome import CommitInDoubt, CommitRefused, RetryLater
    from tidegate.connectors.postgres.table import TableRefused
    from tidegate.control.cli.run import BadOption
    from tidegate.control.client import OperationFailed, Refused, Unreachable
    from tidegate.control.export import UnknownFormat
    from tidegate.control.job_file import NoJob
    from tidegate.control.service import NotFound, NotPossible
    from tidegate.control.stored_jobs import JobNotFound
    from tidegate.control.texts import UnreadableText
    from tidegate.graph.key_values import InvalidKey
    from tidegate.graph.validate import DuplicateUid
    from tidegate.runtime.driver.epoch_runner import StateLost
    from tidegate.runtime.driver.failure_latch import CheckpointsFailed
    from tidegate.runtime.driver.job_history import UnpublishedOutput
    from tidegate.runtime.driver.output_release import OutputNotPublished
    from tidegate.runtime.driver.ownership import UnclaimedOutput
    from tidegate.runtime.driver.sink_threads import OutputStopped
    from tidegate.runtime.sources.kept_files import FilesVanish, KeptUnknown
    from tidegate.runtime.sources.source_notes import UnclaimedPositions
    from tidegate.savepoint.changes import ChangeRefused
    from tidegate.savepoint.copy import TargetNotEmpty
    from tidegate.savepoint.dispose import NotASavepoint, StillClaimed
    from tidegate.savepoint.entries import UnreadableState
    from tidegate.savepoint.evolution import MigrationFailed
    from tidegate.savepoint.pinned import NotRetained
    from tidegate.savepoint.restore_compatibility import StateChanged, UidsCannotBeMapped
    from tidegate.savepoint.schema_codec import UnknownSchema
    from tidegate.savepoint.snapshot import StateNotFound
    from tidegate.state.backends import UnknownBackend
    from tidegate.state.failure import StateDiskFull
    from tidegate.storage.errors import (
        CorruptFile,
        InvalidPath,
        ObjectMissing,
        OutcomeUnknown,
        StorageDenied,
        StorageMisconfigured,
        StorageRefused,
        StorageUnavailable,
    )
    from tidegate.testing.cluster import ClusterError

__all__ = [
    "BadOption",
    "BadSavepointTarget",
    "CannotClaim",
    "ChangeRefused",
    "CheckpointError",
    "CheckpointUnreadable",
    "CheckpointsFailed",
    "ClaimLost",
    "CleaningSkipped",
    "ClientMissing",
    "ClusterError",
    "CommitConflict",
    "CommitInDoubt",
    "CommitRefused",
    "ConfigurationError",
    "ConnectorError",
    "ControlError",
    "CorruptFile",
    "CorruptState",
    "DuplicateUid",
    "EpochFailed",
    "FilesVanish",
    "GraphError",
    "InvalidKey",
    "InvalidPath",
    "JobNotFound",
    "KafkaError",
    "KafkaFenced",
    "KafkaRefused",
    "KafkaUnavailable",
    "KeptUnknown",
    "KeyGroupsBroken",
    "LogCorrupt",
    "MarkerExpired",
    "MarkerUnsettled",
    "MaxParallelismChanged",
    "MetadataDamaged",
    "MetadataError",
    "MetadataIncomplete",
    "MetadataTooNew",
    "MigrationFailed",
    "NoJob",
    "NotASavepoint",
    "NotFound",
    "NotPossible",
    "NotRetained",
    "ObjectMissing",
    "OperationFailed",
    "OptionError",
    "OutcomeUnknown",
    "OutputNotPublished",
    "OutputStopped",
    "PinTooLate",
    "PinUnreadable",
    "PreconditionFailed",
    "ProtocolViolation",
    "Refused",
    "RestoreError",
    "RetryLater",
    "RowsGone",
    "RunEnded",
    "SchemaError",
    "SnapshotNotFound",
    "StagedFilesGone",
    "StartRefused",
    "StateChanged",
    "StateDiskFull",
    "StateError",
    "StateLost",
    "StateNotFound",
    "StateUnbound",
    "StillClaimed",
    "StorageDenied",
    "StorageError",
    "StorageMisconfigured",
    "StorageRefused",
    "StorageUnavailable",
    "TableChanged",
    "TableRefused",
    "TableUnsuitable",
    "TargetNotEmpty",
    "TidegateError",
    "UidsCannotBeMapped",
    "UnclaimedOutput",
    "UnclaimedPositions",
    "UnclaimedState",
    "UnknownBackend",
    "UnknownFormat",
    "UnknownSchema",
    "UnpublishedOutput",
    "Unreachable",
    "UnreadableState",
    "UnreadableText",
    "UnsupportedType",
    "UntrustedSnapshot",
    "UserCodeError",
    "WrongValue",
]

_LAZY = {
    "BadOption": "tidegate.control.cli.run",
    "BadSavepointTarget": "tidegate.checkpoint.savepoint_target",
    "CannotClaim": "tidegate.checkpoint.takeover",
    "ChangeRefused": "tidegate.savepoint.changes",
    "CheckpointUnreadable": "tidegate.checkpoint.completed_store",
    "CheckpointsFailed": "tidegate.runtime.driver.failure_latch",
    "ClaimLost": "tidegate.checkpoint.log",
    "CleaningSkipped": "tidegate.checkpoint.cleaner",
    "ClientMissing": "tidegate.connectors.kafka.errors",
    "ClusterError": "tidegate.testing.cluster",
    "CommitConflict": "tidegate.connectors.lakehouse.errors",
    "CommitInDoubt": "tidegate.connectors.outcome",
    "CommitRefused": "tidegate.connectors.outcome",
    "CorruptFile": "tidegate.storage.errors",
    "DuplicateUid": "tidegate.graph.validate",
    "FilesVanish": "tidegate.runtime.sources.kept_files",
    "InvalidKey": "tidegate.graph.key_values",
    "InvalidPath": "tidegate.storage.errors",
    "JobNotFound": "tidegate.control.stored_jobs",
    "KafkaError": "tidegate.connectors.kafka.errors",
    "KafkaFenced": "tidegate.connectors.kafka.errors",
    "KafkaRefused": "tidegate.connectors.kafka.errors",
    "KafkaUnavailable": "tidegate.connectors.kafka.errors",
    "KeptUnknown": "tidegate.runtime.sources.kept_files",
    "KeyGroupsBroken": "tidegate.checkpoint.assignment",
    "LogCorrupt": "tidegate.checkpoint.entry",
    "MarkerExpired": "tidegate.connectors.kafka.errors",
    "MarkerUnsettled": "tidegate.connectors.kafka.errors",
    "MaxParallelismChanged": "tidegate.checkpoint.assignment",
    "MetadataDamaged": "tidegate.checkpoint.metadata.errors",
    "MetadataError": "tidegate.checkpoint.metadata.errors",
    "MetadataIncomplete": "tidegate.checkpoint.metadata.errors",
    "MetadataTooNew": "tidegate.checkpoint.metadata.errors",
    "MigrationFailed": "tidegate.savepoint.evolution",
    "NoJob": "tidegate.control.job_file",
    "NotASavepoint": "tidegate.savepoint.dispose",
    "NotFound": "tidegate.control.service",
    "NotPossible": "tidegate.control.service",
    "NotRetained": "tidegate.savepoint.pinned",
    "ObjectMissing": "tidegate.storage.errors",
    "OperationFailed": "tidegate.control.client",
    "OptionError": "tidegate.config.errors",
    "OutcomeUnknown": "tidegate.storage.errors",
    "OutputNotPublished": "tidegate.runtime.driver.output_release",
    "OutputStopped": "tidegate.runtime.driver.sink_threads",
    "PinTooLate": "tidegate.checkpoint.pins",
    "PinUnreadable": "tidegate.checkpoint.pins",
    "Refused": "tidegate.control.client",
    "RetryLater": "tidegate.connectors.outcome",
    "RowsGone": "tidegate.connectors.kafka.errors",
    "RunEnded": "tidegate.checkpoint.completed_store",
    "SnapshotNotFound": "tidegate.checkpoint.retained",
    "StagedFilesGone": "tidegate.connectors.lakehouse.errors",
    "StartRefused": "tidegate.checkpoint.start",
    "StateChanged": "tidegate.savepoint.restore_compatibility",
    "StateDiskFull": "tidegate.state.failure",
    "StateLost": "tidegate.runtime.driver.epoch_runner",
    "StateNotFound": "tidegate.savepoint.snapshot",
    "StillClaimed": "tidegate.savepoint.dispose",
    "StorageDenied": "tidegate.storage.errors",
    "StorageMisconfigured": "tidegate.storage.errors",
    "StorageRefused": "tidegate.storage.errors",
    "StorageUnavailable": "tidegate.storage.errors",
    "TableChanged": "tidegate.connectors.lakehouse.errors",
    "TableRefused": "tidegate.connectors.postgres.table",
    "TableUnsuitable": "tidegate.connectors.lakehouse.errors",
    "TargetNotEmpty": "tidegate.savepoint.copy",
    "UidsCannotBeMapped": "tidegate.savepoint.restore_compatibility",
    "UnclaimedOutput": "tidegate.runtime.driver.ownership",
    "UnclaimedPositions": "tidegate.runtime.sources.source_notes",
    "UnclaimedState": "tidegate.checkpoint.assignment",
    "UnknownBackend": "tidegate.state.backends",
    "UnknownFormat": "tidegate.control.export",
    "UnknownSchema": "tidegate.savepoint.schema_codec",
    "UnpublishedOutput": "tidegate.runtime.driver.job_history",
    "Unreachable": "tidegate.control.client",
    "UnreadableState": "tidegate.savepoint.entries",
    "UnreadableText": "tidegate.control.texts",
    "UntrustedSnapshot": "tidegate.checkpoint.metadata.errors",
}
"""The module that defines an error which is imported when it is first used."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tidegate.errors' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
