"""What a sink writes to, as lineage services name it: a system and a thing in it. A sink offers it as `dataset`."""

from __future__ import annotations

from typing import TypeAlias

DatasetName: TypeAlias = tuple[str, str]
"""The namespace, such as `kafka://host:9092`, and the name in it, such as a topic."""


def of_path(path: str) -> DatasetName:
    """`s3://bucket/a/b` as (`s3://bucket`, `a/b`), a local path as (`file`, path)."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return "file", path.removeprefix("file:")
    if scheme == "file":
        return "file", "/" + rest.lstrip("/")
    bucket, _, name = rest.partition("/")
    return f"{scheme}://{bucket}", name or "/"


def of_topic(bootstrap_servers: str, topic: str) -> DatasetName:
    # As in the names of OpenLineage: one broker stands for the cluster.
    return f"kafka://{bootstrap_servers.split(',')[0].strip()}", topic
