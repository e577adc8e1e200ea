"""Checks that files stay after a source has read them. Spark's plan does not show whether the option `cleanSource` is set,
so it is detected by its effect: files that were read two batches ago are gone. Only files on a disk of the driver are
checked. For files elsewhere, the user must declare that they stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidegate.core.errors import PreconditionFailed
from tidegate.core.ids import Uid
from tidegate.graph.model import Source
from tidegate.runtime.sources.query_directory import Positions, log_offset

_FILES = re.compile(r"File(?:Stream)?Source\[([^\]]*)\]")
"""How the text of a plan names a file stream."""


class FilesVanish(PreconditionFailed):
    """Files are removed as soon as they have been read, so a return to a checkpoint would miss their rows."""

    code = "FILES_VANISH"

    def __init__(self, uid: Uid, path: str) -> None:
        self.uid = uid
        self.path = path
        super().__init__(
            f"{path} was just read by source {str(uid)!r} and no longer exists: after a failure its rows would be "
            "missing. Remove the option cleanSource, and delete files only when no retained checkpoint needs them; "
            f"or accept the loss: job.source({str(uid)!r}, …, at_most_once=True)."
        )


class KeptUnknown(PreconditionFailed):
    """tidegate cannot see whether files at this location are removed, and the user has not declared that they stay."""

    code = "KEPT_UNKNOWN"

    def __init__(self, uid: Uid, path: str) -> None:
        self.uid = uid
        self.path = path
        source = f"job.source({str(uid)!r}, …"
        super().__init__(
            f"source {str(uid)!r} reads files in {path}, where tidegate cannot see whether they stay. If cleanSource or anything "
            "else removes files that were read, a return to a checkpoint silently misses their rows. If files stay as long as a "
            f"retained checkpoint needs them, declare it: {source}, files_kept=True). Otherwise accept the loss: {source}, "
            "at_most_once=True)."
        )


def check_place(source: Source, plan: str) -> None:
    """Raise `KeptUnknown` for a source that reads files outside of the driver's disks, by the text of its logical plan."""
    if source.at_most_once or source.files_kept:
        return
    for path in _FILES.findall(plan):
        if not _is_local(path):
            raise KeptUnknown(source.uid, path)


def check_declared(directory: Path, end: Positions, sources: Collection[Source]) -> None:
    """Check the same by the files of the batch that ends at `end`: a path without a scheme may lead anywhere."""
    for place, (source, line) in enumerate(zip(sources, end.lines)):
        entry = None if source.at_most_once or source.files_kept else log_offset(line)
        if entry is None:
            continue
        for path in _paths(directory / "sources" / str(place) / str(entry)):
            if not _is_local(path):
                raise KeptUnknown(source.uid, path.rpartition("/")[0])


def check_kept(directory: Path, read: Positions, sources: Collection[Source]) -> None:
    """Raise `FilesVanish` if a file of the batch that ended at `read` is gone."""
    for place, (source, line) in enumerate(zip(sources, read.lines)):
        entry = None if source.at_most_once else log_offset(line)
        if entry is None:
            continue
        for url in _paths(directory / "sources" / str(place) / str(entry)):
            # Spark logs URLs, in which a blank is `%20`.
            path = Path(unquote(urlsplit(url).path))
            if _is_local(url) and not path.exists():
                raise FilesVanish(source.uid, str(path))


def _paths(entry: Path) -> list[str]:
    """Return the files in one entry of Spark's file log; none for an entry that was compacted."""
    try:
        # After the line with the version of the log.
        lines = entry.read_text().splitlines()[1:]
    except FileNotFoundError:
        return []
    return [json.loads(line)["path"] for line in lines]


def _is_local(path: str) -> bool:
    return urlsplit(path).scheme in ("", "file")
