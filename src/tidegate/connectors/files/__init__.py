"""Files as a sink: hidden while staged, renamed to their final name on commit."""

from tidegate.connectors.files.sink import FileSink

__all__ = ["FileSink"]
