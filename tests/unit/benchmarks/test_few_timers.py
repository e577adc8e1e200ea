"""The comparison of timers in RocksDB and on the heap."""

from __future__ import annotations

from benchmarks.few_timers import few_timers


def test_both_places_fire_the_same_timers_in_every_case():
    """Each epoch checks how many fired."""
    found = few_timers(2, (0, 50))

    cases = ("fired in their epoch", "0 others wait", "50 others wait")
    assert list(found) == [f"{case}, {place}" for case in cases for place in ("rocksdb", "heap")]
    assert all(figure.median > 0 for figure in found.values())
