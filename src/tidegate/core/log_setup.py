"""Default logging for a job, for programs that do not configure logging. Any existing configuration takes precedence.

All lines go to the logger `tidegate`: start, restore, epochs with their rows and rates, checkpoints, restarts and their
causes.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

FORMAT = "%(asctime)s %(levelname)s %(message)s"


def speak(stream: TextIO | None = None) -> None:
    """Show lines of level INFO and above, unless the program has configured logging."""
    logger, root = logging.getLogger("tidegate"), logging.getLogger()
    if root.handlers or logger.handlers or logger.level != logging.NOTSET:
        return
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    # On a terminal, the last line is the progress line, which is redrawn after this one.
    handler.setFormatter(logging.Formatter(("\r\033[K" if stream.isatty() else "") + FORMAT))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logging.getLogger("py4j").setLevel(logging.ERROR)
