"""The lock of a job's epochs knows who holds it, so that a callback within an epoch can stop the job."""

from __future__ import annotations

import threading

from tidegate.runtime.driver.epoch_lock import EpochLock


def test_the_thread_that_holds_the_epoch_lock_is_recognized() -> None:
    lock = EpochLock()
    with lock:
        assert lock.is_held_here()
    assert not lock.is_held_here()


def test_another_thread_is_not_within_the_epoch() -> None:
    lock, seen = EpochLock(), []
    with lock:
        other = threading.Thread(target=lambda: seen.append((lock.is_held(), lock.is_held_here())))
        other.start()
        other.join()
    assert seen == [(True, False)]


def test_an_epoch_that_fails_releases_the_lock() -> None:
    lock = EpochLock()
    try:
        with lock:
            raise ValueError
    except ValueError:
        pass
    assert not lock.is_held()
