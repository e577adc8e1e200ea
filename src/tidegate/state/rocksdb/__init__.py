"""State on local disk in RocksDB, one database per version, sharing files by hard links. Only this package imports
`rocksdict`."""

from tidegate.state.rocksdb.backend import RocksDBBackend
from tidegate.state.rocksdb.options import RocksDBOptions

__all__ = ["RocksDBBackend", "RocksDBOptions"]
