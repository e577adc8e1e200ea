"""Every option with the value that holds for a job, and where that value comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.config.declared import ALL
from tidegate.config.option import as_text
from tidegate.config.reading import Options
from tidegate.core.redaction import redacted

DEFAULT = "default"
CODE = "code"
COMMAND_LINE = "-D"
FILE = "file"


class CommandLineOptions(dict[str, str]):
    """Options given on a command line: reports distinguish them from those in the job's code."""


@dataclass(frozen=True, slots=True)
class EffectiveOption:
    key: str
    value: str
    origin: str
    """`default`, `file`, `code` or `-D`."""


def effective(
    read: Options, given: Mapping[str, Any], job: Mapping[str, Any], shared: Mapping[str, Any]
) -> tuple[EffectiveOption, ...]:
    """All declared options and those handed on to state backends, by key.

    `given` are the options of the start, `job` all that the job sets, and `shared` what the file sets for all jobs.
    """
    set_by = COMMAND_LINE if isinstance(given, CommandLineOptions) else CODE

    def origin(key: str, old_keys: tuple[str, ...] = ()) -> str:
        names = (key, *old_keys)
        if any(name in given for name in names):
            return set_by
        return FILE if any(name in shared for name in names) and not any(name in job for name in names) else CODE

    found = [
        EffectiveOption(option.key, _shown(option.kind.show, read[option]), origin(option.key, option.old_keys))
        if option.key in read.values
        else EffectiveOption(option.key, option.shown_default(), DEFAULT)
        for option in ALL
    ]
    found += [EffectiveOption(key, redacted(as_text(value)), origin(key)) for key, value in read.handed_on.items()]
    return tuple(sorted(found, key=lambda each: each.key))


def _shown(show: Any, value: Any) -> str:
    return "none" if value is None else redacted(show(value))
