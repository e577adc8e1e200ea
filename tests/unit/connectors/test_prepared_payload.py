"""What a writer returns for its commit is checked where it is returned: in the task, and in the contract suite."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.connectors.sink import prepared_payload


class Returning:
    def __init__(self, payload: Any) -> None:
        self._payload = payload

    def write(self, batch: Any) -> None: ...

    def prepare_commit(self) -> Any:
        return self._payload

    def abort(self) -> None: ...


@pytest.mark.parametrize("payload", [None, b"", b"rows"])
def test_bytes_and_nothing_are_accepted(payload: bytes | None) -> None:
    assert prepared_payload(Returning(payload), "out") == payload


def test_a_token_must_be_encoded() -> None:
    with pytest.raises(TypeError, match=r"Sink 'out': prepare_commit\(\) of Returning returned str\. Return bytes"):
        prepared_payload(Returning("token"), "out")
