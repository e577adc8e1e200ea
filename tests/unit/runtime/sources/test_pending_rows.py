"""Rows that wait in Kafka, from Spark's progress."""

from __future__ import annotations

import json

import pytest

from tidegate.runtime.sources.pending_rows import pending_rows


def test_pending_rows_are_what_lies_between_the_batch_and_the_end_of_every_partition() -> None:
    end, latest = {"orders": {"0": 10, "1": 7}}, {"orders": {"0": 15, "1": 7, "2": 3}}
    assert pending_rows({"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}) == 8
    assert pending_rows({"endOffset": end, "latestOffset": latest}) == 8


def test_a_topic_that_was_cut_off_has_no_negative_rows() -> None:
    assert pending_rows({"endOffset": {"t": {"0": 9}}, "latestOffset": {"t": {"0": 2}}}) == 0


@pytest.mark.parametrize("latest", [None, "null", "7", '{"logOffset": 3}', "not json", '{"t": {"0": "x"}}'])
def test_other_sources_have_no_number(latest: object) -> None:
    assert pending_rows({"endOffset": {"t": {"0": 9}}, "latestOffset": latest}) is None
