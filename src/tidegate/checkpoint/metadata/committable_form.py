"""The stored form of a committable, in `_metadata` and in objects with waiting output. Files with these names exist, so nothing
here may change.
"""

from __future__ import annotations

import re

import msgspec

from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid

# At most 19 digits, as many as 63 bits need: `int` of a longer text takes quadratic time.
_EPOCH = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})")


# `gc=False`: they contain no cycles, and there may be a hundred thousand of them.
class CommittableForm(msgspec.Struct, gc=False, omit_defaults=True):
    lineage: str
    sink: str
    partition: int
    epoch: str
    payload: bytes
    staged: list[str] = []
    size_bytes: int = 0

    @staticmethod
    def of(committable: Committable) -> CommittableForm:
        return CommittableForm(
            lineage=committable.lineage,
            sink=committable.sink,
            partition=committable.slot,
            epoch=committable.epoch.name,
            payload=committable.payload,
            staged=list(committable.staged),
            size_bytes=committable.size_bytes,
        )

    def committable(self) -> Committable:
        """Raises ValueError if the epoch is none."""
        return Committable(
            lineage=Lineage(self.lineage),
            sink=Uid(self.sink),
            slot=Slot(self.partition),
            epoch=epoch_of(self.epoch),
            payload=self.payload,
            staged=tuple(self.staged),
            size_bytes=self.size_bytes,
        )


def epoch_of(text: str) -> EpochId:
    match = _EPOCH.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is not an epoch such as '3.41'")
    return EpochId(Term(int(match[1])), int(match[2]))
