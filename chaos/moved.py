"""The job of `chaos.counted` as a file for `tidegate run`. Told where by the environment, since the command line is a user's."""

from __future__ import annotations

import os

import tidegate as tg
from chaos.counted import SPARK, declare

MASTER, FOLDER = "TIDEGATE_CHAOS_MASTER", "TIDEGATE_CHAOS_FOLDER"
NAME, OUT = "TIDEGATE_CHAOS_NAME", "TIDEGATE_CHAOS_OUT"
"""Of a fork: its name, and the folder of its sink."""


def build() -> tg.Job:
    spark = tg.session("chaos", master=os.environ[MASTER], config=SPARK)
    name = os.environ.get(NAME, "counted")
    out = os.environ.get(OUT, "out")
    return declare(spark, os.environ[FOLDER], unique=False, name=name, out=out)
