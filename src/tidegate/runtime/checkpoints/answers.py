"""Callers that wait for a checkpoint or savepoint, by the token of their request."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from tidegate.checkpoint.job_log.entry import CheckpointRef


class Answers:
    """Requests come from any thread; the loop completes them."""

    def __init__(self) -> None:
        self._waiting: dict[str, Future[CheckpointRef]] = {}
        self._for_output: set[str] = set()

    def expect(self, token: str, *, for_output: bool = False) -> Future[CheckpointRef]:
        """Register a request. `for_output`: it completes when the output is committed, not when the checkpoint is complete."""
        if for_output:
            self._for_output.add(token)
        answer: Future[CheckpointRef] = Future()
        self._waiting[token] = answer
        return answer

    def waits_for_output(self, token: str) -> bool:
        return token in self._for_output and token in self._waiting

    def take(self, token: str) -> Future[CheckpointRef]:
        """Remove a request that will be completed elsewhere."""
        self._for_output.discard(token)
        return self._waiting.pop(token)

    def give(self, token: str, result: CheckpointRef | Exception) -> None:
        """Complete the request, if there is one: periodic checkpoints have a token that no caller waits for."""
        self._for_output.discard(token)
        answer = self._waiting.pop(token, None)
        if answer is None:
            return
        # Another thread may have failed it at the same moment, in `refuse`.
        with contextlib.suppress(InvalidStateError):
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

    def refuse(self, error: BaseException) -> None:
        """Fail all waiting requests. May be called by any thread."""
        fail_all(tuple(self._waiting.values()), error)


def fail_all(answers: Iterable[Future[Any]], error: BaseException) -> None:
    """Fail those that are not completed yet."""
    for answer in answers:
        with contextlib.suppress(InvalidStateError):
            answer.set_exception(error)
