"""The parts of CI are all tests, each once."""

from __future__ import annotations

from pathlib import Path

from tests.sparks import ROOT
from tests.tiers.parts import CI, Part, left_out, next_part


def _files(part: Part) -> set[Path]:
    found: set[Path] = set()
    for path in part.paths:
        place = ROOT / path
        found |= {place} if place.is_file() else set(place.rglob("test_*.py"))
    skipped = [ROOT / path for path in left_out(part, CI)]
    return {file for file in found if not any(file == path or path in file.parents for path in skipped)}


def test_every_test_file_is_in_exactly_one_part_of_ci():
    by_part = [_files(part) for part in CI]
    assert set().union(*by_part) == set((ROOT / "tests").rglob("test_*.py"))
    assert sum(map(len, by_part)) == len(set().union(*by_part))


def test_a_file_that_is_a_part_of_its_own_is_left_out_of_its_folder():
    folder, file = Part("folder", ("tests/cluster",), 1), Part("file", ("tests/cluster/test_chaos.py",), 1)
    assert left_out(folder, (folder, file)) == ["tests/cluster/test_chaos.py"]
    assert left_out(file, (folder, file)) == []


def test_two_parts_with_spark_never_run_side_by_side():
    cluster, walk = Part("cluster", ("a",), 600, jvm=True), Part("walk", ("b",), 400, jvm=True)
    short, long = Part("short", ("c",), 10), Part("long", ("d",), 300)
    assert next_part([short, walk, long, cluster], []) is cluster
    assert next_part([short, walk, long], [cluster]) is long
    assert next_part([walk], [cluster]) is None
    assert next_part([walk, short], [short]) is walk
