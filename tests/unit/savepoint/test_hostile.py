"""A snapshot from a stranger runs nothing, whatever is in it: read in a process that notes every attempt to run code."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tidegate as tg
from tidegate.checkpoint.metadata import CheckpointMetadata, FileList, decode, encode
from tidegate.core.errors import TidegateError
from tidegate.savepoint.dispose import dispose
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.storage import open_storage

READER = """
import sys
import tidegate as tg
from tidegate.savepoint.dispose import dispose
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.savepoint.verify import verify

def read(path):
    snapshot = StoredSnapshot.open(path)
    list(verify(snapshot))
    for operator, state in snapshot.states():
        tg.Savepoint.open(path).state(operator.uid, state.name).to_arrow()

read(sys.argv[1])  # a good one first: everything that is imported on the way is there now
WATCHED = ("exec", "compile", "import", "pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
noted = []
sys.addaudithook(lambda event, arguments: noted.append((event, arguments)) if event in WATCHED else None)
for path in sys.argv[2:]:
    try:
        read(path)
    except Exception as error:
        print(type(error).__name__)
    else:
        print("read")
sys.exit(repr(noted) if noted else 0)
"""


class Bomb:
    """Unpickling it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def made(path: Path, value: Any = b"", kind: Any = bytes) -> Path:
    tg.SavepointWriter.new("orders").with_state("op", "s", {"k": value}, key="user string", value=kind).write(path)
    return path


def changed(path: Path, change: Any) -> None:
    metadata: CheckpointMetadata = decode((path / "_metadata").read_bytes())
    (path / "_metadata").unlink()
    open_storage(path).put("_metadata", encode(change(metadata)))


def with_type(schema: dict[str, Any]) -> Any:
    def change(m: CheckpointMetadata) -> CheckpointMetadata:
        (operator,) = m.operators
        (state,) = operator.states
        return replace(m, operators=(replace(operator, states=(replace(state, value=schema),)),))

    return change


def with_backend(name: str) -> Any:
    return lambda m: replace(m, tasks=tuple(replace(task, backend=name) for task in m.tasks))


EVIL = "__import__('os').system('true')"


HOSTILE = {
    "a pickle among values": (lambda m: m, "read"),
    "a type of code": (with_type({"type": EVIL}), "UnknownSchema"),
    "a class by the name of code": (with_type({"type": "struct", "name": EVIL, "layout": "map", "fields": []}), "read"),
    "any object": (with_type({"type": "list", "element": {"type": "object"}}), "UnknownSchema"),
    "a backend of its own": (with_backend("os:system"), "UntrustedSnapshot"),
}


@pytest.mark.large
@pytest.mark.feature("I29")
def test_hostile_snapshots_are_read_or_refused_and_run_nothing(tmp_path: Path) -> None:
    bomb = tmp_path / "exploded"
    for name, (change, _) in HOSTILE.items():
        changed(made(tmp_path / name, pickle.dumps(Bomb(bomb))), change)
    paths = [str(made(tmp_path / "good")), *(str(tmp_path / name) for name in HOSTILE)]
    done = subprocess.run([sys.executable, "-c", READER, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [outcome for _, outcome in HOSTILE.values()]
    assert not bomb.exists()


@pytest.mark.parametrize("name", ["../../outside", "/etc/passwd", ".."])
def test_a_file_outside_the_snapshot_is_not_touched(tmp_path: Path, name: str) -> None:
    """Names of files, as they are called and as they lie in storage."""
    outside = tmp_path / "outside"
    outside.write_text("mine")
    hostile = made(tmp_path / "sp" / "hostile")

    def change(m: CheckpointMetadata) -> CheckpointMetadata:
        (task,) = m.tasks
        files = [msgspec.structs.replace(file, path=name) for file in task.files]
        return replace(m, tasks=(replace(task, files=FileList(files)),))

    changed(hostile, change)
    with pytest.raises((TidegateError, ValueError)):
        dispose(StoredSnapshot.open(hostile))
    with pytest.raises((TidegateError, ValueError)):
        list(tg.Savepoint.open(hostile).state("op", "s").entries())
    assert outside.read_text() == "mine"
