"""What every error code means, why the error is raised and what to do: read from the Markdown files in `explained`.

There is one file for each family, with one section for each error:

    ## CODE · ClassName · retryable

    What it means.

    Causes:
    - …

    Fix: One sentence. More, if needed.

    Example:
    (a block: `py` raises the error, `console` is a command that ends with it)

    Test: `tests/….py::test_…` instead of, or after, an example
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

FAMILIES = {
    "ConfigurationError": "configuration.md",
    "GraphError": "graph.md",
    "UserCodeError": "user_code.md",
    "EpochFailed": "epoch.md",
    "StateError": "state.md",
    "StorageError": "storage.md",
    "CheckpointError": "checkpoint.md",
    "RestoreError": "restore.md",
    "ConnectorError": "connector.md",
    "ControlError": "control.md",
    "TidegateError": "internal.md",
}
"""Family → its file. The last holds errors that tidegate handles itself."""

_SECTION = re.compile(r"^## ", re.MULTILINE)
_BLOCK = re.compile(r"^Example:\n+```(py|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TEST = re.compile(r"^Test: (?:(.*?) )?`([^`]+)`\.?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorText:
    """One section."""

    code: str
    name: str
    """The class in `tidegate.errors`."""
    family: str
    concerns: str
    """What the errors of the family are about."""
    retryable: bool
    meaning: str
    causes: tuple[str, ...]
    fix: str
    example: str = ""
    language: str = ""
    """`py` or `console`."""
    story: str = ""
    """How the error comes about, where an example needs servers or a crash."""
    test: str = ""
    """The test that provokes the error, as pytest names it."""

    @property
    def advice(self) -> str:
        """The first sentence of the fix."""
        return re.split(r"(?<=\.)\s", self.fix, maxsplit=1)[0]


@cache
def error_texts() -> dict[str, ErrorText]:
    """Return all texts by code, in the order of the files."""
    texts: dict[str, ErrorText] = {}
    folder = files("tidegate.control.explained")
    for family, file in FAMILIES.items():
        head, *sections = _SECTION.split((folder / file).read_text(encoding="utf-8"))
        concerns = head.strip().removeprefix("# ").partition("\n")[2].strip()
        for section in sections:
            text = _parsed(section, family, concerns)
            texts[text.code] = text
    return texts


def _parsed(section: str, family: str, concerns: str) -> ErrorText:
    title, _, body = section.partition("\n")
    code, name, *more = (part.strip() for part in title.split("·"))
    block = _BLOCK.search(body)
    test = _TEST.search(body)

    # Without the example, which may contain lines that look like the headings below.
    prose = _TEST.sub("", _BLOCK.sub("", body))
    meaning, _, rest = prose.partition("\nCauses:\n")
    causes, _, fix = rest.partition("\nFix: ")
    return ErrorText(
        code=code,
        name=name,
        family=family,
        concerns=concerns,
        retryable=more == ["retryable"],
        meaning=_joined(meaning),
        causes=tuple(_joined(cause) for cause in re.split(r"^- ", causes, flags=re.MULTILINE) if cause.strip()),
        fix=_joined(fix),
        example=block[2] if block else "",
        language=block[1] if block else "",
        story=(test[1] or "") if test else "",
        test=test[2] if test else "",
    )


def _joined(text: str) -> str:
    """Paragraphs without line breaks inside."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n") if part.strip())
