"""Where checkpoints live: one port, and stores that keep its promises. An object store's client is loaded at need."""

from tidegate.checkpoint.storage.download import download, fetch
from tidegate.checkpoint.storage.errors import (
    CorruptFile,
    InvalidPath,
    ObjectMissing,
    OutcomeUnknown,
    StorageDenied,
    StorageError,
    StorageMisconfigured,
    StorageRefused,
    StorageUnavailable,
)
from tidegate.checkpoint.storage.handle import PART_BYTES, FileHandle, checksum_of, checksum_of_file
from tidegate.checkpoint.storage.local import LocalStorage
from tidegate.checkpoint.storage.open import open_storage
from tidegate.checkpoint.storage.port import (
    Lost,
    Nonce,
    Storage,
    StoredObject,
    Won,
    decode_segment,
    encode_segment,
    new_nonce,
    unique_name,
)
from tidegate.checkpoint.storage.probe import probe
from tidegate.checkpoint.storage.retry import Patience
from tidegate.checkpoint.storage.routed import RoutedStorage
from tidegate.checkpoint.storage.upload import Upload, UploadRecord, store

__all__ = [
    "PART_BYTES",
    "CorruptFile",
    "FileHandle",
    "InvalidPath",
    "LocalStorage",
    "Lost",
    "Nonce",
    "ObjectMissing",
    "OutcomeUnknown",
    "Patience",
    "RoutedStorage",
    "Storage",
    "StorageDenied",
    "StorageError",
    "StorageMisconfigured",
    "StorageRefused",
    "StorageUnavailable",
    "StoredObject",
    "Upload",
    "UploadRecord",
    "Won",
    "checksum_of",
    "checksum_of_file",
    "decode_segment",
    "download",
    "encode_segment",
    "fetch",
    "new_nonce",
    "open_storage",
    "probe",
    "store",
    "unique_name",
]
