"""The errors that tidegate raises and the modules that define them: the one list. Type checkers read it here, and `errors.py`
reads it to know what to import when a name is first used."""

from tidegate.checkpoint.task.assignment import (
    KeyGroupsBroken as KeyGroupsBroken,
    MaxParallelismChanged as MaxParallelismChanged,
    UnclaimedState as UnclaimedState,
)
from tidegate.checkpoint.completed.cleaner import CleaningSkipped as CleaningSkipped
from tidegate.checkpoint.completed.completed_store import (
    CheckpointUnreadable as CheckpointUnreadable,
    RunEnded as RunEnded,
)
from tidegate.checkpoint.job_log.entry import LogCorrupt as LogCorrupt
from tidegate.checkpoint.job_log.log import ClaimLost as ClaimLost
from tidegate.checkpoint.metadata.errors import (
    MetadataDamaged as MetadataDamaged,
    MetadataError as MetadataError,
    MetadataIncomplete as MetadataIncomplete,
    MetadataTooNew as MetadataTooNew,
    UntrustedSnapshot as UntrustedSnapshot,
)
from tidegate.checkpoint.job_log.pins import (
    PinTooLate as PinTooLate,
    PinUnreadable as PinUnreadable,
)
from tidegate.checkpoint.completed.retained import SnapshotNotFound as SnapshotNotFound
from tidegate.checkpoint.coordination.savepoint_target import BadSavepointTarget as BadSavepointTarget
from tidegate.checkpoint.job_log.start import DirectoryMoved as DirectoryMoved
from tidegate.checkpoint.job_log.start import StartRefused as StartRefused
from tidegate.checkpoint.job_log.takeover import CannotClaim as CannotClaim
from tidegate.config.errors import OptionError as OptionError
from tidegate.connectors.kafka.errors import (
    ClientMissing as ClientMissing,
    KafkaError as KafkaError,
    KafkaFenced as KafkaFenced,
    KafkaRefused as KafkaRefused,
    KafkaUnavailable as KafkaUnavailable,
    MarkerExpired as MarkerExpired,
    MarkerUnsettled as MarkerUnsettled,
    RecordUnreadable as RecordUnreadable,
    RegistryClientMissing as RegistryClientMissing,
    RegistryRefused as RegistryRefused,
    RegistryUnavailable as RegistryUnavailable,
    RowUnwritable as RowUnwritable,
    RowsGone as RowsGone,
)
from tidegate.connectors.lakehouse.errors import (
    CommitConflict as CommitConflict,
    StagedFilesGone as StagedFilesGone,
    TableChanged as TableChanged,
    TableUnsuitable as TableUnsuitable,
)
from tidegate.connectors.outcome import (
    CommitInDoubt as CommitInDoubt,
    CommitRefused as CommitRefused,
    ForeignOutput as ForeignOutput,
    RetryLater as RetryLater,
    UntrustedOutput as UntrustedOutput,
)
from tidegate.connectors.postgres.table import TableRefused as TableRefused
from tidegate.control.cli.output import BadOption as BadOption
from tidegate.control.rest.client import (
    OperationFailed as OperationFailed,
    Refused as Refused,
    Unreachable as Unreachable,
)
from tidegate.control.jobs.export import TooLargeToExport as TooLargeToExport
from tidegate.control.jobs.export import UnknownFormat as UnknownFormat
from tidegate.control.jobs.job_file import NoJob as NoJob
from tidegate.control.jobs.job_errors import (
    NotFound as NotFound,
    NotPossible as NotPossible,
)
from tidegate.control.spark_import.carried_state import ImportRefused as ImportRefused
from tidegate.control.jobs.stored_jobs import JobNotFound as JobNotFound
from tidegate.control.jobs.texts import UnreadableText as UnreadableText
from tidegate.core.errors import (
    CheckpointError as CheckpointError,
    ConfigurationError as ConfigurationError,
    ConnectorError as ConnectorError,
    ControlError as ControlError,
    CorruptState as CorruptState,
    EpochFailed as EpochFailed,
    GraphError as GraphError,
    PreconditionFailed as PreconditionFailed,
    ProtocolViolation as ProtocolViolation,
    RestoreError as RestoreError,
    SchemaError as SchemaError,
    StateError as StateError,
    StateUnbound as StateUnbound,
    StorageError as StorageError,
    TidegateError as TidegateError,
    UnsupportedType as UnsupportedType,
    UserCodeError as UserCodeError,
    WrongValue as WrongValue,
)
from tidegate.schema.key_values import InvalidKey as InvalidKey
from tidegate.graph.validate import DuplicateUid as DuplicateUid
from tidegate.reporters.start import ReporterNotInstalled as ReporterNotInstalled
from tidegate.runtime.epochs.runner import StateLost as StateLost
from tidegate.runtime.exchange.user_code import SinkWriteFailed as SinkWriteFailed
from tidegate.runtime.checkpoints.failure_latch import CheckpointsFailed as CheckpointsFailed
from tidegate.runtime.checkpoints.history import UnpublishedOutput as UnpublishedOutput
from tidegate.runtime.checkpoints.output import OutputNotPublished as OutputNotPublished
from tidegate.runtime.checkpoints.owned_term import UnclaimedOutput as UnclaimedOutput
from tidegate.runtime.driver.rescaler import (
    RescaleFailed as RescaleFailed,
    RescaleRefused as RescaleRefused,
)
from tidegate.runtime.checkpoints.sink_threads import OutputStopped as OutputStopped
from tidegate.runtime.sources.kept_files import (
    FilesVanish as FilesVanish,
    KeptUnknown as KeptUnknown,
)
from tidegate.runtime.sources.source_notes import UnclaimedPositions as UnclaimedPositions
from tidegate.runtime.spark_versions import IncompatibleSpark as IncompatibleSpark
from tidegate.savepoint.changes import ChangeRefused as ChangeRefused
from tidegate.savepoint.copy import TargetNotEmpty as TargetNotEmpty
from tidegate.savepoint.dispose import (
    NotASavepoint as NotASavepoint,
    StillClaimed as StillClaimed,
)
from tidegate.savepoint.entries import UnreadableState as UnreadableState
from tidegate.savepoint.evolution import MigrationFailed as MigrationFailed
from tidegate.savepoint.pinned import NotRetained as NotRetained
from tidegate.savepoint.restore_compatibility import (
    StateChanged as StateChanged,
    UidsCannotBeMapped as UidsCannotBeMapped,
)
from tidegate.savepoint.schema_codec import UnknownSchema as UnknownSchema
from tidegate.savepoint.snapshot import StateNotFound as StateNotFound
from tidegate.state.backends import UnknownBackend as UnknownBackend
from tidegate.state.failure import StateDiskFull as StateDiskFull
from tidegate.storage.errors import (
    CorruptFile as CorruptFile,
    InvalidPath as InvalidPath,
    ObjectMissing as ObjectMissing,
    OutcomeUnknown as OutcomeUnknown,
    StorageDenied as StorageDenied,
    StorageMisconfigured as StorageMisconfigured,
    StorageRefused as StorageRefused,
    StorageUnavailable as StorageUnavailable,
)
from tidegate.testing.cluster import ClusterError as ClusterError
