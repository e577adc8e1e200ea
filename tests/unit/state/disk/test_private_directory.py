"""Directories of attempts, and those who remove what attempts left."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading

import pytest

from tidegate.state.disk import private_directory
from tidegate.state.disk.private_directory import PrivateDirectory, sweep


def test_a_directory_is_kept_while_its_creator_lives_and_deleted_afterwards(tmp_path):
    mine, dead = PrivateDirectory.make(tmp_path, "x-"), PrivateDirectory.make(tmp_path, "x-")
    dead.unlock()
    sweep(tmp_path, "x-")
    assert mine.path.exists()
    assert not dead.path.exists()
    mine.discard()


def test_removal_happens_under_the_lock_so_a_maker_between_mkdir_and_lock_waits(tmp_path, monkeypatch):
    left = tmp_path / "x-left"
    left.mkdir()
    seen = []

    def rmtree(path, ignore_errors):
        other = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
        seen.append(path)
        os.rmdir(path)

    monkeypatch.setattr(private_directory.shutil, "rmtree", rmtree)
    sweep(tmp_path, "x-")
    assert seen == [str(left)]


@pytest.mark.large
def test_makers_and_sweepers_at_once(tmp_path):
    """What `make` gave out exists, whatever others sweep meanwhile."""
    stop = threading.Event()

    def sweeping():
        while not stop.is_set():
            sweep(tmp_path, "x-")

    sweepers = [threading.Thread(target=sweeping) for _ in range(2)]
    for sweeper in sweepers:
        sweeper.start()
    try:
        for _ in range(1500):
            made = PrivateDirectory.make(tmp_path, "x-")
            assert made.path.exists()
            made.discard()
    finally:
        stop.set()
        for sweeper in sweepers:
            sweeper.join()


def test_a_database_whose_small_files_vanish_is_an_error_and_never_an_empty_state(tmp_path, monkeypatch):
    from tidegate.core.errors import StateError
    from tidegate.core.ids import AttemptId, EpochId, Term
    from tidegate.state.backends import backend_named
    from tidegate.state.rocksdb import store as rocks
    from tidegate.state.version import VersionId

    backend = backend_named("rocksdb")
    first, second = (VersionId(EpochId(Term(1), n), AttemptId(n)) for n in (1, 2))
    store = backend.begin(tmp_path, None, first, (0, 127))
    store.write([(b"a", b"1")])
    store.seal()
    real = rocks.open_database

    def after_somebody_cleaned_up(home, options, *, create):
        for name in os.listdir(home.path):
            if not name.endswith(".sst"):
                os.unlink(home.path / name)
        return real(home, options, create=create)

    monkeypatch.setattr(rocks, "open_database", after_somebody_cleaned_up)
    broken = backend.begin(tmp_path, first, second, (0, 127))
    with pytest.raises(StateError):
        broken.get(b"a")
    monkeypatch.undo()
    again = backend.begin(tmp_path, first, second, (0, 127))
    assert again.get(b"a") == b"1"
    again.abandon()
    shutil.rmtree(tmp_path)
