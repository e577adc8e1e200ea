"""Map the path of a file sink to its storage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidegate.connectors.files.place import FilePlace
from tidegate.core.errors import GraphError


def open_place(path: str, options: Mapping[str, str]) -> FilePlace:
    """Return the storage that a path names: a directory, or `s3://bucket/prefix`. Connects on first use."""
    scheme, found, rest = path.partition("://")
    if not found or scheme == "file":
        from tidegate.connectors.files.directory import Directory  # Imported late, for a fast start.

        return Directory(Path(rest if found else path))
    if scheme in ("s3", "s3a"):
        from tidegate.connectors.files.s3 import S3Prefix  # Imported late, for a fast start.

        return S3Prefix(rest, options)
    raise GraphError(
        f"A file sink writes to a directory or to s3://bucket/prefix, not to {scheme}://. Mount it as a directory, or "
        "use a WriteAheadSink with a function that writes there."
    )
