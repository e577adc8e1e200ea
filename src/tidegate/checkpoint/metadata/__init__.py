"""`_metadata`: the description of a checkpoint or savepoint, as one frozen model and its bytes."""

from tidegate.checkpoint.metadata.codec import NEWEST_FORMAT, check_size, checksum_in, decode, encode
from tidegate.checkpoint.metadata.errors import (
    MetadataDamaged,
    MetadataError,
    MetadataIncomplete,
    MetadataTooNew,
    UntrustedSnapshot,
)
from tidegate.checkpoint.metadata.files import FileList, StateFile
from tidegate.checkpoint.metadata.model import (
    MAX_INLINE_BYTES,
    CheckpointMetadata,
    CommittedMark,
    Distribution,
    ElementCount,
    InlineFile,
    OperatorInfo,
    QueryFile,
    SnapshotKind,
    SourcePosition,
    SplitTime,
    StateInfo,
    StateNumber,
    TaskState,
)
from tidegate.checkpoint.metadata.stored_list import AnyFileList, StoredFileList
from tidegate.checkpoint.metadata.stored_output import StoredOutput

__all__ = [
    "MAX_INLINE_BYTES",
    "NEWEST_FORMAT",
    "AnyFileList",
    "CheckpointMetadata",
    "CommittedMark",
    "Distribution",
    "ElementCount",
    "FileList",
    "InlineFile",
    "MetadataDamaged",
    "MetadataError",
    "MetadataIncomplete",
    "MetadataTooNew",
    "OperatorInfo",
    "QueryFile",
    "SnapshotKind",
    "SourcePosition",
    "SplitTime",
    "StateFile",
    "StateInfo",
    "StateNumber",
    "StoredFileList",
    "StoredOutput",
    "TaskState",
    "UntrustedSnapshot",
    "check_size",
    "checksum_in",
    "decode",
    "encode",
]
