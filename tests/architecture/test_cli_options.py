"""Options of all commands: one spelling, one meaning for each short flag; Flink's own spellings are aliases with a table."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from tests.sparks import ROOT
from tidegate.control.cli import main
from tidegate.control.cli.flink_flags import FlinkNamed

KEBAB = re.compile(r"--[a-z][a-z0-9]*(-[a-z0-9]+)*")
SHORT = re.compile(r"-[a-zA-Z]")
PAGE = ROOT / "docs" / "operations" / "cli.md"


def options(command: click.Command = main, path: str = "tidegate") -> Iterator[tuple[str, click.Option]]:
    context = click.Context(command)
    yield from ((path, each) for each in command.params if isinstance(each, click.Option))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from options(inner, f"{path} {name}")
    if path == "tidegate savepoint":  # `savepoint JOB` is a command without a name of its own
        from tidegate.control.cli.jobs import take_savepoint

        yield from options(take_savepoint, "tidegate savepoint JOB")


def own_names(option: click.Option) -> list[str]:
    aliases = option.flink if isinstance(option, FlinkNamed) else ()
    return [name for name in (*option.opts, *option.secondary_opts) if name not in aliases]


def primary(option: click.Option) -> str:
    """The spelling to learn: the first long one, or the flag if there is none."""
    names = own_names(option)
    return next((name for name in names if name.startswith("--")), names[0])


def test_options_are_kebab_case_except_flinks_aliases() -> None:
    wrong = [
        (path, name)
        for path, option in options()
        for name in own_names(option)
        if not KEBAB.fullmatch(name) and not SHORT.fullmatch(name)
    ]

    assert wrong == []


def test_a_short_flag_means_the_same_in_all_commands_except_flinks_aliases() -> None:
    meanings: dict[str, set[str]] = {}
    for _, option in options():
        for name in own_names(option):
            if SHORT.fullmatch(name):
                meanings.setdefault(name, set()).add(primary(option))

    assert {flag: longs for flag, longs in meanings.items() if len(longs) > 1} == {}


def test_the_page_has_a_table_of_flinks_aliases() -> None:
    _, _, section = PAGE.read_text().partition("\n## Flink's spellings\n")
    rows = re.findall(r"^\| (.+?) \| `(--[a-z-]+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    listed = {(alias, ours) for aliases, ours in rows for alias in re.findall("`([^`]+)`", aliases)}

    assert listed
    assert listed == {
        (alias, primary(option)) for _, option in options() if isinstance(option, FlinkNamed) for alias in option.flink
    }


@pytest.mark.parametrize("verb", ["run", "stop"])
def test_help_shows_the_one_spelling_first(verb: str) -> None:
    command = main.get_command(click.Context(main), verb)
    assert command is not None
    for option in command.params:
        if isinstance(option, FlinkNamed):
            record = option.get_help_record(click.Context(command))
            assert record is not None
            names, text = record
            assert primary(option) in names
            assert not [alias for alias in option.flink if alias in re.split(r"[ ,]+", names)]
            assert text.endswith(f"[Flink: {', '.join(option.flink)}]")


ALIASES = [
    pytest.param(path, option, alias, id=f"{path} {alias}")
    for path, option in options()
    if isinstance(option, FlinkNamed)
    for alias in option.flink
]


@pytest.mark.parametrize(("path", "option", "alias"), ALIASES)
def test_flinks_spelling_is_read_like_ours(path: str, option: FlinkNamed, alias: str) -> None:
    command = click.Command(path, params=[option])
    value = [] if option.is_flag else ["native" if "--type" in option.opts else "claim"]

    flink = command.make_context(path, [alias, *value]).params
    ours = command.make_context(path, [primary(option), *value]).params

    assert flink == ours != command.make_context(path, []).params
