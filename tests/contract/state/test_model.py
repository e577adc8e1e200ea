"""A random life of one task against a dict: attempts win, lose, fail and die; epochs are discarded and repeated."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.contract.state.versions import EVERYTHING, KEY_GROUPS, contents, forget, v
from tidegate.core.ids import Term
from tidegate.state.backends import backend_named
from tidegate.state.port import StateStore
from tidegate.state.version import VersionId

Entries = dict[bytes, bytes]
keys = st.sampled_from([b"", b"\x00", b"a", b"a\x00", b"ab", b"b", b"b\xff", b"c", b"d", b"\xff", b"\xff\xff"])
values = st.binary(max_size=12)


class TaskLife(RuleBasedStateMachine):
    """`accepted` are the versions the driver recorded, oldest first, with what each must hold for ever."""

    name: str

    @initialize()
    def begin_the_task(self) -> None:
        forget()
        self.directory = Path(tempfile.mkdtemp())
        self.backend = backend_named(self.name)
        self.attempts = itertools.count(1)
        self.number = 0
        self.accepted: list[tuple[VersionId | None, Entries]] = [(None, {})]
        self.begin()

    def teardown(self) -> None:
        self.store.abandon()
        shutil.rmtree(self.directory)

    def begin(self, at: int = -1) -> None:
        """An attempt of the epoch after the accepted one at `at`."""
        base, entries = self.accepted[at]
        self.target = v(self.number + 1, next(self.attempts))
        self.store: StateStore = self.backend.begin(self.directory, base, self.target, KEY_GROUPS)
        self.model = dict(entries)

    @rule(puts=st.dictionaries(keys, values, max_size=8), deletes=st.lists(keys, max_size=4))
    def write(self, puts: Entries, deletes: list[bytes]) -> None:
        self.store.write(puts.items(), deletes)
        self.model.update(puts)
        for key in deletes:
            self.model.pop(key, None)

    @rule(entries=st.dictionaries(keys, values, max_size=8))
    def load(self, entries: Entries) -> None:
        self.store.load(sorted(entries.items()))
        self.model.update(entries)

    @rule(first=keys, second=keys)
    def delete_range(self, first: bytes, second: bytes) -> None:
        self.store.delete_range(first, second)
        self.model = {key: value for key, value in self.model.items() if not first <= key < second}

    @rule(wanted=st.lists(keys, max_size=6))
    def read(self, wanted: list[bytes]) -> None:
        assert self.store.get_many(wanted) == [self.model.get(key) for key in wanted]
        assert [self.store.get(key) for key in wanted] == [self.model.get(key) for key in wanted]

    @rule()
    def scan_everything(self) -> None:
        assert list(self.store.scan(*EVERYTHING)) == sorted(self.model.items())

    @rule(first=keys, second=keys)
    def scan(self, first: bytes, second: bytes) -> None:
        found = list(self.store.scan(first, second))
        assert found == sorted((key, value) for key, value in self.model.items() if first <= key < second)
        assert list(self.store.scan(first, second, reverse=True)) == found[::-1]

    @rule()
    def seal_and_win(self) -> None:
        self.store.seal()
        self.accepted.append((self.target, self.model))
        self.number += 1
        self.begin()

    @rule(look=st.booleans())
    def seal_and_be_discarded(self, look: bool) -> None:
        """The epoch is thrown away after this task sealed; it is run again from the version before."""
        self.store.seal()
        self.begin()
        if look:
            self.scan_everything()

    @rule(puts=st.dictionaries(keys, values, max_size=8), look=st.booleans())
    def fail_and_try_again(self, puts: Entries, look: bool) -> None:
        self.read(list(puts))
        self.write(puts, [])
        self.store.abandon()
        self.begin()
        if look:
            self.scan_everything()

    @rule(puts=st.dictionaries(keys, values, min_size=1, max_size=4), ours_wins=st.booleans(), ours_first=st.booleans())
    def two_attempts_of_one_epoch(self, puts: Entries, ours_wins: bool, ours_first: bool) -> None:
        ours, model, target = self.store, self.model, self.target
        self.begin()
        self.write(puts, [])
        for store in (ours, self.store) if ours_first else (self.store, ours):
            store.seal()
        self.accepted.append((target, model) if ours_wins else (self.target, self.model))
        self.number += 1
        self.begin()

    @rule()
    def die_and_come_back(self) -> None:
        """All that the process held is gone; its private directory stays until tidied."""
        self.store.abandon()
        forget()
        self.begin()

    @precondition(lambda self: len(self.accepted) > 2)
    @rule(back=st.integers(1, 2))
    def rewind(self, back: int) -> None:
        """Back to an older accepted version; numbers go on."""
        self.store.abandon()
        del self.accepted[-back:]
        self.begin()

    @rule(kept=st.integers(1, 3))
    def tidy(self, kept: int) -> None:
        self.accepted = self.accepted[-kept:]
        named = [version for version, _ in self.accepted if version is not None]
        if named:
            self.backend.tidy(self.directory, Term(1), named)

    @rule(back=st.integers(1, 3))
    def look_back(self, back: int) -> None:
        """A rule, not an invariant: reading old versions at every step would leave the process's cache unused."""
        version, entries = self.accepted[-min(back, len(self.accepted))]
        if version is not None:
            assert contents(self.backend, self.directory, version) == entries


def live(name: str, examples: int, **options: Any) -> None:
    machine = type(f"Life of {name}", (TaskLife,), {"name": name})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=30, **options))


@pytest.mark.feature("F1")
@pytest.mark.parametrize(("name", "examples"), [("hashmap", 100), ("rocksdb", 25)])
def test_a_random_life(name: str, examples: int) -> None:
    live(name, examples)


def test_the_model_finds_a_backend_that_keeps_writes_of_abandoned_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that lets an abandoned attempt's writes through is caught."""
    from tidegate.state.heap.store import HeapStore

    def leaky(self: HeapStore) -> None:
        if self._table is not None:
            self._table.entries.update({key: value for key, value in self._changes.items() if value is not None})
        original(self)

    original = HeapStore.abandon
    monkeypatch.setattr(HeapStore, "abandon", leaky)
    with pytest.raises(AssertionError):
        live("hashmap", 100, phases=[Phase.generate])
