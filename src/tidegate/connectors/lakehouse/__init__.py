"""Table formats as sinks, without a jar: tasks write Parquet files next to the table, the committer adds them with a marker."""

from tidegate.connectors.lakehouse.delta import DeltaSink
from tidegate.connectors.lakehouse.iceberg import IcebergSink

__all__ = ["DeltaSink", "IcebergSink"]
