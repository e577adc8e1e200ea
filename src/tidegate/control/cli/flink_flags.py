"""Options that Flink's CLI spells in another way: `--fromSavepoint`, `-type`, `-detached`."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import click


class FlinkNamed(click.Option):
    """An option that also has Flink's names. Help lists them last, so that there is one spelling to learn."""

    def __init__(self, names: Sequence[str], *, flink: Sequence[str], **settings: Any) -> None:
        super().__init__([*names, *flink], **settings)
        self.flink = tuple(flink)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        # click lists all names of an option. A copy without the others makes the line, and they follow the help text.
        ours = copy(self)
        ours.opts = [name for name in self.opts if name not in self.flink]
        record = super(FlinkNamed, ours).get_help_record(ctx)
        if record is None:
            return None  # hidden
        names, text = record
        return names, f"{text}  [Flink: {', '.join(self.flink)}]"
