"""What is decided about a job before Spark runs anything of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tests.unit.api.shop import Frame
from tidegate.runtime.driver.session import REQUIREMENTS

SETTINGS = {requirement.key: requirement.wanted for requirement in REQUIREMENTS}


class Session:
    """As much of a SparkSession as is asked before the first row."""

    version = "4.2.0"

    class conf:
        @staticmethod
        def get(key: str, default: str | None = None) -> str | None:
            return SETTINGS.get(key, default)


class Socket(Frame):
    """A stream that keeps no row, as Spark prints its plan."""

    def explain(self, extended: bool) -> None:
        print(
            "StreamingRelationV2 org.apache.spark.sql.execution.streaming.sources.TextSocketSourceProvider@4bb4, socket"
        )


@pytest.fixture
def checkpoint(tmp_path: Path) -> tg.Checkpointing:
    return tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 s")


@pytest.mark.feature("J11")
def test_a_job_with_checkpoints_does_not_start_on_a_source_that_cannot_be_read_again(
    checkpoint: tg.Checkpointing,
) -> None:
    job = tg.Job("forgets", parallelism=1)
    job.source("in", Socket("value string")).sink("out", tg.DiscardSink())
    with pytest.raises(tg.errors.PreconditionFailed, match=r"source 'in' reads a socket.*at_most_once=True"):
        job.start(Session(), checkpoint=checkpoint)  # type: ignore[arg-type]


@pytest.mark.feature("L2")
def test_a_bounded_job_takes_no_checkpoints(checkpoint: tg.Checkpointing) -> None:
    job = tg.Job("bounded", parallelism=1)
    job.source("in", Frame("a int", isStreaming=False)).sink("out", tg.DiscardSink())
    with pytest.raises(tg.errors.PreconditionFailed, match="takes no checkpoints: Spark repeats tasks that fail"):
        job.run(Session(), checkpoint=checkpoint)  # type: ignore[arg-type]
