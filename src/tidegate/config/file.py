"""A configuration file: `key: value` or `key = value` lines, flat or nested, as Flink's config.yaml has them.

That much of YAML is read here, without a YAML library. Lists, anchors and flow style are refused by line number.
"""

from __future__ import annotations

import re

from tidegate.config.errors import OptionError

_LINE = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z0-9_.\-]+)\s*(?P<sign>[:=])(?P<value>.*)")


def read_file(text: str) -> dict[str, str]:
    """Dotted keys and their text. Raises `OptionError` with the number of every line that cannot be read."""
    found: dict[str, str] = {}
    problems: list[str] = []
    open_keys: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        bare = _without_comment(line).rstrip()
        if not bare or bare in ("---", "..."):
            continue
        match = _LINE.fullmatch(bare)
        value = match["value"].strip() if match else ""
        if match is None or value[:1] in ("[", "{", "&", "*", "|", ">"):
            problems.append(f"line {number} is not 'key: value': {bare.strip()!r}.")
            continue
        indent = len(match["indent"])
        while open_keys and open_keys[-1][0] >= indent:
            open_keys.pop()
        key = ".".join([name for _, name in open_keys] + [match["key"]])
        if not value and match["sign"] == ":":
            open_keys.append((indent, match["key"]))
        elif key in found:
            problems.append(f"line {number} sets {key} again.")
        else:
            found[key] = _unquoted(value)
    if problems:
        raise OptionError(tuple(problems))
    return found


def _without_comment(line: str) -> str:
    """A `#` begins a comment at the start of a line or after a space, outside quotes."""
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at]
    return line


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"" else value
