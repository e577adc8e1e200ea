"""Delta Lake."""

from tidegate.connectors.lakehouse.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
