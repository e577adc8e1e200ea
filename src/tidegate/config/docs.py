"""The page of all options, made of their declarations.

`python -m tidegate.config.docs > docs/operations/options.md`
"""

from __future__ import annotations

from typing import Any

from tidegate.config.declared import FOREIGN, HANDED_ON, SECTIONS
from tidegate.config.option import Effect, Option

_HEAD = """\
# Options

Generated from the declarations in `tidegate.config.declared`; do not edit by hand.

Keys, defaults and rules are Flink's. They are given to the job: in `tg.Checkpointing(…)`, in `run(options={…})`, or as
`-Dkey=value`; no configuration file is read. Old names are still read, and the job's log says what they are called now. An
unknown key is refused with the nearest known one.

One default is not Flink's: `execution.checkpointing.externalized-checkpoint-retention`. A job is found again by its
name, so cancelling it must not destroy its only checkpoint. `execution.checkpointing.incremental` is off as in Flink; switch it
on for large state.

In the column "effect", **none** means that the key is accepted, so that a configuration can be shared with Flink, and changes
nothing; the reason is given here and in the job's log. **later** means that it is checked and not acted on yet.
"""


def render() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, text, options in SECTIONS:
        rows = [_row(option) for option in options]
        table = ["| key | type | default | effect | meaning |", "|---|---|---|---|---|", *rows]
        parts.append(f"## {title}\n\n{text}\n\n" + "\n".join(table) + "\n")
    foreign = [f"| `{family}*` | {reason} |" for family, reason in FOREIGN.items()]
    own = ", ".join(f"`{family}*`" for family in HANDED_ON)
    parts.append(
        "## Other keys of Flink's\n\nAccepted without effect, each with its reason:\n\n"
        + "\n".join(["| keys | reason |", "|---|---|", *foreign])
        + f"\n\nHanded on to the state backend, which checks them: {own}.\n"
    )
    return "\n".join(parts)


def _row(option: Option[Any]) -> str:
    default = option.shown_default() + (f" (Flink: {option.flink_default})" if option.flink_default else "")
    old = f" Was {', '.join(f'`{key}`' for key in option.old_keys)}." if option.old_keys else ""
    effect = "" if option.effect is Effect.ACTS else f"**{option.effect.value}**"
    reason = f" *{option.reason}*" if option.reason else ""
    cells = (f"`{option.key}`", option.kind.name, default, effect, option.text + reason + old)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(render(), end="")
