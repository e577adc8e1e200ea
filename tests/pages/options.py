"""The page of all options, made of their declarations.

`python -m tests.pages.options > docs/operations/options.md`
"""

from __future__ import annotations

from typing import Any

from tidegate.config.declared import HANDED_ON, SECTIONS
from tidegate.config.option import Option
from tidegate.config.without_effect import FAMILIES, WITHOUT_EFFECT, WithoutEffect

_HEAD = """\
# Options

<!-- Generated from `tidegate.config.declared` and `tidegate.config.without_effect`; do not edit by hand. -->

This page lists every option of a job. Keys, defaults and rules are Flink's. A job sets options in `tg.Checkpointing(…)`, in
`run(options={…})`, or as `-Dkey=value`. What all jobs share goes into a file `config.yaml`, flat or nested as in Flink, in the
directory that the driver's environment variable `TIDEGATE_CONF_DIR` names. A job's own options take precedence over the file:

```yaml
execution.checkpointing:
  interval: 10 s
  dir: s3://bucket/checkpoints
state.backend.type: rocksdb
rest.port: 8082
```

The driver reads the file whenever a job starts. A directory for checkpoints in it makes every streaming job durable, found
again by its name; jobs on batch DataFrames ignore it. Other commands find the REST server of a job by it
(`rest.port`, `rest.bind-address`), and take the credentials of a store from the environment.

The UI and REST show for each option whether its value comes from the file (`file`), the job's code (`code`) or the command line
(`-D`). Old names are still read, and the job's log says what they are called now. An unknown key is refused; the message names
the nearest known one.

A duration has a unit: `500 ms`, `10 s`, `5 min`, `1 h`, `1 day`. Under a key, a number without a unit is milliseconds, as in
Flink. Arguments such as `tg.Checkpointing(interval=…)` and flags such as `--trigger` refuse such a number, except 0: write
`"30 s"`, `"30 ms"` or `timedelta(seconds=30)`.

Two defaults are not Flink's. `execution.checkpointing.externalized-checkpoint-retention`: a job is found again by its
name, so cancelling it must not destroy its only checkpoint. `job.autoscaler.scaling.enabled`: the autoscaler recommends, and acts
only if it is asked to. `execution.checkpointing.incremental` is off as in Flink; switch it on for large state.

Flink options that change nothing here are accepted, so that a configuration can be shared with Flink. They are in a table of
their own [below](#flink-options-without-effect).
"""

_WITHOUT_EFFECT = """\
## Flink options without effect

If you set one of these to something other than Flink's default, the job's log states why it changes nothing. "Not yet" marks
those that a later version may act on. Flink's rules about combinations still apply: a start that Flink refuses because of
`state.changelog.enabled`, for example, is refused here too. Apart from those rules, the values are not checked.
"""


def render() -> str:
    """The whole page."""
    silent = {each.key for each in WITHOUT_EFFECT}
    parts = [_HEAD]
    for title, text, options in SECTIONS:
        rows = [_row(option) for option in options if option.key not in silent]
        if rows:
            table = ["| key | type | default | meaning |", "|---|---|---|---|", *rows]
            parts.append(f"## {title}\n\n{text}\n\n" + "\n".join(table) + "\n")
    without = ["| key | default | in Flink | here |", "|---|---|---|---|", *map(_row_without_effect, WITHOUT_EFFECT)]
    parts.append(_WITHOUT_EFFECT + "\n" + "\n".join(without) + "\n")
    families = [f"| `{family}*` | {reason} |" for family, reason in FAMILIES.items()]
    own = ", ".join(f"`{family}*`" for family in HANDED_ON)
    parts.append(
        "All other keys that begin with one of these prefixes:\n\n"
        + "\n".join(["| keys | reason |", "|---|---|", *families])
        + f"\n\nHanded on to the state backend, which checks them: {own}. For memory, see [memory of RocksDB](memory.md).\n"
    )
    return "\n".join(parts)


def _row(option: Option[Any]) -> str:
    default = option.shown_default() + (f" (Flink: {option.flink_default})" if option.flink_default else "")
    return _cells(f"`{option.key}`", option.kind.name, default, option.text + _old(option.old_keys))


def _row_without_effect(option: WithoutEffect) -> str:
    here = ("**Not yet.** " if option.later else "") + option.reason
    return _cells(f"`{option.key}`", option.default or "none", option.text + _old(option.old_keys), here)


def _old(keys: tuple[str, ...]) -> str:
    return f" Was {', '.join(f'`{key}`' for key in keys)}." if keys else ""


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(render(), end="")
