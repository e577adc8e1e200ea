"""A query that fails says so in one error of Python: Java's stacks stay out of sight, unless somebody asks for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import tidegate as tg

config = {{"spark.ui.enabled": "false", **{config!r}}}
spark = tg.session("quiet", master="local[2]", config=config)
rows = spark.readStream.schema("value string").parquet({folder!r})
query = rows.writeStream.format("noop").option("checkpointLocation", {checkpoint!r}).start()
try:
    query.awaitTermination()
except Exception as error:
    print(type(error).__name__)
spark.stop()
"""


def stderr_of(tmp_path, config):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.parquet").write_text("no Parquet")
    program = PROGRAM.format(config=config, folder=str(folder), checkpoint=str(tmp_path / "checkpoint"))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=900, cwd=tmp_path)
    assert ended.stdout.splitlines() == ["StreamingQueryException"], ended.stderr
    return ended.stderr.splitlines()


def stack_lines(lines):
    return [line for line in lines if line.lstrip().startswith("at ")]


def test_a_query_that_fails_leaves_fewer_than_ten_lines_and_no_stack(tmp_path):
    lines = stderr_of(tmp_path, {})
    assert stack_lines(lines) == []
    assert len(lines) < 10, lines


@pytest.mark.large
def test_a_level_that_the_user_chose_shows_javas_stacks(tmp_path):
    assert len(stack_lines(stderr_of(tmp_path, {"spark.log.level": "ERROR"}))) > 10
