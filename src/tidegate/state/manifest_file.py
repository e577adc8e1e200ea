"""`manifest.json`: the manifest of a version, stored with its files. Plain JSON, readable with `jq`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidegate.core.errors import CorruptState
from tidegate.state.version import Manifest, VersionFile, VersionId

MANIFEST_NAME = "manifest.json"


def encode(manifest: Manifest) -> bytes:
    """Encode a manifest as `manifest.json`."""
    body: dict[str, Any] = {
        "format": Manifest.FORMAT,
        "backend": manifest.backend,
        "version": str(manifest.version),
        "base": None if manifest.base is None else str(manifest.base),
        "key_groups": list(manifest.key_groups),
        "files": [
            {"name": file.name, "size_bytes": file.size_bytes, "origin": str(file.origin)} for file in manifest.files
        ],
    }
    if manifest.boot:
        body["boot"] = manifest.boot
    if manifest.elements:
        body["elements"] = [list(pair) for pair in manifest.elements]
    return json.dumps(body, indent=1).encode() + b"\n"


def decode(body: bytes, where: str) -> Manifest:
    """Decode a manifest. Raises `CorruptState`, naming `where`, if `body` is not a manifest or has an unknown format."""
    try:
        data: dict[str, Any] = json.loads(body)
        found = data["format"]
        if found == Manifest.FORMAT:
            first, last = data["key_groups"]
            return Manifest(
                backend=str(data["backend"]),
                version=VersionId.parse(data["version"]),
                base=None if data["base"] is None else VersionId.parse(data["base"]),
                files=tuple(
                    VersionFile(str(file["name"]), int(file["size_bytes"]), VersionId.parse(file["origin"]))
                    for file in data["files"]
                ),
                key_groups=(int(first), int(last)),
                elements=tuple((int(state), int(count)) for state, count in data.get("elements", ())),
                boot=str(data.get("boot", "")),
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptState(
            f"{where} is not a manifest of a state version ({error!r}). Restore the task from a checkpoint."
        ) from error
    raise CorruptState(
        f"{where} has format {found}; this release reads format {Manifest.FORMAT}. Use the release that wrote it."
    )


def read(directory: Path) -> Manifest:
    """Read the manifest in `directory`. Raises FileNotFoundError if there is none, `CorruptState` if it is damaged."""
    path = directory / MANIFEST_NAME
    return decode(path.read_bytes(), str(path))


def write(directory: Path, manifest: Manifest) -> None:
    """Write the manifest to a directory that is not visible yet. Not atomic; the rename of the directory is."""
    (directory / MANIFEST_NAME).write_bytes(encode(manifest))
