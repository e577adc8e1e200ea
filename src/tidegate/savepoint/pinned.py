"""Pins a checkpoint while it is read, since its job may be running."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from tidegate.checkpoint.effects import perform
from tidegate.checkpoint.job_log import pins
from tidegate.checkpoint.job_log.log import newest
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import SnapshotKind
from tidegate.core.errors import CheckpointError
from tidegate.savepoint.snapshot import StoredSnapshot, split_location
from tidegate.storage import StorageDenied, open_storage, unique_name

log = logging.getLogger("tidegate")


class NotRetained(CheckpointError):
    """The job's log does not list the checkpoint any more; its files may be deleted at any moment."""

    code = "NOT_RETAINED"


@contextlib.contextmanager
def pinned(snapshot: StoredSnapshot, reason: str) -> Iterator[bool]:
    """Protect the files of a checkpoint from clean-up inside the block. Yield whether a pin was needed.

    A savepoint needs no pin, nor does a checkpoint without its job's log (a copied directory): no job would delete
    them.

    1. Find the checkpoint in the job's log. Raises NotRetained.
    2. Place a pin. A crash leaves it: the checkpoint is then kept until the pin is removed.
    3. Run the block; remove the pin.
    """
    layout = JobLayout(snapshot.metadata.job)
    if snapshot.metadata.kind is SnapshotKind.SAVEPOINT:
        yield False
        return
    above, folder = split_location(snapshot.url)
    directory, job = split_location(above)
    # The directory has another name than its job: it was copied or renamed, and no job cleans it up.
    if job != layout.root:
        yield False
        return
    storage = open_storage(directory, **snapshot.options)
    end = perform(newest(layout), storage)
    if end is None:
        yield False
        return
    name = f"{layout.root}/{folder}/_metadata"
    ref = next((ref for ref in end.retained if ref.metadata == name), None)
    if ref is None:
        kept = ", ".join(f"chk-{ref.id}" for ref in end.retained) or "none"
        raise NotRetained(
            f"{snapshot.url} is no longer retained by its job, so its files may be deleted at any moment. Retained: {kept}."
        )
    # Not one per process or user: two copies of one checkpoint must not remove each other's pin.
    pin = unique_name()
    perform(pins.place(layout, pin, ref, reason), storage)
    try:
        yield True
    finally:
        perform(pins.remove(layout, pin), storage)


@contextlib.contextmanager
def pinned_if_allowed(snapshot: StoredSnapshot, reason: str) -> Iterator[None]:
    """Like `pinned`, for readers that may not be allowed to write to the job's directory. They read without a pin."""
    with contextlib.ExitStack() as pin:
        try:
            pin.enter_context(pinned(snapshot, reason))
        except StorageDenied as error:
            log.info("%s is read without a pin, and its job may delete it meanwhile: %s", snapshot.url, error)
        yield
