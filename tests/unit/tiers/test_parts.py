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


def test_a_file_that_is_a_separate_part_is_left_out_of_its_folder():
    folder, file = Part("folder", ("tests/cluster",), 1), Part("file", ("tests/cluster/test_chaos.py",), 1)
    assert left_out(folder, (folder, file)) == ["tests/cluster/test_chaos.py"]
    assert left_out(file, (folder, file)) == []


def test_a_cluster_only_runs_in_parallel_with_a_part_without_spark():
    cluster, spark, unit = Part("cluster", ("a",), 1, 3), Part("spark", ("b",), 3, 2), Part("unit", ("c",), 2)
    assert next_part([cluster, spark, unit], []) is spark
    assert next_part([cluster, spark, unit], [spark]) is spark
    assert next_part([cluster, unit], [spark]) is unit
    assert next_part([cluster, spark], [cluster]) is None
    assert next_part([unit], [cluster]) is unit
