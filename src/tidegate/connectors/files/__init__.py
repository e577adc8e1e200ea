"""Files as a sink: hidden while they are staged, put under their final name when they are committed."""

from tidegate.connectors.files.sink import FileSink

__all__ = ["FileSink"]
