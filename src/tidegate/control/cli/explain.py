"""`tidegate explain CODE`: what an error means, why it is raised and what to do. Needs no network and no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import NO, Line, Output

if TYPE_CHECKING:
    from tidegate.control.explained.error_texts import ErrorText


@click.command("explain")
@click.argument("codes", metavar="[CODE]...", nargs=-1)
@with_output
def command(out: Output, codes: tuple[str, ...]) -> int:
    """Explain error codes, such as DUPLICATE_UID: what happened, why, and what to do. Without a CODE, list all of them.

    Exit code 1 if there is no such code.
    """
    from tidegate.control.explained.error_texts import error_texts

    texts = error_texts()
    if not codes:
        out.show({"errors": [asdict(text) for text in texts.values()]}, *_listed(list(texts.values())))
        return 0

    # As copied from a log, `DUPLICATE_UID:`, or from the kind of a failure, `duplicate-uid`.
    names = [code.strip().rstrip(":").upper().replace("-", "_") for code in codes]
    explained = [texts[code] for code in names if code in texts]
    unknown = [code for code in names if code not in texts]
    lines = [line for number, text in enumerate(explained) for line in ([Line("")] * (number > 0) + _explained(text))]
    document = {"errors": [asdict(text) for text in explained], "unknown": unknown}
    out.show(document, *lines, *(Line(_guess(code, texts), "yellow") for code in unknown))
    return NO if unknown else 0


def _listed(texts: Sequence[ErrorText]) -> list[Line]:
    lines: list[Line] = []
    for before, text in zip([None, *texts], texts):
        if before is None or before.family != text.family:
            lines += [Line("")] * (before is not None) + [Line(f"{text.family}: {text.concerns}", "bold")]
        lines.append(Line(f"  {text.code:<31} {text.advice}"))
    return lines


def _explained(text: ErrorText) -> list[Line]:
    retry = "the same call may succeed later" if text.retryable else "a retry alone does not help"
    lines = [
        Line(f"{text.code} ({text.name}, a {text.family}; {retry})", "bold"),
        Line(""),
        *map(Line, _lines(text.meaning)),
    ]
    lines += [Line(""), Line("Causes", "bold"), *(Line(f"  - {cause}") for cause in text.causes)]
    lines += [Line(""), Line("Fix", "bold"), *(Line(f"  {line}" if line else "") for line in _lines(text.fix))]
    if text.example:
        lines += [
            Line(""),
            Line("Example", "bold"),
            *(Line(f"  {line}" if line else "") for line in text.example.splitlines()),
        ]
    elif text.story:
        lines += [Line(""), Line("Example", "bold"), Line(f"  {text.story}")]
    return lines


def _lines(text: str) -> list[str]:
    return text.split("\n")


def _guess(code: str, texts: dict[str, ErrorText]) -> str:
    from tidegate.core.nearest import nearest

    near = nearest(code, texts)
    meant = f"Did you mean {near}?" if near else "`tidegate explain` lists all codes."
    return f"There is no error code {code}. {meant}"
