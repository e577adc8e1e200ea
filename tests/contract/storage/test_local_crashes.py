"""A writer of files is killed after each of its numbered steps: all of the object is there, or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.core import faults
from tidegate.storage import LocalStorage, ObjectMissing, Won

NONCE = "0123456789abcdef0123456789abcdef"
BODY = NONCE.encode() * 20_000
STEPS = ["1-written", "2-named", "3-private-name-gone", "4-durable"]
KILL_AT = """
import os, signal
def reached(point, **context):
    if point == {point!r}: os.kill(os.getpid(), signal.SIGKILL)
"""
WRITE = """
import pathlib, sys
from tidegate.storage import LocalStorage
storage, body = LocalStorage(pathlib.Path(sys.argv[1])), sys.argv[2].encode() * 20_000
storage.put("job/log/1", body) if sys.argv[3] == "put" else storage.create("job/log/1", body, sys.argv[2])
"""


@pytest.mark.parametrize("operation", ["put", "create"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_after_a_step(tmp_path: Path, operation: str, step: str) -> None:
    script = tmp_path / "faults.py"
    script.write_text(KILL_AT.format(point=f"storage.local.{operation}.{step}"))
    root = tmp_path / "root"
    ended = subprocess.run(
        [sys.executable, "-c", WRITE, str(root), NONCE, operation], env={**os.environ, "TIDEGATE_FAULTS": str(script)}
    )
    assert ended.returncode == -signal.SIGKILL
    storage = LocalStorage(root)
    named = step != "1-written"
    assert [(each.path, each.size_bytes) for each in storage.list()] == ([("job/log/1", len(BODY))] if named else [])
    assert storage.sweep() == (1 if step in ("1-written", "2-named") else 0)
    assert storage.create("job/log/1", BODY, NONCE) == Won()
    assert storage.get("job/log/1") == BODY


def test_a_sweep_under_a_writer_only_makes_it_write_again(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    swept = []

    def sweep_once(point: str, **context: object) -> None:
        if point.endswith("1-written") and not swept:
            swept.append(storage.sweep())

    faults.arm(sweep_once)
    try:
        assert storage.create("log/1", BODY, NONCE) == Won()
    finally:
        faults.arm(None)
    assert swept == [1]
    assert storage.get("log/1") == BODY


def test_a_folder_deleted_under_a_writer_is_made_again(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for number in range(50):
        storage.put(f"a/b/{number}", b"x")
        storage.delete([f"a/b/{number}"])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ObjectMissing):
        storage.get("a/b/1")
