"""Pins: how a reader that does not own the job protects a checkpoint from clean-up."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from tidegate.checkpoint.effects import Delete, Get, ListNames, Put, Steps
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.job_log.log import newest
from tidegate.checkpoint.layout import JobLayout
from tidegate.core.errors import CheckpointError
from tidegate.core.faults import reach


class PinTooLate(CheckpointError):
    """The checkpoint was dropped before the pin held it."""

    code = "PIN_TOO_LATE"
    retryable = True

    def __init__(self, ref: CheckpointRef) -> None:
        self.ref = ref
        super().__init__(
            f"Checkpoint {ref.id} is no longer retained. Choose a newer one; the newest is always retained."
        )


class PinUnreadable(CheckpointError):
    """A pin whose body is not one, so what it holds is unknown."""

    code = "PIN_UNREADABLE"

    def __init__(self, path: str, why: Exception) -> None:
        self.path = path
        super().__init__(
            f"The pin {path} cannot be read ({why}), so the checkpoint it holds is unknown and nothing is deleted. "
            "Delete that object once no process reads or forks a checkpoint of this job."
        )


@dataclass(frozen=True, slots=True)
class Pin:
    metadata: str
    """Name of the `_metadata` of the pinned checkpoint."""
    reason: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Pin).decode


def place(layout: JobLayout, pin_id: str, ref: CheckpointRef, reason: str) -> Steps[None]:
    """Pin a checkpoint of a job owned by another driver. Raises `PinTooLate`, with nothing pinned.

    1. Write the pin. A crash leaves a pin that protects too much; `tidegate pins` lists it.
    2. Read the end of the log: is the checkpoint still retained? Owners read pins after the entry that drops a
       checkpoint, so they see every pin that existed before that entry.
    3. If not, remove the pin.
    """
    yield Put(layout.pin(pin_id), _encode(Pin(ref.metadata, reason)))
    reach("pin.1-placed")
    now = yield from newest(layout)
    if now is not None and ref in now.retained:
        reach("pin.2-held")
        return
    # Without this, a pin on something that is being deleted would stay for good.
    yield Delete((layout.pin(pin_id),))
    raise PinTooLate(ref)


def fork_pin(job: str, ref: CheckpointRef) -> str:
    """Return the id of the pin on the checkpoint that a job starts from: one pin, however often it is started."""
    return f"{job}-{hashlib.sha256(ref.metadata.encode()).hexdigest()[:12]}"


def place_once(layout: JobLayout, pin_id: str, ref: CheckpointRef, reason: str) -> Steps[bool]:
    """Like `place`, for a pin shared by several starts of one job. Return whether this call placed it."""
    there: bytes | None = yield Get(layout.pin(pin_id))
    if there is None:
        yield from place(layout, pin_id, ref, reason)
        return True
    now = yield from newest(layout)
    if now is None or ref not in now.retained:
        raise PinTooLate(ref)  # The owner of the pin may need it, so it stays.
    return False


def remove(layout: JobLayout, pin_id: str) -> Steps[None]:
    yield Delete((layout.pin(pin_id),))


def read_pins(layout: JobLayout) -> Steps[tuple[Pin, ...]]:
    """Read all pins. Raises `PinUnreadable`: an owner that cannot read a pin must not delete anything."""
    names: list[str] = yield ListNames(layout.pins)
    pins = []
    for name in names:
        data: bytes | None = yield Get(name)
        # Removed between the listing and the read.
        if data is not None:
            try:
                pins.append(_decode(data))
            except msgspec.MsgspecError as error:
                raise PinUnreadable(name, error) from error
    return tuple(pins)
