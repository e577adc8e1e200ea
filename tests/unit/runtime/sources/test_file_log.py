"""However often a log of files is restored, and wherever, Spark finds in it what it looks for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ProtocolViolation
from tidegate.runtime.sources.file_log import number_of, put_down


def line(batch: int, place: int = 0) -> bytes:
    return b'{"path":"file:///in/%d-%d","timestamp":%d,"batchId":%d}' % (batch, place, batch, batch)


def entry(*batches: int) -> bytes:
    return b"\n".join((b"v1", *(line(batch, place) for batch in batches for place in range(2))))


class SparkLog:
    """What Spark does with a log of files, by the rule of its source."""

    def __init__(self, files: Mapping[str, bytes], setting: int) -> None:
        self.files = dict(files)
        compact = sorted((number_of(name) for name in files if name.endswith(".compact")), reverse=True)
        self.every = setting
        if len(compact) >= 2:
            self.every = compact[0] - compact[1]
        elif compact:
            self.every = self.divisor(setting, compact[0] + 1)
        self.last = max(map(number_of, files), default=-1)

    @staticmethod
    def divisor(setting: int, entries: int) -> int:
        if setting >= entries // 2:
            return entries
        return next(n for n in (*range(setting, entries // 2 + 1), entries) if entries % n == 0)

    def seen(self) -> list[bytes]:
        """What it reads on opening: the newest compact entry and all behind it. KeyError: one is missing."""
        first = (self.last + 1) // self.every * self.every - 1
        names = [f"{first}.compact"] if first >= 0 else []
        names += [str(n) for n in range(first + 1, self.last + 1)]
        return [each for name in names for each in self.files[name].split(b"\n")[1:]]

    def add(self) -> None:
        everything, n = self.seen(), self.last + 1
        if (n + 1) % self.every == 0:
            self.files[f"{n}.compact"] = b"\n".join((b"v1", *everything, *entry(n).split(b"\n")[1:]))
        else:
            self.files[str(n)] = entry(n)
        self.last = n

    def kept(self) -> dict[str, bytes]:
        """What a checkpoint keeps: from the newest compact entry on."""
        first = max((number_of(name) for name in self.files if name.endswith(".compact")), default=0)
        return {name: text for name, text in self.files.items() if number_of(name) >= first}


def test_spark_cannot_continue_from_a_single_compact_entry() -> None:
    """The reason for this module: the same restores, the notes put back as they were kept."""
    log = SparkLog({}, 10)
    for restored_at in (23, 53):
        while log.last < restored_at:
            log.add()
        log = SparkLog(log.kept(), 10)
    with pytest.raises(KeyError, match=r"49\.compact"):
        log.seen()


@pytest.mark.feature("C16", "H3")
@given(st.lists(st.tuples(st.integers(0, 45), st.sampled_from([1, 2, 3, 7, 10, 20])), min_size=1, max_size=8))
def test_a_log_may_be_restored_anywhere_and_with_other_settings(lives: list[tuple[int, int]]) -> None:
    log = SparkLog({}, 10)
    for batches, setting in lives:
        for _ in range(batches):
            log.add()
        if log.last < 0:
            continue
        log = SparkLog(put_down(log.kept(), log.last, setting), setting)
        assert log.every == setting
        assert log.seen() == [line(batch, place) for batch in range(log.last + 1) for place in range(2)]


def test_a_log_that_was_written_by_another_rule_is_mended() -> None:
    """As it was kept by a job that had once been restored with one compact entry alone."""
    kept = {"39.compact": entry(*range(40)), **{str(n): entry(n) for n in range(40, 54)}}
    put = put_down(kept, 53, 10)
    assert sorted(put, key=number_of) == ["39.compact", "49.compact", "50", "51", "52", "53"]
    assert put["49.compact"] == entry(*range(50))
    assert put["39.compact"] == entry(*range(40))


def test_a_batch_without_files_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="is missing some batches"):
        put_down({"9.compact": entry(*range(10)), "10": entry(10), "11": b"v1"}, 11, 11)
