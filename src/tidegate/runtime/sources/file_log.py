"""Spark's log of the files that a source has seen, put down so that Spark reads on in it.

    {n}           the files of batch n: a line with the version, then a line of JSON for each, which names its batch
    {n}.compact   those of all batches up to n; every tenth entry is one

Spark keeps how often that is nowhere. On opening the log it concludes it from the compact entries it finds: from the last
two their distance; from one alone a divisor of its number, which need not be the one it was written with. From `19.compact`
alone it goes on as if every twentieth were compact, writes a plain `29`, and whoever opens that log with `39.compact` alone
looks for a `49.compact` that nobody wrote. So a log that is put down here always has the last two.
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
    """The entries that stand for `notes`, which end with batch `last`, where every so many are compact."""
    newest = (last + 1) // every * every - 1
    fits = all(name.endswith(_COMPACT) == (number_of(name) == newest) for name in notes)
    made = dict(notes) if fits else _rewritten(notes, last, newest)
    if newest >= every:
        before = newest - every
        made[f"{before}{_COMPACT}"] = _cut(made[f"{newest}{_COMPACT}"], before)
    return made


def _cut(entry: bytes, last: int) -> bytes:
    """What a compact entry holds of the batches up to `last`. Its lines are in the order of batches."""
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
        raise ProtocolViolation(f"The log of files seen says nothing of some batches before {last}.")
    made = {str(n): _entry(notes, lines) for n, lines in by_batch.items()}
    return made if newest < 0 else {f"{newest}{_COMPACT}": _entry(notes, old), **made}


def _entry(notes: Mapping[str, bytes], lines: Iterable[bytes]) -> bytes:
    return b"\n".join((_version(notes), *lines))


def _version(notes: Mapping[str, bytes]) -> bytes:
    return next(iter(notes.values())).split(b"\n", 1)[0]
