"""`manifest.json`: the manifest of a version, stored with its files. Plain JSON, readable with `jq`.

Format 2 has a checksum of each file, and one of the manifest: that of its JSON, as `json.dumps(…, indent=1)` writes it, without
the field. Format 1, of earlier releases, has neither.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidegate.core.content_check import check_of
from tidegate.core.errors import CorruptState
from tidegate.state.version import Manifest, VersionFile, VersionId

MANIFEST_NAME = "manifest.json"
_READABLE = (1, Manifest.FORMAT)
_FIELD = b',\n "checksum": "'
"""The beginning of the checksum of the manifest. Those of files are indented more."""


def encode(manifest: Manifest) -> bytes:
    """Encode a manifest as `manifest.json`."""
    body: dict[str, Any] = {
        "format": Manifest.FORMAT,
        "backend": manifest.backend,
        "version": str(manifest.version),
        "base": None if manifest.base is None else str(manifest.base),
        "key_groups": list(manifest.key_groups),
        "files": [
            {"name": file.name, "size_bytes": file.size_bytes, "origin": str(file.origin), "checksum": file.checksum}
            for file in manifest.files
        ],
    }
    if manifest.token:
        body["token"] = manifest.token
    if manifest.elements:
        body["elements"] = [list(pair) for pair in manifest.elements]
    return _with_checksum(json.dumps(body, indent=1).encode())


def _with_checksum(text: bytes) -> bytes:
    """Add the checksum as the last field, to JSON that is not made twice: for a thousand files it takes long, in every epoch."""
    return text.removesuffix(b"\n}") + _FIELD + check_of(text).encode() + b'"\n}\n'


def _is_intact(body: bytes) -> bool:
    """Whether a manifest is as `encode` wrote it, byte by byte."""
    before, found, _ = body.rpartition(_FIELD)
    return bool(found) and _with_checksum(before + b"\n}") == body


def decode(body: bytes, where: str) -> Manifest:
    """Decode a manifest. Raises `CorruptState`, naming `where`, if `body` is not a manifest or has an unknown format."""
    try:
        data: dict[str, Any] = json.loads(body)
        found = data["format"]
        # Byte by byte: a damaged number would still be a number.
        if found == Manifest.FORMAT and not _is_intact(body):
            raise ValueError("its checksum does not fit its content")
        if found in _READABLE:
            first, last = data["key_groups"]
            return Manifest(
                backend=str(data["backend"]),
                version=VersionId.parse(data["version"]),
                base=None if data["base"] is None else VersionId.parse(data["base"]),
                files=tuple(
                    VersionFile(
                        str(file["name"]),
                        int(file["size_bytes"]),
                        VersionId.parse(file["origin"]),
                        # Nothing vouches for that of a format without a checksum of its own.
                        str(file["checksum"]) if found == Manifest.FORMAT else "",
                    )
                    for file in data["files"]
                ),
                key_groups=(int(first), int(last)),
                elements=tuple((int(state), int(count)) for state, count in data.get("elements", ())),
                token=str(data.get("token", "")),
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptState(
            f"{where} is not a manifest of a state version, or is damaged ({error!r}). This copy is discarded; storage has "
            "the state of the latest checkpoint."
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
