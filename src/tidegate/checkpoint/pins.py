"""Pins: how somebody who is not the owner keeps a checkpoint from being cleaned up while he reads it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from tidegate.checkpoint.effects import Delete, Get, ListNames, Put, Steps
from tidegate.checkpoint.entry import CheckpointRef
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.log import newest
from tidegate.core.errors import CheckpointError
from tidegate.core.faults import reach


class PinTooLate(CheckpointError):
    """The checkpoint was dropped before the pin held it."""

    code = "PIN_TOO_LATE"
    retryable = True

    def __init__(self, ref: CheckpointRef) -> None:
        self.ref = ref
        super().__init__(f"Checkpoint {ref.id} is no longer retained. Choose a newer one; the newest is always there.")


class PinUnreadable(CheckpointError):
    """A pin whose body is not one, so what it holds is unknown."""

    code = "PIN_UNREADABLE"

    def __init__(self, path: str, why: Exception) -> None:
        self.path = path
        super().__init__(
            f"The pin {path} cannot be read ({why}), so the checkpoint it holds is unknown and nothing is deleted. "
            "Delete that object once nobody reads or forks a checkpoint of this job."
        )


@dataclass(frozen=True, slots=True)
class Pin:
    metadata: str
    """Name of the `_metadata` whose checkpoint is held."""
    reason: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Pin).decode


def place(layout: JobLayout, pin_id: str, ref: CheckpointRef, reason: str) -> Steps[None]:
    """Hold a checkpoint of a job that somebody else owns. Raises `PinTooLate`, with nothing held.

    1. Write the pin. A crash leaves a pin that holds too much; `tidegate pins` lists it.
    2. Read the end of the log: is the checkpoint still retained? Owners read pins after the entry that drops, so a pin
       that was there before that entry is seen by whoever would delete.
    3. If not, take the pin away.
    """
    yield Put(layout.pin(pin_id), _encode(Pin(ref.metadata, reason)))
    reach("pin.1-placed")
    now = yield from newest(layout)
    if now is not None and ref in now.retained:
        reach("pin.2-held")
        return
    yield Delete((layout.pin(pin_id),))
    raise PinTooLate(ref)


def fork_pin(job: str, ref: CheckpointRef) -> str:
    """The id of the pin by which a job holds the checkpoint it begins from: one, however often it is started."""
    return f"{job}-{hashlib.sha256(ref.metadata.encode()).hexdigest()[:12]}"


def place_once(layout: JobLayout, pin_id: str, ref: CheckpointRef, reason: str) -> Steps[bool]:
    """As `place`, for a pin that several starts of one job share. Answer: whether it was placed by this call."""
    there: bytes | None = yield Get(layout.pin(pin_id))
    if there is None:
        yield from place(layout, pin_id, ref, reason)
        return True
    now = yield from newest(layout)
    if now is None or ref not in now.retained:
        raise PinTooLate(ref)  # Whose pin it is may need it, so it stays.
    return False


def remove(layout: JobLayout, pin_id: str) -> Steps[None]:
    yield Delete((layout.pin(pin_id),))


def read_pins(layout: JobLayout) -> Steps[tuple[Pin, ...]]:
    """Raises `PinUnreadable`: who cannot read a pin must not delete anything."""
    names: list[str] = yield ListNames(layout.pins)
    pins = []
    for name in names:
        data: bytes | None = yield Get(name)
        if data is not None:
            try:
                pins.append(_decode(data))
            except msgspec.MsgspecError as error:
                raise PinUnreadable(name, error) from error
    return tuple(pins)
