"""From mappings of keys to text to typed, checked options.

Two layers: the cluster's configuration and the job's own, which wins. Within a layer a key wins over its old names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidegate.config.choices import RestartType
from tidegate.config.declared import ALL, HANDED_ON, restart
from tidegate.config.errors import OptionError, OptionNote
from tidegate.config.file import SERVER_KEYS
from tidegate.config.option import Option, as_text
from tidegate.config.rules import conflicts, remarks
from tidegate.config.without_effect import FAMILIES, WITHOUT_EFFECT, WithoutEffect
from tidegate.core.nearest import nearest

T = TypeVar("T")
# Those that are declared come last: they are checked, whether or not they have an effect.
_EVERY: tuple[Option[Any] | WithoutEffect, ...] = (*WITHOUT_EFFECT, *ALL)
_BY_KEY = {key: option for option in _EVERY for key in (option.key, *option.old_keys)}


@dataclass(frozen=True, slots=True)
class Options:
    """A checked configuration. `options[INTERVAL]` is the value that was set, or the default."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """What was set, under today's keys: typed, or as text for options without effect."""
    notes: tuple[OptionNote, ...] = ()
    handed_on: Mapping[str, str] = field(default_factory=dict)
    """Keys of state backends, as they were given."""

    def __getitem__(self, option: Option[T]) -> T:
        value: T = self.values.get(option.key, option.default)
        return value


def read_options(job: Mapping[str, object] | None = None, cluster: Mapping[str, object] | None = None) -> Options:
    """Merge, type and check. Raises `OptionError` with every problem; what is merely odd is in `notes`.

    Mappings may be flat or nested by the dots of keys; values may be text, numbers, booleans or timedeltas.
    """
    values: dict[str, Any] = {}
    handed_on: dict[str, str] = {}
    notes: list[OptionNote] = []
    problems: list[str] = []
    # The job comes first, and the newest name of a key within a layer: whoever sets a value first keeps it.
    for layer in (job or {}, cluster or {}):
        given = {key: as_text(value) for key, value in flatten(layer) if value is not None}
        for key in sorted(given, key=_newest_first):
            option = _BY_KEY.get(key)
            if option is None:
                _unknown(key, given[key], handed_on, notes, problems)
                continue
            try:
                value = option.parse(given[key])
            except ValueError as error:
                problems.append(f"{key} {error}.")
                continue
            if key != option.key:
                notes.append(OptionNote(key, f"This is an old name; use {option.key}."))
            # `fallback` means: as the cluster's configuration says. So it sets nothing, and the next layer may.
            if option is not restart.TYPE or value is not RestartType.FALLBACK:
                values.setdefault(option.key, value)
    # Rules between options only make sense for values that could be read.
    options = Options(values, handed_on=handed_on)
    if not problems:
        problems += conflicts(options.__getitem__)
    if problems:
        raise OptionError(tuple(problems))
    notes += [OptionNote(each.key, each.note) for each in WITHOUT_EFFECT if _is_changed(each.key, values)]
    notes += remarks(options.__getitem__)
    return Options(values, tuple(notes), handed_on)


def current_key(key: str) -> str:
    """Today's name of an option that may be given under an old one."""
    option = _BY_KEY.get(key)
    return option.key if option else key


def flatten(mapping: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted keys of a mapping whose values may be mappings, as nested YAML gives them."""
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _newest_first(key: str) -> tuple[str, int]:
    option = _BY_KEY.get(key)
    return (option.key, (option.key, *option.old_keys).index(key)) if option else (key, 0)


def _is_changed(key: str, values: Mapping[str, Any]) -> bool:
    """Whether it is set to something other than its default."""
    return key in values and values[key] != _BY_KEY[key].default


def _unknown(key: str, text: str, handed_on: dict[str, str], notes: list[OptionNote], problems: list[str]) -> None:
    if key.startswith(HANDED_ON):
        handed_on.setdefault(key, text)
        return
    for family, reason in FAMILIES.items():
        if key.startswith(family):
            notes.append(OptionNote(key, f"This has no effect on Spark. {reason}"))
            return
    near = nearest(key, (*_BY_KEY, *SERVER_KEYS))
    if key.startswith("spark."):
        meant = "Settings of Spark are not options of a job: tg.session(name, config={…}), or --conf of spark-submit."
    elif near is None:
        meant = "All options are in the documentation, on the page Options (operations/options.md)."
    else:
        meant = f"Did you mean {current_key(near)}?"
    problems.append(f"{key} is not an option. {meant}")
