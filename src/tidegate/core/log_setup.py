"""The job's own log lines, in a program that has not set up logging. One setup that does has the last word.

All lines go to the logger `tidegate`: started, restored, epochs with their rows and rates, checkpoints, restarts and why.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

FORMAT = "%(asctime)s %(levelname)s %(message)s"


def speak(stream: TextIO | None = None) -> None:
    """Let lines of INFO and above be seen, unless the program has said what it wants to see."""
    logger, root = logging.getLogger("tidegate"), logging.getLogger()
    if root.handlers or logger.handlers or logger.level != logging.NOTSET:
        return
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    # On a terminal the last line is that of the progress, and is written again after this one.
    handler.setFormatter(logging.Formatter(("\r\033[K" if stream.isatty() else "") + FORMAT))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logging.getLogger("py4j").setLevel(logging.ERROR)
