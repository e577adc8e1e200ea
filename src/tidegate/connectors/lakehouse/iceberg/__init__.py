"""Apache Iceberg."""

from tidegate.connectors.lakehouse.iceberg.sink import IcebergSink

__all__ = ["IcebergSink"]
