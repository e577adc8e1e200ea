"""Storage for checkpoints: one port and its implementations. The client of an object store is loaded on demand."""

from tidegate.core.errors import StorageError
from tidegate.storage.download import download, fetch
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
from tidegate.storage.handle import PART_BYTES, FileHandle, checksum_of, checksum_of_file
from tidegate.storage.local import LocalStorage
from tidegate.storage.metered import MeteredStorage
from tidegate.storage.open import open_storage
from tidegate.storage.port import (
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
from tidegate.storage.probe import probe
from tidegate.storage.retry import Patience
from tidegate.storage.routed import RoutedStorage
from tidegate.storage.traffic import Traffic
from tidegate.storage.upload import Upload, UploadRecord, store

__all__ = [
    "PART_BYTES",
    "CorruptFile",
    "FileHandle",
    "InvalidPath",
    "LocalStorage",
    "Lost",
    "MeteredStorage",
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
    "Traffic",
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
