"""What went in and what came out, counted."""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEYS = 13


@dataclass
class Feed:
    """Writes input files, and remembers what was in them. A file appears whole."""

    folder: Path
    keys: int = KEYS
    rows: list[tuple[int, int, int]] = field(default_factory=list)
    files: int = 0

    def write(self, count: int) -> None:
        first = len(self.rows)
        self.put([(random.Random(i).randrange(self.keys), i, i % 1000) for i in range(first, first + count)])

    def put(self, new: list[tuple[int, int, int]]) -> None:
        self._append(new)
        self.rows += new

    def pass_time(self) -> None:
        """Write a row of no key, far in the future, after which no other row may come."""
        self._append([(-1, len(self.rows) + 1_000_000, 0)])

    def _append(self, rows: list[tuple[int, int, int]]) -> None:
        (self.folder / "in").mkdir(parents=True, exist_ok=True)
        (self.folder / "drafts").mkdir(exist_ok=True)
        draft = self.folder / "drafts" / f"{self.files:06d}.json"
        draft.write_text("".join(json.dumps({"k": k, "i": i, "v": v}) + "\n" for k, i, v in rows))
        os.rename(draft, self.folder / "in" / draft.name)
        self.files += 1


@dataclass(frozen=True, slots=True)
class Counted:
    """What a checkpoint has counted: rows of each key, and of each bucket rows and their sum."""

    rows: dict[int, int] = field(default_factory=dict)
    sums: dict[int, tuple[int, int]] = field(default_factory=dict)

    def has(self, row: dict[str, Any]) -> bool:
        """Whether a row of the output was counted before the checkpoint."""
        return bool(row["n"] <= self.rows.get(row["k"], 0))


@dataclass(frozen=True, slots=True)
class Verdict:
    expected: int
    lost: int
    duplicated: int
    wrong: tuple[str, ...]

    @property
    def exact(self) -> bool:
        return not (self.lost or self.duplicated or self.wrong)


def read_output(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in sorted((folder / "out").glob("*.json")):
        rows += [json.loads(line) for line in path.read_text().splitlines()]
    return rows


def visible(folder: Path) -> int:
    """How many rows can be seen, counted quickly."""
    return sum(path.read_bytes().count(b"\n") for path in (folder / "out").glob("*.json"))


def verify(fed: Iterable[tuple[int, int, int]], out: Iterable[dict[str, Any]], start: Counted | None = None) -> Verdict:
    """Every row once; counts of each key and sums of each bucket without gap or repeat. They continue from `start`."""
    start = start or Counted()
    expected = {i: (k, v) for k, i, v in fed}
    seen: dict[int, int] = defaultdict(int)
    by_key: dict[int, list[int]] = defaultdict(list)
    by_bucket: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for row in out:
        seen[row["i"]] += 1
        by_key[row["k"]].append(row["n"])
        by_bucket[row["b"]].append((row["m"], row["total"], row["i"]))
    wrong: list[str] = []
    for key, counts in by_key.items():
        first = start.rows.get(key, 0) + 1
        if sorted(counts) != list(range(first, first + len(counts))):
            wrong.append(f"the counts of key {key} have gaps or repeats")
    for bucket, steps in by_bucket.items():
        before, total = start.sums.get(bucket, (0, 0))
        for place, (m, reported, i) in enumerate(sorted(steps), before + 1):
            total += expected[i][1] if i in expected else 0
            if (m, reported) != (place, total):
                wrong.append(f"the sums of bucket {bucket} go wrong at step {place}")
                break
    strange = [i for i in seen if i not in expected]
    if strange:
        wrong.append(f"{len(strange)} rows were never sent")
    lost = sum(1 for i in expected if i not in seen)
    doubled = sum(count - 1 for count in seen.values() if count > 1)
    return Verdict(len(expected), lost, doubled, tuple(wrong))
