"""The explanations of errors: every code has one, and what an example says is what happens."""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from tests.architecture.test_errors import INTERNAL, error_classes, families_of
from tests.pages.errors import pages
from tests.sparks import ROOT
from tidegate.control.cli import main
from tidegate.control.explained.error_texts import ErrorText, error_texts
from tidegate.core.errors import TidegateError

TEXTS = error_texts()
CLASSES: dict[str, type[TidegateError]] = {TidegateError.code: TidegateError} | {
    kind.code: kind for kind in error_classes()
}
FAMILY_ONLY = {"TIDEGATE", "CONFIGURATION", "STORAGE", "CHECKPOINT", "METADATA", "CONNECTOR", "CONTROL", "KAFKA"}
"""Only subclasses of these are ever raised; an example raises one of them."""


def test_every_code_has_a_text_and_every_text_a_code() -> None:
    assert set(TEXTS) == set(CLASSES)


@pytest.mark.parametrize("code", CLASSES)
def test_a_text_agrees_with_its_class(code: str) -> None:
    text, kind = TEXTS[code], CLASSES[code]
    family = "TidegateError" if kind is TidegateError or kind.__name__ in INTERNAL else families_of(kind)[0]
    assert (text.name, text.family, text.retryable) == (kind.__name__, family, kind.retryable)


@pytest.mark.parametrize("code", TEXTS)
def test_a_text_is_complete_and_short(code: str) -> None:
    text = TEXTS[code]
    assert text.meaning.endswith(".")
    assert text.causes
    assert all(cause.endswith(".") for cause in text.causes)
    assert re.fullmatch(r"[A-Z].*[^. ]\.", text.advice)
    assert bool(text.example) == bool(text.language)
    assert text.example or text.story, "what happens, if no example shows it"
    assert text.example or text.test, "an example that runs, or a test that provokes the error"
    assert len(text.meaning) + sum(map(len, text.causes)) + len(text.fix) < 1000


@pytest.mark.parametrize("code", [code for code, text in TEXTS.items() if text.language == "py"])
def test_an_example_raises_its_error(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with patch.dict(sys.modules), warnings.catch_warnings(), pytest.raises(CLASSES[code]) as raised:
        exec(compile(TEXTS[code].example, f"<example of {code}>", "exec"), {"__name__": "__main__"})
    assert code in FAMILY_ONLY or raised.value.code == code


@pytest.mark.parametrize("code", [code for code, text in TEXTS.items() if text.language == "console"])
def test_a_command_ends_with_its_error(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in TEXTS[code].example.splitlines():
        assert line.startswith("$ tidegate ")
        result = CliRunner().invoke(main, shlex.split(line)[2:])
    assert result.exit_code == 3
    assert result.output.startswith(f"{code}: ")
    assert result.output.endswith(f"\nHelp: tidegate explain {code}\n")


@pytest.mark.parametrize("code", [code for code, text in TEXTS.items() if text.test])
def test_the_test_that_a_text_names_exists_and_is_about_its_error(code: str) -> None:
    file, _, name = TEXTS[code].test.partition("::")
    source = (ROOT / file).read_text()
    assert re.search(rf"^(?:async )?def {name}\(", source, re.MULTILINE)
    assert re.search(rf"\b({code}|{CLASSES[code].__name__})\b", source)


@pytest.mark.parametrize("text", TEXTS.values(), ids=lambda text: text.code)
def test_codes_that_a_text_mentions_exist(text: ErrorText) -> None:
    prose = " ".join((text.meaning, *text.causes, text.fix))
    mentioned = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", prose))
    assert {code for code in mentioned if not code.startswith(("TIDEGATE_", "JAVA_", "AWS_", "NO_CLAIM"))} <= set(
        CLASSES
    )


def test_the_pages_are_up_to_date() -> None:
    """If this fails: python -m tests.pages.errors docs/reference"""
    folder = ROOT / "docs" / "reference"
    made = pages()
    assert {path: (folder / path).read_text() if (folder / path).exists() else None for path in made} == made
    assert {f"errors/{path.name}" for path in (folder / "errors").glob("*.md")} == set(made) - {"errors.md"}
