"""Tables of files as sinks, without a jar: tasks write Parquet beside the table, the committer adds it with a marker."""

from tidegate.connectors.lakehouse.delta import DeltaSink
from tidegate.connectors.lakehouse.iceberg import IcebergSink

__all__ = ["DeltaSink", "IcebergSink"]
