"""What a sink does once in the driver, before tasks write to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tidegate as tg
from tests.unit.api.shop import Frame
from tidegate.runtime.checkpoints.committers import Committers


@dataclass(frozen=True)
class Prepared(tg.DiscardSink):
    seen: list[str] = field(default_factory=list)

    def prepare(self, schema: Any) -> None:
        self.seen.append(schema.ddl())


def test_a_sink_is_prepared_when_its_committer_is_created_and_others_need_not_be() -> None:
    sink = Prepared()
    job = tg.Job("j")
    rows = job.source("in", Frame("value string"))
    rows.sink("out", sink)
    rows.sink("plain", tg.DiscardSink())
    Committers(job.graph(), None)
    assert sink.seen == ["value string"]
