"""A page of the documentation as a terminal session: its `console` blocks are run in one shell, and must print what they say.

`…` in the page stands for anything. A `python` block is saved as `job.py` when the session comes to it. After a command in the
background, the session goes on when the job that it starts can be asked.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MARK = "\x01"
_UP = (
    "until tidegate list 2>/dev/null | grep -q RUNNING; do "
    "kill -0 $! 2>/dev/null || { cat run-*.log; exit 1; }; sleep 0.2; done"
)


@dataclass
class Step:
    """A command and what it must print."""

    command: str
    wanted: list[str] = field(default_factory=list)

    def holds(self, printed: str) -> bool:
        pattern = "\n".join(map(_pattern, self.wanted))
        return re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None


def steps(page: str) -> list[Step]:
    found: list[Step] = []
    for kind, text in _BLOCK.findall(page):
        if kind == "python":
            found.append(Step(f"cat > job.py <<'END_OF_FILE'\n{text}END_OF_FILE"))
            continue
        for line in text.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:]))
            else:
                found[-1].wanted.append(line)
    return found


def play(page: str, folder: Path, timeout_s: float) -> list[tuple[Step, str]]:
    """Run the session in `folder`. Answer: every step with what it printed. Nothing that it started outlives it."""
    session, port = steps(page), _free_port()
    tools = folder / ".tools"
    tools.mkdir()
    (tools / "tidegate").write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "from tidegate.control.cli import main; main()" "$@"\n'
    )
    (tools / "tidegate").chmod(0o755)
    script: list[str] = []
    for step in session:
        command = step.command.replace("tidegate run ", f"tidegate run -Drest.port={port} ")
        script += [f"printf '{_MARK}\\n'", command]
        if command.endswith("&"):
            script.append(_UP)
    environment = {
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "TIDEGATE_REST": f"127.0.0.1:{port}",
        "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "LC_ALL": "C",
    }  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-c", "\n".join(script)], cwd=folder, env=environment, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=timeout_s)
    finally:
        _end(process)
    printed = output.split(f"{_MARK}\n")[1:]
    assert len(printed) == len(session), output[-3000:] + "".join(
        p.read_text()[-3000:] for p in folder.glob("run-*.log")
    )
    return list(zip(session, printed))


def _pattern(line: str) -> str:
    return ".*".join(map(re.escape, line.split("…")))


def _end(process: subprocess.Popen[str]) -> None:
    """The shell and the groups of its background jobs, which are of its session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
    process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
