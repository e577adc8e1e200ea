"""Flags about what a job starts from. `run` and `compat` have the same, and turn them into the same options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tidegate.config.declared import recovery
from tidegate.config.option import Option
from tidegate.control.cli.flink_flags import FlinkNamed
from tidegate.control.cli.output import BadOption

F = TypeVar("F", bound=Callable[..., Any])

_FLAGS = (
    click.option(
        "-n",
        "--allow-non-restored-state",
        "allow",
        cls=FlinkNamed,
        flink=["--allowNonRestoredState"],
        is_flag=True,
        help="Drop state that the job does not declare.",
    ),
    click.option("--map-uid", "uids", multiple=True, metavar="OLD=NEW", help="The operator OLD is now called NEW."),
    click.option("--renamed", multiple=True, metavar="UID/STATE:OLD=NEW", help="A field of a state was renamed."),
    click.option(
        "--drop-state",
        "drops",
        multiple=True,
        metavar="UID/STATE[:FIELD]",
        help="Start without this state of the snapshot, or without this field of its class.",
    ),
)


def recovery_flags(command: F) -> F:
    """Add the flags to a command. It gets them as `allow`, `uids`, `renamed` and `drops`: see `recovery_options`."""
    # Decorators apply from the last to the first, and help lists options in the order of the source.
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


def recovery_options(
    allow: bool, uids: tuple[str, ...], renamed: tuple[str, ...], drops: tuple[str, ...]
) -> dict[str, str]:
    """Return the options that the flags stand for. Raises `BadOption`, which names the flag."""
    options: dict[str, str] = {}
    if allow:
        options[recovery.IGNORE_UNCLAIMED.key] = "true"
    flags: tuple[tuple[str, Option[Any], tuple[str, ...]], ...] = (
        ("--map-uid", recovery.MAP_UIDS, uids),
        ("--renamed", recovery.RENAMED_FIELDS, renamed),
        ("--drop-state", recovery.DROP_STATE, drops),
    )
    for flag, option, texts in flags:
        for text in texts:
            try:
                option.parse(text)
            except ValueError as error:
                # Of the option, the error would name a key that the user has not written.
                raise BadOption(f"{flag} {error}.") from None
        if texts:
            options[option.key] = ", ".join(texts)
    return options
