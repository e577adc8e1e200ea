"""File names. A name identifies the output that a file belongs to, without opening the file.

part-{lineage}~{sink}~{epoch}~{slot}~{index}.{format}              seen by readers
part-{lineage}~{sink}~{epoch}~{slot}~{index}~{attempt}.{format}    hidden, while its checkpoint is not complete
part-{lineage}~{sink}~{epoch}~{slot}.commit                        hidden: its commit has begun
settled-{lineage}~{sink}                                           hidden: up to which epoch all has been swept
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from tidegate.connectors.sink import Committable, Settled, WriterContext
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid

HIDDEN = ".tidegate-staged"
"""Readers such as Spark skip folders whose names begin with a dot or an underscore."""

_FOLDERS = re.compile(r"(?:[^\x00-\x1f\x7f\"#'*/:=?\\{}\[\]^]+=[^\x00-\x1f\x7f\"#'*/:=?\\{}\[\]^]+/)*")
"""`day=2024-05-01/hour=7/`, as `partitions` writes it. A job that changed its partitioning may have other columns now."""

_NAME = re.compile(r"part-([^~]+)~([^~]+)~(\d+)\.(\d+)~(\d+)[~.].*")


@dataclass(frozen=True, slots=True)
class OutputId:
    """The output of one slot in one epoch. Never reused."""

    lineage: Lineage
    sink: Uid
    epoch: EpochId
    slot: Slot

    @staticmethod
    def of(source: WriterContext | Committable) -> OutputId:
        return OutputId(source.lineage, source.sink, source.epoch, source.slot)

    @staticmethod
    def in_name(name: str) -> OutputId | None:
        """Parse the last part of a path; None if the file is not one of ours."""
        found = _NAME.fullmatch(name.rpartition("/")[2])
        if found is None:
            return None
        lineage, sink, term, number, slot = found.groups()
        return OutputId(
            Lineage(unquote(lineage)), Uid(unquote(sink)), EpochId(Term(int(term)), int(number)), Slot(int(slot))
        )

    @property
    def stem(self) -> str:
        return f"part-{_plain(self.lineage)}~{_plain(self.sink)}~{self.epoch.name}~{self.slot:05d}"

    def final(self, index: int, format: str) -> str:
        return f"{self.stem}~{index:03d}.{format}"

    def hidden(self, index: int, attempt: int, format: str) -> str:
        return f"{self.stem}~{index:03d}~{attempt}.{format}"

    def is_final(self, name: str) -> bool:
        """Whether a path relative to the sink's is one of this output's, below folders of any partitioning."""
        folders, _, last = name.rpartition("/")
        inside = not folders or _FOLDERS.fullmatch(f"{folders}/") is not None
        return inside and self._numbered(last, r"[0-9]{3,}")

    def is_hidden(self, name: str) -> bool:
        """Whether a name in the hidden folder is that of a file which an attempt of this output has staged."""
        return self._numbered(name, r"[0-9]{3,}~[0-9]+")

    def _numbered(self, name: str, numbers: str) -> bool:
        stem, format = re.escape(self.stem), r"[a-z]{1,20}"
        return re.fullmatch(rf"{stem}~{numbers}\.{format}", name) is not None

    @property
    def marker(self) -> str:
        return f"{self.stem}.commit"

    def covered_by(self, final: Settled) -> bool:
        return (self.lineage, self.sink) == (final.lineage, final.sink) and self.epoch <= final.epoch


def final_epoch_name(lineage: Lineage, sink: Uid) -> str:
    return f"settled-{_plain(lineage)}~{_plain(sink)}"


def _plain(text: str) -> str:
    # `~` separates the parts of a name, and `quote` leaves it as it is.
    return quote(text, safe="").replace("~", "%7E")
