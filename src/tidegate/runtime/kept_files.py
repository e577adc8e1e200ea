"""Do files stay after a source has read them? Spark's plan does not tell whether the option `cleanSource` is set, so it is
seen by what it does: files that were read two batches ago are gone. Only files on a disk of the driver's are looked at."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidegate.core.errors import PreconditionFailed
from tidegate.core.ids import Uid
from tidegate.graph.model import Source
from tidegate.runtime.query_directory import Positions, log_offset


class FilesVanish(PreconditionFailed):
    """Files are removed as soon as they were read, so a return to a checkpoint would miss their rows."""

    code = "FILES_VANISH"

    def __init__(self, uid: Uid, path: str) -> None:
        self.uid, self.path = uid, path
        super().__init__(
            f"{path} was read by source {str(uid)!r} a moment ago and is gone: after a failure its rows would be missing. "
            "Leave out the option cleanSource, and remove files only when no retained checkpoint needs them; or accept the loss: "
            f"job.source({str(uid)!r}, …, at_most_once=True)."
        )


def check_kept(directory: Path, read: Positions, sources: Collection[Source]) -> None:
    """Raises `FilesVanish` if a file of the batch that ended at `read` is gone."""
    for place, (source, line) in enumerate(zip(sources, read.lines)):
        entry = None if source.at_most_once else log_offset(line)
        if entry is None:
            continue
        for path in _listed(directory / "sources" / str(place) / str(entry)):
            if not path.exists():
                raise FilesVanish(source.uid, str(path))


def _listed(entry: Path) -> list[Path]:
    """Local files in one entry of Spark's log of files; none for an entry that was put together with those before it."""
    try:
        lines = entry.read_text().splitlines()[1:]
    except FileNotFoundError:
        return []
    found = [urlsplit(json.loads(line)["path"]) for line in lines]
    return [Path(unquote(url.path)) for url in found if url.scheme in ("", "file")]
