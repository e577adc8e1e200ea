"""What a script that runs a job, and has not heard of logging, gets to see."""

from __future__ import annotations

import json
import os
import subprocess
import sys

PROGRAM = """
import logging
{before}
from tidegate.core.log_setup import configure_logging
configure_logging()
configure_logging()
logging.getLogger("tidegate").info("epoch 1.1: 5 rows")
"""


def printed(before: str = "", **environment: str) -> str:
    command, around = [sys.executable, "-c", PROGRAM.format(before=before)], {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=around)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_script_without_logging_sees_the_lines_of_its_job_once():
    lines = printed().splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("INFO epoch 1.1: 5 rows")


def test_logging_configured_by_the_program_takes_precedence():
    assert printed("logging.basicConfig(level=logging.WARNING)") == ""
    assert printed("logging.getLogger('tidegate').setLevel(logging.ERROR)") == ""
    assert printed("logging.basicConfig(level=logging.INFO, format='mine %(message)s')") == "mine epoch 1.1: 5 rows\n"


def test_the_environment_can_ask_for_json():
    (line,) = printed(TIDEGATE_LOG_FORMAT="json").splitlines()
    assert json.loads(line)["message"] == "epoch 1.1: 5 rows"
