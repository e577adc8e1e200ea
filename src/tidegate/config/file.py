"""The configuration file for all jobs: `key: value` or `key = value` lines, flat or nested, as Flink's config.yaml has them.

That much of YAML is read here, without a YAML library. Lists, anchors and flow style are refused by line number.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tidegate.config.errors import OptionError

CONF_DIR_VARIABLE = "TIDEGATE_CONF_DIR"
"""Names the directory of the file, as FLINK_CONF_DIR does for Flink."""
FILE_NAME = "config.yaml"
SERVER_KEYS = ("rest.port", "rest.bind-address", "rest.allowed-hosts")
"""Options of the REST server. `tidegate run` reads them; they are no options of a job."""
_LINE = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z0-9_.\-]+)\s*(?P<sign>[:=])(?P<value>.*)")


def shared_options() -> dict[str, str]:
    """The options that hold for all jobs: those of `$TIDEGATE_CONF_DIR/config.yaml`, and none if the variable is not set.

    Raises `OptionError` if the file cannot be read: a job that silently ran without it could lose its checkpoints.
    """
    folder = os.environ.get(CONF_DIR_VARIABLE)
    if not folder:
        return {}
    path = Path(folder) / FILE_NAME
    try:
        return read_file(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionError(
            (f"{CONF_DIR_VARIABLE} is set, but {path} cannot be read ({why}): create the file, or unset the variable.",)
        ) from error
    except OptionError as error:
        raise OptionError(tuple(f"{path}, {problem}" for problem in error.problems)) from error


def read_file(text: str) -> dict[str, str]:
    """Dotted keys and their text. Raises `OptionError` with the number of every line that cannot be read."""
    found: dict[str, str] = {}
    problems: list[str] = []
    open_keys: list[tuple[int, str]] = []
    sections: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        bare = _without_comment(line).rstrip()
        if not bare or bare in ("---", "..."):
            continue
        match = _LINE.fullmatch(bare)
        value = match["value"].strip() if match else ""
        if match is None or value[:1] in ("[", "{", "&", "*", "|", ">"):
            problems.append(f"line {number} is not 'key: value'.")  # Not the line itself, which may hold a secret.
            continue
        # A line belongs to the open sections that are indented less than it.
        indent = len(match["indent"])
        while open_keys and open_keys[-1][0] >= indent:
            open_keys.pop()
        key = ".".join([name for _, name in open_keys] + [match["key"]])
        if not value and match["sign"] == ":":
            open_keys.append((indent, match["key"]))
            sections[key] = number
        elif key in found:
            problems.append(f"line {number} sets {key} again.")
        else:
            found[key] = _unquoted(value)
    empty = [(number, key) for key, number in sections.items() if not any(name.startswith(f"{key}.") for name in found)]
    problems += [f"line {number} gives no value to {key}." for number, key in empty]
    if problems:
        raise OptionError(tuple(problems))
    return found


def _without_comment(line: str) -> str:
    """A `#` begins a comment at the start of a line or after a space, outside a value in quotes."""
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and line[:at].rstrip().endswith((":", "=")):
            quote = char
        elif char == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at]
    return line


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"" else value
