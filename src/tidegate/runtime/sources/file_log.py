"""Spark's log of the files that a source has seen, rewritten so that Spark can continue from it.

    {n}           the files of batch n: a line with the version, then a line of JSON for each, which names its batch
    {n}.compact   those of all batches up to n; every tenth entry is one

Spark stores this compaction interval nowhere. When it opens the log, it derives the interval from the compact entries
it finds: from the last two, their distance; from a single one, a divisor of its number, which need not be the original
interval. From `19.compact` alone it continues as if every twentieth were compact and writes a plain `29`; a reader that
later opens that log with `39.compact` alone looks for a `49.compact` that does not exist. A log rewritten here
therefore always has the last two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tidegate.core.errors import ProtocolViolation

COMPACT_INTERVAL = "spark.sql.streaming.fileSource.log.compactInterval"
_COMPACT = ".compact"


class _Seen(msgspec.Struct):
    batch: int = msgspec.field(name="batchId")


_batch_of = msgspec.json.Decoder(_Seen).decode


def number_of(name: str) -> int:
    return int(name.removesuffix(_COMPACT))


def put_down(notes: Mapping[str, bytes], last: int, every: int) -> dict[str, bytes]:
    """Return the entries for `notes`, which end with batch `last`, if every `every`-th entry is compact."""
    newest = (last + 1) // every * every - 1
    fits = all(name.endswith(_COMPACT) == (number_of(name) == newest) for name in notes)
    made = dict(notes) if fits else _rewritten(notes, last, newest)
    if newest >= every:
        before = newest - every
        # The second last one, from which Spark derives the interval.
        made[f"{before}{_COMPACT}"] = _cut(made[f"{newest}{_COMPACT}"], before)
    return made


def _cut(entry: bytes, last: int) -> bytes:
    """Return the part of a compact entry up to batch `last`. Its lines are in batch order."""
    # From the end: only the last interval goes, of a log that may have millions of lines.
    end = len(entry)
    while (begin := entry.rfind(b"\n", 0, end)) >= 0 and _batch_of(entry[begin + 1 : end]).batch > last:
        end = begin
    return entry[:end]


def _rewritten(notes: Mapping[str, bytes], last: int, newest: int) -> dict[str, bytes]:
    old: list[bytes] = []
    by_batch: dict[int, list[bytes]] = {n: [] for n in range(newest + 1, last + 1)}
    for name in sorted(notes, key=number_of):
        for line in notes[name].splitlines()[1:]:
            batch = _batch_of(line).batch
            (old if batch <= newest else by_batch[batch]).append(line)
    if not all(by_batch.values()):
        raise ProtocolViolation(f"The log of seen files is missing some batches before {last}.")
    made = {str(n): _entry(notes, lines) for n, lines in by_batch.items()}
    return made if newest < 0 else {f"{newest}{_COMPACT}": _entry(notes, old), **made}


def _entry(notes: Mapping[str, bytes], lines: Iterable[bytes]) -> bytes:
    return b"\n".join((_version(notes), *lines))


def _version(notes: Mapping[str, bytes]) -> bytes:
    return next(iter(notes.values())).split(b"\n", 1)[0]
