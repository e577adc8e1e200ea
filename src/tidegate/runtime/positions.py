"""Where the sources are: read from the offset log of the running query, which lies on the driver's disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidegate.core.errors import ProtocolViolation


@dataclass(frozen=True, slots=True)
class Positions:
    """End offsets of every source after one batch, in the order of the sources. Opaque text of each source's own."""

    lines: tuple[str, ...]


def read_positions(directory: Path, batch_id: int) -> Positions | None:
    """The positions at the end of a batch; None if the log has no such batch (there is none before the first)."""
    path = directory / "offsets" / str(batch_id)
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    lines = text.splitlines()
    if len(lines) < 3 or not lines[0].startswith("v"):
        raise ProtocolViolation(
            f"The offset log {path} has a form that tidegate does not know: it begins {text[:40]!r}."
        )
    return Positions(tuple(lines[2:]))


@dataclass(frozen=True, slots=True)
class Run:
    """A batch to be run: it begins where the last epoch ended."""


@dataclass(frozen=True, slots=True)
class Skip:
    """A batch that was run already."""


def decide_batch(done: Positions | None, start: Positions | None, end: Positions | None, first: bool) -> Run | Skip:
    """A batch runs once. `done` is where the last accepted epoch ended; `first` that none was yet in this run.

    Raises ProtocolViolation when the batch neither follows the last epoch nor repeats one: rows would be lost.
    """
    if end is None:
        raise ProtocolViolation("Spark delivered a batch whose offsets are not in its log.")
    if first or start == done:
        return Run()
    if end == done:
        return Skip()
    raise ProtocolViolation(
        f"Spark delivered a batch from {start} to {end}, but the last epoch ended at {done}. "
        "Rows between would be lost or doubled."
    )
