"""How long a task waits for its uploads at the end of an epoch."""

from __future__ import annotations

import threading
import time
from typing import Any

from tidegate.runtime.task.background_upload import UploadHandle, UploadWorker


class SlowUpload:
    """An upload of several parts; its result is there when it has ended."""

    def __init__(self) -> None:
        self.part: bytes | None = None

    def finished(self) -> bytes | None:
        return self.part


def handle() -> tuple[UploadHandle, Any]:
    upload: Any = SlowUpload()
    order: Any = None
    return UploadHandle(order, UploadWorker(upload=upload)), upload


def test_a_task_waits_for_the_last_part_of_an_upload_not_for_the_next() -> None:
    handed, upload = handle()

    def store() -> None:
        for _ in range(3):
            time.sleep(0.01)
            handed.worker.progress()
        upload.part = b"done"
        handed.worker.end(None)

    threading.Thread(target=store, daemon=True).start()
    assert handed.answer(30.0) == (b"done", None)


def test_a_task_does_not_wait_longer_than_it_may() -> None:
    handed, _ = handle()
    began = time.monotonic()
    assert handed.answer(0.02) == (None, None)
    assert time.monotonic() - began < 10
