"""A snapshot that somebody else wrote makes the sink publish nothing but the output that the request names.

A committer receives its payloads from a checkpoint or savepoint, and anyone may have written those. What a committer
publishes, and where, must follow from the request (lineage, sink, epoch, slot) and from the sink's own configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from tidegate.connectors.outcome import outcome_of
from tidegate.connectors.sink import Committable
from tidegate.testing.sink_contract.target import SinkTarget, check
from tidegate.testing.sink_trial import SinkTrial

HOSTILE = (
    "../../outside",
    "/tmp/outside",
    "s3://other-bucket/outside",
    "http://127.0.0.1:1/outside",
    "staged ../../outside 1 sha256:0",
    "staged /etc/passwd 1 sha256:0",
    "staged http://127.0.0.1:1/outside 1 sha256:0",
    "x'; DROP TABLE users; --",
    "",
    "\x00",
)
"""Texts that name something else wherever a payload holds a name."""

GARBAGE = (b"", b"\x00", b"null", b"{}", b"[]", b"[[]]", b'"text"', b"7", b"{", b"\xc1", b"[" * 5_000)
"""Payloads that no writer returns."""

_FORMATS: tuple[tuple[Callable[[bytes], Any], Callable[[Any], bytes]], ...] = (
    (msgspec.json.decode, msgspec.json.encode),
    (msgspec.msgpack.decode, msgspec.msgpack.encode),
)
"""What payloads are usually written in."""


class ForgeryContract:
    """Every exactly-once sink compares a payload with the request that carries it."""

    def test_output_of_another_epoch_or_sink_is_refused(self, target: SinkTarget) -> None:
        trial, other = SinkTrial(target.sink(), parallelism=1), SinkTrial(target.sink(), "other", parallelism=1)
        # Both belong to one job, whose snapshots carry the output of both.
        other.lineage, other.storage = trial.lineage, trial.storage
        # Rows in a committable name nothing.
        trial.inlines = other.inlines = False
        trial.epoch(2)
        trial.epoch(2)
        other.epoch(2)
        trial.complete()
        other.complete()
        first, second = trial.requests()
        [elsewhere] = other.requests()
        for stranger in (second, elsewhere):
            _check_refused(trial, replace(first, payload=stranger.payload))
        assert target.rows() == []
        assert trial.release()
        assert other.release()
        check(target, trial, other)

    def test_a_payload_that_no_writer_wrote_is_refused(self, target: SinkTarget) -> None:
        """The job stops and says why, instead of repeating the commit."""
        trial = SinkTrial(target.sink(), parallelism=1)
        trial.epoch(2)
        trial.complete()
        [request] = trial.requests()
        for payload in (*GARBAGE, request.payload[:-1], request.payload[1:]):
            _check_refused(trial, replace(request, payload=payload))
        assert target.rows() == []
        assert trial.release()
        check(target, trial)

    def test_hostile_names_in_a_payload_publish_nothing_else(self, target: SinkTarget) -> None:
        """Each text in the payload is replaced in turn. The sink refuses the payload, or publishes exactly what it would
        have published without the change."""
        trial = _one_epoch(target)
        before: Counter[Any] = Counter()
        for payload in _forged(trial.requests()[0].payload):
            if _is_refused(trial, replace(trial.requests()[0], payload=payload)):
                assert Counter(target.rows()) == before, payload
                continue
            # This text does not matter. Later ones are tried with output that is not published yet.
            before += Counter(trial.expected)
            assert Counter(target.rows()) == before, payload
            trial = _one_epoch(target)
        assert trial.release()
        assert Counter(target.rows()) == before + Counter(trial.expected)


def _one_epoch(target: SinkTarget) -> SinkTrial:
    trial = SinkTrial(target.sink(), parallelism=1)
    trial.inlines = False
    trial.epoch(1)
    trial.complete()
    return trial


def _check_refused(trial: SinkTrial, forged: Committable) -> None:
    refused = _is_refused(trial, forged)
    assert refused, f"the sink accepted {forged.payload!r} for epoch {forged.epoch} of {forged.sink!r}"


def _is_refused(trial: SinkTrial, forged: Committable) -> bool:
    """Whether the sink refuses the request for good. Otherwise a job repeats it endlessly."""
    try:
        trial.new_committer().commit([forged])
    except Exception as error:
        if outcome_of(error).stops_the_job:
            return True
        raise AssertionError(
            f"the sink does not refuse {forged.payload!r}, and a job would repeat it endlessly"
        ) from error
    return False


def _forged(payload: bytes) -> Iterator[bytes]:
    """Yield the payload with one text replaced. A payload that is neither JSON nor MessagePack is one text."""
    for decode, encode in _FORMATS:
        try:
            tree = decode(payload)
        except (ValueError, msgspec.MsgspecError):
            continue
        yield from (encode(changed) for changed in _changed(tree))
        return
    yield from (text.encode() for text in HOSTILE)


def _changed(tree: Any) -> Iterator[Any]:
    match tree:
        case str():
            yield from HOSTILE
        case list():
            yield from _changed_items(list(enumerate(tree)), tree)
        case dict():
            yield from _changed_items(tree.items(), tree)


def _changed_items(items: Iterable[tuple[Any, Any]], tree: Any) -> Iterator[Any]:
    for key, value in items:
        for changed in _changed(value):
            copy = tree.copy()
            copy[key] = changed
            yield copy
