"""What Spark's UI shows of the jobs of an epoch. No JVM."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from tidegate.core.ids import EpochId, Term
from tidegate.graph.levels import plan
from tidegate.runtime.job_label import JobLabel, JobLabels, placement_label

DESCRIPTION = "spark.job.description"


class Session:
    """The settings and tags of a session."""

    def __init__(self, **settings: str) -> None:
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.tags: set[str] = set()
        self.conf: Any = self

    def get(self, key: str, default: str | None) -> str | None:
        return self.settings.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value

    def unset(self, key: str) -> None:
        del self.settings[key]

    def addTag(self, tag: str) -> None:
        self.tags.add(tag)

    def removeTag(self, tag: str) -> None:
        self.tags.remove(tag)


def labels(job: str = "orders", levels: int = 1) -> JobLabels:
    declared = tg.Job(job, parallelism=2)
    stream = declared.source("rows", tg.testing.frame("user string"))
    for level in range(1, levels + 1):
        stream = stream.key_by("user").aggregate(f"counts_{level}", n=tg.count())
    stream.sink("out", tg.DiscardSink())
    graph = declared.graph()
    return JobLabels(graph, plan(graph))


EPOCH = EpochId(Term(3), 41)


def test_description_names_the_job_the_epoch_and_the_operators_of_each_level():
    label = labels(levels=2).epoch(EPOCH, restores=False, has_rows=True)
    assert label.description == "orders: epoch 3.41; level 1: counts_1; level 2: counts_2, out"


@pytest.mark.parametrize(
    ("restores", "has_rows", "kind"), [(True, False, "restores state"), (False, False, "without rows")]
)
def test_description_says_what_an_epoch_without_a_batch_is_for(restores, has_rows, kind):
    assert f"epoch 3.41 {kind};" in labels().epoch(EPOCH, restores=restores, has_rows=has_rows).description


def test_a_level_has_the_name_of_its_operators_shortened_if_there_are_many():
    assert labels().level(0) == "sources"
    assert labels().level(1) == "level 1: counts_1, out"
    declared = tg.Job("many")
    rows = declared.source("rows", tg.testing.frame("user string")).key_by("user")
    for n in range(30):
        rows.aggregate(f"counts_{n}", n=tg.count()).sink(f"out_{n}", tg.DiscardSink())
    graph = declared.graph()
    name = JobLabels(graph, plan(graph)).level(1)
    assert len(name) == 80
    assert name.endswith("…")


def test_a_tag_names_job_and_epoch_without_the_comma_that_separates_tags():
    assert labels().epoch(EPOCH, restores=False, has_rows=True).tag == "tidegate-orders-epoch-3.41"
    assert placement_label("a,b").tag == "tidegate-a_b-placement"


def test_jobs_of_the_block_are_labelled_and_no_others():
    session: Any = Session()
    with JobLabel("what", "tag").on(session):
        assert (session.settings, session.tags) == ({DESCRIPTION: "what"}, {"tag"})
    assert (session.settings, session.tags) == ({}, set())


def test_a_description_of_the_users_own_is_there_again_afterwards():
    session: Any = Session(spark_job_description="mine")
    with pytest.raises(ValueError), JobLabel("what", "tag").on(session):
        raise ValueError
    assert session.settings == {DESCRIPTION: "mine"}


def test_a_session_that_ends_meanwhile_does_not_hide_the_error():
    class Ending(Session):
        def removeTag(self, tag: str) -> None:
            raise RuntimeError("the session has ended")

    session: Any = Ending()
    with pytest.raises(ValueError, match="the error"), JobLabel("what", "tag").on(session):
        raise ValueError("the error")
