"""Bodies of requests. An empty text counts as left out, as in Flink."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field

MAX_TRIGGER_ID = 200

_CHECKPOINT_TYPES = {"CONFIGURED": None, "FULL": True, "INCREMENTAL": False}
_FORMATS = ("CANONICAL", "NATIVE")
"""The first is the default, as in Flink."""
_NAMED_LAST = re.compile(r"`(?:\$\.)?([A-Za-z-]+)`$")
"""The field that msgspec's messages end with: "… - at `$.drain`", "… missing required field `savepoint-path`"."""

TriggerId = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_TRIGGER_ID})]
FormatType = Annotated[str, Meta(extra_json_schema={"enum": list(_FORMATS)})]
CheckpointType = Annotated[str, Meta(extra_json_schema={"enum": list(_CHECKPOINT_TYPES)})]

B = TypeVar("B", bound=Struct)


def decode(body: dict[str, Any], kind: type[B]) -> B:
    """Raises ValueError: what is wrong with the body, as a sentence for the caller."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_problem(error, body, kind)) from error


def _problem(error: msgspec.ValidationError, body: dict[str, Any], kind: type[Struct]) -> str:
    # From `__post_init__` of a message below: the sentence is ours already.
    if isinstance(error.__cause__, ValueError):
        return str(error.__cause__)
    match = _NAMED_LAST.search(str(error))
    name = match[1] if match else ""
    # null counts as left out, as in Flink.
    if body.get(name) is None:
        return f"{name} is missing."
    flags = {each.encode_name for each in msgspec.structs.fields(kind) if each.type == (bool | None)}
    return f"{name} must be true or false." if name in flags else f"{name} must be text."


def _check_id(trigger_id: str | None) -> None:
    if trigger_id is not None and len(trigger_id) > MAX_TRIGGER_ID:
        raise ValueError(f"triggerId has at most {MAX_TRIGGER_ID} characters.")


def _check_format(format_type: str | None) -> None:
    if format_type and format_type not in _FORMATS:
        raise ValueError("formatType is CANONICAL or NATIVE.")


class CheckpointTriggerRequest(Struct, frozen=True, rename="camel"):
    trigger_id: TriggerId | None = None
    checkpoint_type: CheckpointType | None = None

    def __post_init__(self) -> None:
        _check_id(self.trigger_id)
        if self.checkpoint_type and self.checkpoint_type not in _CHECKPOINT_TYPES:
            raise ValueError("checkpointType is CONFIGURED, FULL or INCREMENTAL.")

    @property
    def full(self) -> bool | None:
        """Whether all files are stored again; None for what is configured."""
        if not self.checkpoint_type:
            return None
        return _CHECKPOINT_TYPES[self.checkpoint_type]


class SavepointTriggerRequest(Struct, frozen=True):
    target_directory: str | None = field(name="target-directory", default=None)
    cancel_job: bool | None = field(name="cancel-job", default=None)
    trigger_id: TriggerId | None = field(name="triggerId", default=None)
    format_type: FormatType | None = field(name="formatType", default=None)

    def __post_init__(self) -> None:
        _check_id(self.trigger_id)
        _check_format(self.format_type)

    @property
    def format(self) -> str:
        return self.format_type or _FORMATS[0]


class StopWithSavepointRequest(Struct, frozen=True, rename="camel"):
    target_directory: str | None = None
    trigger_id: TriggerId | None = None
    drain: bool | None = None
    format_type: FormatType | None = None

    def __post_init__(self) -> None:
        _check_id(self.trigger_id)
        _check_format(self.format_type)

    @property
    def format(self) -> str:
        return self.format_type or _FORMATS[0]


class SavepointDisposalRequest(Struct, frozen=True):
    savepoint_path: Annotated[str, Meta(extra_json_schema={"minLength": 1})] = field(name="savepoint-path")
    trigger_id: TriggerId | None = field(name="triggerId", default=None)

    def __post_init__(self) -> None:
        if not self.savepoint_path:
            raise ValueError("savepoint-path is missing.")
        _check_id(self.trigger_id)
